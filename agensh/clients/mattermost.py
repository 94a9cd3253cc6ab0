"""Typed client of the chat (Mattermost's REST API and websocket)."""


class MattermostClient:
    """The chat as one account sees it."""
