"""Typed client of the forge (Gitea's REST API)."""


class GiteaClient:
    """The forge as one account sees it."""
