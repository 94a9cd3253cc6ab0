"""The embedded chat: the part of Mattermost 11.7's REST and websocket interface that a team uses.

What is there: accounts, bots, sessions and access tokens, teams, channels, direct and group channels, members, posts
with threads, edits, pins, reactions and search, unread counts, preferences, and the websocket with resume. It behaves
like the unlicensed team edition with collapsed threads switched off, limits and traps included: `since` and its
thousand rows, strict `after`, the cookie that beats the header, own posts echoed, a join message for every join,
connections cut at 256 unread events.

What is not: files, e-mail, plugins, webhooks, commands, guests, roles beyond member and admin, status events, and the
staleness of the real server's caches. The login sends its cookies to every client, the real one to browsers only.
"""
