"""Choice of the number of parts and of parameters, and consensus parts."""
