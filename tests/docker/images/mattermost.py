"""The embedded chat on the port and the data folder of Mattermost's image."""

from pathlib import Path

from agensh.embedded.chat.server import serve

serve(Path("/mattermost/data"), "0.0.0.0", 8065)
