"""The tables. Times are whole seconds since the epoch, as Gitea keeps them."""

from __future__ import annotations

VERSION = 1

SCHEMA = """
CREATE TABLE users (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    lower_name TEXT NOT NULL UNIQUE,
    email TEXT NOT NULL UNIQUE COLLATE NOCASE,
    full_name TEXT NOT NULL DEFAULT '',
    password TEXT NOT NULL,
    is_admin INTEGER NOT NULL DEFAULT 0,
    must_change_password INTEGER NOT NULL DEFAULT 0,
    restricted INTEGER NOT NULL DEFAULT 0,
    prohibit_login INTEGER NOT NULL DEFAULT 0,
    visibility TEXT NOT NULL DEFAULT 'public',
    created INTEGER NOT NULL,
    last_login INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    last_eight TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created INTEGER NOT NULL,
    last_used INTEGER NOT NULL DEFAULT 0,
    UNIQUE (user_id, name)
);
CREATE TABLE sessions (
    hash TEXT PRIMARY KEY,
    user_id INTEGER NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    expires INTEGER NOT NULL
);
CREATE TABLE repos (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner_id INTEGER NOT NULL REFERENCES users(id),
    name TEXT NOT NULL,
    lower_name TEXT NOT NULL,
    description TEXT NOT NULL DEFAULT '',
    website TEXT NOT NULL DEFAULT '',
    private INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0,
    default_branch TEXT NOT NULL,
    options TEXT NOT NULL DEFAULT '{}',
    last_index INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    UNIQUE (owner_id, lower_name)
);
CREATE TABLE collaborators (
    repo_id INTEGER NOT NULL REFERENCES repos(id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    mode INTEGER NOT NULL,
    PRIMARY KEY (repo_id, user_id)
) WITHOUT ROWID;
CREATE INDEX collaborators_user ON collaborators (user_id);
CREATE TABLE watches (
    repo_id INTEGER NOT NULL REFERENCES repos(id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    ignored INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    PRIMARY KEY (repo_id, user_id)
) WITHOUT ROWID;
CREATE TABLE labels (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    repo_id INTEGER NOT NULL REFERENCES repos(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    color TEXT NOT NULL,
    description TEXT NOT NULL DEFAULT '',
    exclusive INTEGER NOT NULL DEFAULT 0,
    is_archived INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX labels_repo ON labels (repo_id);
CREATE TABLE issues (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    repo_id INTEGER NOT NULL REFERENCES repos(id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    poster_id INTEGER NOT NULL REFERENCES users(id),
    title TEXT NOT NULL,
    body TEXT NOT NULL DEFAULT '',
    ref TEXT NOT NULL DEFAULT '',
    is_pull INTEGER NOT NULL DEFAULT 0,
    is_locked INTEGER NOT NULL DEFAULT 0,
    closed INTEGER NOT NULL DEFAULT 0,
    closed_at INTEGER,
    due_date INTEGER,
    comments INTEGER NOT NULL DEFAULT 0,
    content_version INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    UNIQUE (repo_id, number)
);
CREATE INDEX issues_open ON issues (repo_id, is_pull, closed);
CREATE TABLE issue_labels (
    issue_id INTEGER NOT NULL REFERENCES issues(id) ON DELETE CASCADE,
    label_id INTEGER NOT NULL REFERENCES labels(id) ON DELETE CASCADE,
    PRIMARY KEY (issue_id, label_id)
) WITHOUT ROWID;
CREATE TABLE issue_assignees (
    issue_id INTEGER NOT NULL REFERENCES issues(id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    PRIMARY KEY (issue_id, user_id)
) WITHOUT ROWID;
CREATE TABLE issue_watches (
    issue_id INTEGER NOT NULL REFERENCES issues(id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    watching INTEGER NOT NULL,
    PRIMARY KEY (issue_id, user_id)
) WITHOUT ROWID;
CREATE TABLE mentions (
    issue_id INTEGER NOT NULL REFERENCES issues(id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    PRIMARY KEY (issue_id, user_id)
) WITHOUT ROWID;
CREATE TABLE comments (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    issue_id INTEGER NOT NULL REFERENCES issues(id) ON DELETE CASCADE,
    poster_id INTEGER NOT NULL REFERENCES users(id),
    kind TEXT NOT NULL,
    body TEXT NOT NULL DEFAULT '',
    review_id INTEGER,
    details TEXT NOT NULL DEFAULT '{}',
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL
);
CREATE INDEX comments_issue ON comments (issue_id, kind, updated);
CREATE TABLE pulls (
    issue_id INTEGER PRIMARY KEY REFERENCES issues(id) ON DELETE CASCADE,
    repo_id INTEGER NOT NULL REFERENCES repos(id) ON DELETE CASCADE,
    head_branch TEXT NOT NULL,
    base_branch TEXT NOT NULL,
    head_sha TEXT NOT NULL,
    merge_base TEXT NOT NULL,
    status TEXT NOT NULL,
    checked_head TEXT NOT NULL DEFAULT '',
    checked_base TEXT NOT NULL DEFAULT '',
    conflicts TEXT NOT NULL DEFAULT '[]',
    additions INTEGER NOT NULL DEFAULT 0,
    deletions INTEGER NOT NULL DEFAULT 0,
    changed_files INTEGER NOT NULL DEFAULT 0,
    behind INTEGER NOT NULL DEFAULT 0,
    merged INTEGER NOT NULL DEFAULT 0,
    merged_sha TEXT,
    merged_at INTEGER,
    merged_by INTEGER REFERENCES users(id),
    pending_sha TEXT,
    pending_by INTEGER,
    allow_maintainer_edit INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX pulls_branches ON pulls (repo_id, base_branch, head_branch, merged);
CREATE INDEX pulls_head ON pulls (repo_id, head_branch, merged);
CREATE INDEX pulls_pending ON pulls (pending_sha) WHERE pending_sha IS NOT NULL;
CREATE TABLE reviews (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    issue_id INTEGER NOT NULL REFERENCES issues(id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES users(id),
    state TEXT NOT NULL,
    body TEXT NOT NULL DEFAULT '',
    commit_id TEXT NOT NULL,
    official INTEGER NOT NULL DEFAULT 0,
    dismissed INTEGER NOT NULL DEFAULT 0,
    stale INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL
);
CREATE INDEX reviews_issue ON reviews (issue_id);
CREATE TABLE review_comments (
    id INTEGER PRIMARY KEY REFERENCES comments(id) ON DELETE CASCADE,
    review_id INTEGER NOT NULL REFERENCES reviews(id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    position INTEGER NOT NULL,
    old_position INTEGER NOT NULL,
    commit_id TEXT NOT NULL,
    diff_hunk TEXT NOT NULL DEFAULT ''
);
CREATE INDEX review_comments_review ON review_comments (review_id);
CREATE TABLE protections (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    repo_id INTEGER NOT NULL REFERENCES repos(id) ON DELETE CASCADE,
    rule_name TEXT NOT NULL,
    priority INTEGER NOT NULL,
    rule TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    UNIQUE (repo_id, rule_name)
);
CREATE TABLE statuses (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    repo_id INTEGER NOT NULL REFERENCES repos(id) ON DELETE CASCADE,
    sha TEXT NOT NULL,
    state TEXT NOT NULL,
    context TEXT NOT NULL,
    description TEXT NOT NULL,
    target_url TEXT NOT NULL,
    creator_id INTEGER NOT NULL REFERENCES users(id),
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL
);
CREATE INDEX statuses_commit ON statuses (repo_id, sha, context);
CREATE TABLE notifications (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    repo_id INTEGER NOT NULL REFERENCES repos(id) ON DELETE CASCADE,
    issue_id INTEGER NOT NULL REFERENCES issues(id) ON DELETE CASCADE,
    status TEXT NOT NULL,
    comment_id INTEGER NOT NULL DEFAULT 0,
    updated_by INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    UNIQUE (user_id, issue_id)
);
CREATE INDEX notifications_user ON notifications (user_id, status, updated);
"""
