"""Model files, and files and folders that appear complete or not at all."""
