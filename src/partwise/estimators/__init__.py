"""The estimators: one file per method, with the objective and the settings that define it."""
