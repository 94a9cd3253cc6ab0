"""What provisioning asks of the forge: accounts, tokens, repositories, protection. Needs an administrator."""

from __future__ import annotations

from collections.abc import Sequence

from agensh.clients.gitea_core import SERVICE, GiteaCore
from agensh.clients.gitea_models import Repo, User
from agensh.clients.http import read_json
from agensh.errors import ServiceError


class AdminCalls(GiteaCore):
    """Calls of an administrator."""

    async def user(self, name: str) -> User | None:
        """Return an account, or None."""
        response = await self.request("GET", f"/users/{name}", expect=(200, 404))
        return User.of(read_json(response, SERVICE)) if response.status_code == 200 else None

    async def create_user(self, name: str, password: str, email: str) -> User:
        """Create an account that may log in at once (sessions break while a password change is due).

        ServiceError 422 when the name or the address is taken.
        """
        body = {"username": name, "password": password, "email": email, "must_change_password": False}
        return User.of(read_json(await self.request("POST", "/admin/users", json=body), SERVICE))

    async def set_password(self, name: str, password: str) -> None:
        """Give an account a new password."""
        body = {"source_id": 0, "login_name": name, "password": password, "must_change_password": False}
        await self.request("PATCH", f"/admin/users/{name}", json=body, idempotent=True)

    async def create_token(self, user: str, name: str, scopes: Sequence[str]) -> str:
        """Mint a token and return its secret, which the forge shows once; needs `basic` credentials.

        ServiceError 400 or 422 when the account has a token of that name.
        """
        body = {"name": name, "scopes": list(scopes)}
        return str(read_json(await self.request("POST", f"/users/{user}/tokens", json=body), SERVICE)["sha1"])

    async def delete_token(self, user: str, name: str) -> None:
        """Delete a token by name; nothing happens when there is none. Needs `basic` credentials."""
        await self.request("DELETE", f"/users/{user}/tokens/{name}", expect=(200, 204, 404))

    async def repo(self, owner: str, name: str) -> Repo | None:
        """Return a repository, or None."""
        response = await self.request("GET", f"/repos/{owner}/{name}", expect=(200, 404))
        return Repo.of(read_json(response, SERVICE)) if response.status_code == 200 else None

    async def create_repo(
        self, owner: str, name: str, *, private: bool = True, default_branch: str = "main", description: str = ""
    ) -> Repo:
        """Create an empty repository for an account; ServiceError 409 when it exists."""
        body = {
            "name": name,
            "private": private,
            "default_branch": default_branch,
            "description": description,
            "auto_init": False,
        }
        return Repo.of(read_json(await self.request("POST", f"/admin/users/{owner}/repos", json=body), SERVICE))

    async def collaborators(self, owner: str, repo: str) -> set[str]:
        """Return the names of those who may write because they were added to the repository."""
        found = await self.get_pages(f"/repos/{owner}/{repo}/collaborators")
        return {User.of(item).login for item in found}

    async def add_collaborator(self, owner: str, repo: str, user: str, permission: str = "write") -> None:
        """Let an account write (or `read`, `admin`); repeating it changes nothing."""
        await self.request("PUT", f"/repos/{owner}/{repo}/collaborators/{user}", json={"permission": permission})

    async def branch_protected(self, owner: str, repo: str, branch: str) -> bool:
        """Say whether a rule of the branch's name exists."""
        response = await self.request("GET", f"/repos/{owner}/{repo}/branch_protections/{branch}", expect=(200, 404))
        return response.status_code == 200

    async def protect_branch(self, owner: str, repo: str, branch: str, *, approvals: int = 0) -> None:
        """Close a branch to pushes: only pull requests change it. ServiceError 403 when the rule exists.

        An outdated branch may be merged: otherwise every merge would outdate every other pull request (N² updates).
        """
        body = {
            "rule_name": branch,
            "branch_name": branch,
            "enable_push": False,
            "enable_push_whitelist": False,
            "enable_force_push": False,
            "enable_merge_whitelist": False,
            "enable_status_check": False,
            "required_approvals": approvals,
            "block_on_rejected_reviews": False,
            "block_on_outdated_branch": False,
            "dismiss_stale_approvals": False,
            "require_signed_commits": False,
        }
        await self.request("POST", f"/repos/{owner}/{repo}/branch_protections", json=body)

    async def watchers(self, owner: str, repo: str) -> set[str]:
        """Return who hears of everything that happens in a repository."""
        try:
            found = await self.get_pages(f"/repos/{owner}/{repo}/subscribers")
        except ServiceError as error:
            if error.status == 404:
                return set()
            raise
        return {User.of(item).login for item in found}

    async def unwatch(self, owner: str, repo: str) -> None:
        """Stop watching a repository: this account keeps hearing of what it takes part in, and of mentions."""
        await self.request("DELETE", f"/repos/{owner}/{repo}/subscription", expect=(200, 204, 404))
