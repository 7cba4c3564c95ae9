"""The estimators: one module per method, with its objective and its parameters."""
