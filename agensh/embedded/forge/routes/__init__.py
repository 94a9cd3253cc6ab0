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

ROUTERS = [
    site.router,
    events.router,
    accounts.router,
    repositories.router,
    branches.router,
    protections.router,
    contents.router,
    history.router,
    statuses.router,
    labels.router,
    issues.router,
    comments.router,
    pulls.router,
    merge.router,
    reviews.router,
    notifications.router,
]
