"""The studio: a local web server whose page is used to label samples."""
