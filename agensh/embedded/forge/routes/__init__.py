"""The routes, one noun a module."""

from __future__ import annotations

from agensh.embedded.forge.routes import (
    accounts,
    branches,
    comments,
    contents,
    events,
    history,
    issues,
    labels,
    merge,
    notifications,
    protections,
    pulls,
    repositories,
    reviews,
    site,
    statuses,
)

# The order matters where one address fits two patterns: the special one comes first.
ROUTERS = [
    site.router,
    events.router,
    accounts.router,
    comments.router,
    labels.router,
    issues.router,
    repositories.router,
    branches.router,
    protections.router,
    contents.router,
    statuses.router,
    history.router,
    merge.router,
    reviews.router,
    pulls.router,
    notifications.router,
]
