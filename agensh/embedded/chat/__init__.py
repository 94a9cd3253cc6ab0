"""The embedded chat: the part of Mattermost 11.7's REST and websocket interface that a team uses."""
