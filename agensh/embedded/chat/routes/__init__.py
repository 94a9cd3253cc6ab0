"""The REST routes, one noun a module."""
