"""GitHub Copilot CLI, driven over the Agent Client Protocol."""
