"""Choice of the number of parts and of parameters, and parts that recur in many runs."""
