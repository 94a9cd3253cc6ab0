"""Making the commit of a merge without a work tree.

`git merge-tree` finds the base by itself (choosing one needs git 2.40). To apply a single commit, as a rebase does, the
three trees are dressed as commits of a tiny history whose common ancestor is the commit's parent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from agensh.embedded.forge import history
from agensh.embedded.forge.git import Git, Person


@dataclass(slots=True)
class MergeConflict(Exception):
    """The two sides changed the same lines; `rebase` names the commit that did not apply, when rebasing."""

    paths: list[str]
    commit: str = ""


class NotFastForward(Exception):
    """The base has commits that the head has not."""


async def merge(git: Git, repo: Path, base: str, head: str, message: str, by: Person) -> str:
    """Return a merge commit with parents base and head."""
    tree, paths = await git.merge_tree(repo, base, head)
    if tree is None:
        raise MergeConflict(paths)
    return await git.commit_tree(repo, tree, [base, head], message, by)


async def squash(git: Git, repo: Path, base: str, head: str, message: str, author: Person, by: Person) -> str:
    """Return one commit on the base with everything of the head."""
    tree, paths = await git.merge_tree(repo, base, head)
    if tree is None:
        raise MergeConflict(paths)
    return await git.commit_tree(repo, tree, [base], message, author, by)


async def rebase(git: Git, repo: Path, base: str, head: str, by: Person) -> str:
    """Return the last of the head's own commits, put one by one onto the base; authors and messages are kept.

    Merge commits are left out, and so are commits whose change the base already has, as `git rebase` does.
    """
    todo = await history.commits(git, repo, "--no-merges", "--topo-order", "--reverse", f"{base}..{head}")
    tip = base
    tip_tree = (await history.commit(git, repo, base)).tree
    for commit in todo:
        if commit.parents == [tip]:
            tip, tip_tree = commit.sha, commit.tree
            continue
        tree = await _apply(git, repo, commit, tip_tree, by)
        if tree != tip_tree:
            tip = await git.commit_tree(repo, tree, [tip], commit.message, commit.author, by)
            tip_tree = tree
    return tip


async def _apply(git: Git, repo: Path, commit: history.CommitInfo, onto: str, by: Person) -> str:
    fixed = replace(by, when=0)
    if commit.parents:
        before = (await history.commit(git, repo, commit.parents[0])).tree
    else:
        before = (await git.run(repo, "mktree", stdin=b"")).text
    root = await git.commit_tree(repo, before, [], "before", fixed)
    ours = await git.commit_tree(repo, onto, [root], "ours", fixed)
    theirs = await git.commit_tree(repo, commit.tree, [root], "theirs", fixed)
    tree, paths = await git.merge_tree(repo, ours, theirs)
    if tree is None:
        raise MergeConflict(paths, commit.sha)
    return tree


async def fast_forward(git: Git, repo: Path, base: str, head: str) -> str:
    """Return the head when it contains the base."""
    if not await git.is_ancestor(repo, base, head):
        raise NotFastForward
    return head
