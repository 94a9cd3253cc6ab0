"""The rule-based harness: a worker that follows the work cycle without a model."""
