"""The studio: a local web server and its page for labelling samples."""
