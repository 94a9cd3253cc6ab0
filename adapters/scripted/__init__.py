"""A rule-based worker: no model, bundled implementations, everything else as a real worker does it."""
