"""Model files, and safe writing of files and folders."""
