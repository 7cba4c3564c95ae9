"""Semi-supervised classification: features, an ensemble of classifiers, and explanations."""
