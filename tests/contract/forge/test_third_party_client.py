"""The client generated from Gitea's own API description understands every answer."""

# The models declare every field as optional; a None in one of them fails the test at run time, as it should.
# mypy: disable-error-code="union-attr,index,arg-type,list-item"

from __future__ import annotations

import gitea_api_client as gitea
import pytest

from tests.contract.forge.world import PASSWORD, World, eventually


async def test_site_and_users(world: World) -> None:
    async with world.ann.gitea() as api:
        assert (await api.site.get_version()).version.startswith("1.27")
        me = await api.users.user_get_current()
        assert (me.login, me.email, me.is_admin) == (world.ann.name, f"{world.ann.name}@example.org", False)
        assert (await api.users.user_get(world.ben.name)).login == world.ben.name
        found = await api.users.user_search(q=world.tag)
        assert {user.login for user in found.data} >= {world.ann.name, world.ben.name, world.owner.name}
        with pytest.raises(gitea.exceptions.NotFoundException):
            await api.users.user_get("nobody-of-that-name")


async def test_tokens_and_accounts(world: World) -> None:
    configuration = gitea.Configuration(host=world.forge.api, username=world.forge.admin, password=world.forge.password)
    async with gitea.ApiClient(configuration) as client:
        admin, users = gitea.AdminApi(client), gitea.UserApi(client)
        name = f"cat{world.tag}"
        made = await admin.admin_create_user(
            gitea.CreateUserOption(
                username=name, email=f"{name}@example.org", password=PASSWORD, must_change_password=False
            )
        )
        assert (made.login, made.active) == (name, True)
        token = await users.user_create_token(name, gitea.CreateAccessTokenOption(name="work", scopes=["all"]))
        assert len(token.sha1) == 40
        assert token.token_last_eight == token.sha1[-8:]
        listed = await users.user_get_tokens(name)
        assert [(t.name, t.sha1) for t in listed] == [("work", "")]
        await users.user_delete_access_token(name, "work")
        assert await users.user_get_tokens(name) == []
        await admin.admin_delete_user(name)
        with pytest.raises(gitea.exceptions.NotFoundException):
            await users.user_get(name)


async def test_repositories_and_files(world: World) -> None:
    owner = world.owner.name
    async with world.owner.gitea() as api:
        repo = await api.repos.create_current_user_repo(
            gitea.CreateRepoOption(name="second", auto_init=True, default_branch="main", private=True)
        )
        assert (repo.full_name, repo.empty, repo.permissions.admin) == (f"{owner}/second", False, True)
        made = await api.repos.repo_create_file(
            owner, "second", "dir/a.txt", gitea.CreateFileOptions(content="aGVsbG8K", message="Add a")
        )
        assert made.content.path == "dir/a.txt"
        got = await api.repos.repo_get_contents(owner, "second", "dir/a.txt")
        assert (got.content, got.encoding, got.size, got.sha) == ("aGVsbG8K", "base64", 6, made.content.sha)
        change = gitea.UpdateFileOptions(content="d29ybGQK", sha=got.sha, branch="main")
        updated = await api.repos.repo_update_file(owner, "second", "dir/a.txt", change)
        assert updated.commit.parents[0].sha == made.commit.sha
        files = [
            gitea.ChangeFileOperation(operation="create", path="b.txt", content="Ygo="),
            gitea.ChangeFileOperation(operation="delete", path="dir/a.txt", sha=updated.content.sha),
        ]
        many = await api.repos.repo_change_files(
            owner, "second", gitea.ChangeFilesOptions(files=files, message="Two at once")
        )
        assert [f.path for f in many.files] == ["b.txt"]
        commits = await api.repos.repo_get_all_commits(owner, "second")
        assert [c.commit.message.strip() for c in commits][:3] == ["Two at once", "Update dir/a.txt", "Add a"]
        assert {f.filename: f.status for f in commits[0].files} == {"b.txt": "added", "dir/a.txt": "removed"}
        assert commits[0].author.login == owner
        tree = await api.repos.get_tree(owner, "second", "main", recursive=True)
        assert [entry.path for entry in tree.tree] == ["README.md", "b.txt"]
        assert (await api.repos.repo_get(owner, "second")).branch_count == 1
        edited = await api.repos.repo_edit(owner, "second", gitea.EditRepoOption(description="Two", allow_rebase=False))
        assert (edited.description, edited.allow_rebase, edited.allow_squash_merge) == ("Two", False, True)
        await api.repos.repo_delete(owner, "second")
        with pytest.raises(gitea.exceptions.NotFoundException):
            await api.repos.repo_get(owner, "second")


async def test_branches_compare_and_protection(world: World) -> None:
    owner, name = world.owner.name, world.name
    async with world.owner.gitea() as api:
        made = await api.repos.repo_create_branch(owner, name, gitea.CreateBranchRepoOption(new_branch_name="a/b"))
        assert (made.name, made.protected) == ("a/b", False)
        with pytest.raises(gitea.exceptions.ConflictException):
            await api.repos.repo_create_branch(owner, name, gitea.CreateBranchRepoOption(new_branch_name="a/b"))
        rule = await api.repos.repo_create_branch_protection(
            owner, name, gitea.CreateBranchProtectionOption(rule_name="main", enable_push=False, required_approvals=1)
        )
        assert (rule.rule_name, rule.required_approvals, rule.enable_push) == ("main", 1, False)
        branches = await api.repos.repo_list_branches(owner, name)
        assert [(b.name, b.protected, b.user_can_push) for b in branches] == [
            ("main", True, False),
            ("a/b", False, True),
        ]
        edit = gitea.EditBranchProtectionOption(required_approvals=0)
        assert (await api.repos.repo_edit_branch_protection(owner, name, "main", edit)).required_approvals == 0
        assert [r.rule_name for r in await api.repos.repo_list_branch_protection(owner, name)] == ["main"]
        world.branch(world.ann, "work", {"x.txt": "x\n"})
        compare = await api.repos.repo_compare_diff(owner, name, "main...work")
        assert (compare.total_commits, compare.commits[0].commit.message) == (1, "Work on work\n")
        await api.repos.repo_delete_branch(owner, name, "a/b")
        await api.repos.repo_delete_branch_protection(owner, name, "main")
        assert await api.repos.repo_list_branch_protection(owner, name) == []


async def test_issues_labels_and_comments(world: World) -> None:
    owner, name = world.owner.name, world.name
    async with world.ann.gitea() as api:
        label = await api.issues.issue_create_label(
            owner, name, gitea.CreateLabelOption(name="area/sort", color="#00aabb", description="Sorting")
        )
        assert (label.name, label.color) == ("area/sort", "00aabb")
        issue = await api.issues.issue_create_issue(
            owner, name,
            gitea.CreateIssueOption(
                title="Sort is wrong", body="ask @nobody", labels=[label.id], assignees=[world.ben.name]
            ),
        )  # fmt: skip
        assert (issue.number, issue.state, issue.user.login) == (1, "open", world.ann.name)
        assert issue.assignees[0].login == world.ben.name
        assert issue.repository.full_name == f"{owner}/{name}"
        comment = await api.issues.issue_create_comment(
            owner, name, 1, gitea.CreateIssueCommentOption(body="✅ → 🫠 𠜎")
        )
        assert comment.body == "✅ → 🫠 𠜎"
        edited = await api.issues.issue_edit_comment(
            owner, name, comment.id, gitea.EditIssueCommentOption(body="better")
        )
        assert edited.body == "better"
        comments = await api.issues.issue_get_comments(owner, name, 1)
        assert [c.body for c in comments] == ["better"]
        assert [c.id for c in await api.issues.issue_get_repo_comments(owner, name)] == [comment.id]
        closed = await api.issues.issue_edit_issue(owner, name, 1, gitea.EditIssueOption(state="closed"))
        assert closed.state == "closed"
        assert closed.closed_at is not None
        timeline = await api.issues.issue_get_comments_and_timeline(owner, name, 1)
        assert [event.type for event in timeline] == ["assignees", "comment", "close"]
        assert await api.issues.issue_list_issues(owner, name) == []
        by = {"state": "all", "labels": "area/sort", "assigned_by": world.ben.name, "created_by": world.ann.name}
        assert [i.number for i in await api.issues.issue_list_issues(owner, name, type="issues", q="sort", **by)] == [1]
        assert await api.issues.issue_list_issues(owner, name, state="all", type="pulls") == []
        await api.issues.issue_delete_comment(owner, name, comment.id)
        assert await api.issues.issue_get_comments(owner, name, 1) == []


async def test_pull_requests_reviews_and_statuses(world: World) -> None:
    owner, name = world.owner.name, world.name
    sha = world.branch(world.ann, "work", {"x.txt": "1\n2\n", "README.md": "new\n"})
    async with world.ann.gitea() as ann, world.ben.gitea() as ben:
        pull = await ann.repos.repo_create_pull_request(
            owner, name, gitea.CreatePullRequestOption(title="Add x", head="work", base="main", body="text")
        )
        assert (pull.head.ref, pull.head.sha, pull.base.ref, pull.mergeable) == ("work", sha, "main", True)
        number = pull.number
        assert (await ann.repos.repo_get_pull_request_by_base_head(owner, name, "main", "work")).number == number
        files = await ann.repos.repo_get_pull_request_files(owner, name, number)
        assert [(f.filename, f.status) for f in files] == [("README.md", "changed"), ("x.txt", "added")]
        assert [c.sha for c in await ann.repos.repo_get_pull_request_commits(owner, name, number)] == [sha]
        diff = await ann.repos.repo_download_pull_diff_or_patch(owner, name, number, "diff")
        assert "+++ b/x.txt" in diff
        asked = await ann.repos.repo_create_pull_review_requests(
            owner, name, number, gitea.PullReviewRequestOptions(reviewers=[world.ben.name])
        )
        assert [r.state for r in asked] == ["REQUEST_REVIEW"]
        line = gitea.CreatePullReviewComment(path="x.txt", body="why 2?", new_position=2)
        review = await ben.repos.repo_create_pull_review(
            owner, name, number, gitea.CreatePullReviewOptions(event="APPROVED", body="good", comments=[line])
        )
        assert (review.state, review.official, review.comments_count) == ("APPROVED", True, 1)
        reviews = await ann.repos.repo_list_pull_reviews(owner, name, number)
        assert [(r.user.login, r.state) for r in reviews] == [(world.ben.name, "APPROVED")]
        comments = await ann.repos.repo_get_pull_review_comments(owner, name, number, review.id)
        assert [(c.path, c.position, c.body) for c in comments] == [("x.txt", 2, "why 2?")]
        status = await ann.repos.repo_create_status(
            owner, name, sha, gitea.CreateStatusOption(state="success", context="ci/test", description="ok")
        )
        assert status.status == "success"
        combined = await ann.repos.repo_get_combined_status_by_ref(owner, name, "work")
        assert (combined.state, combined.total_count, combined.sha) == ("success", 1, sha)
        assert [s.context for s in await ann.repos.repo_list_statuses(owner, name, sha)] == ["ci/test"]
        with pytest.raises(gitea.exceptions.NotFoundException):
            await ann.repos.repo_pull_request_is_merged(owner, name, number)
        await ann.repos.repo_merge_pull_request(
            owner, name, number,
            gitea.MergePullRequestOption(do="squash", head_commit_id=sha, delete_branch_after_merge=True),
        )  # fmt: skip
        merged = await ben.repos.repo_get_pull_request(owner, name, number)
        assert (merged.merged, merged.state, merged.merged_by.login) == (True, "closed", world.ann.name)
        tip = await ben.repos.repo_get_branch(owner, name, "main")
        assert tip.commit.id == merged.merge_commit_sha
        assert tip.commit.message == f"Add x (#{number})\n"
        with pytest.raises(gitea.exceptions.NotFoundException):
            await ann.repos.repo_get_branch(owner, name, "work")


async def test_notifications_and_watching(world: World) -> None:
    owner, name = world.owner.name, world.name
    async with world.ann.gitea() as ann, world.ben.gitea() as ben:
        assert (await ben.repos.user_current_put_subscription(owner, name)).subscribed is True
        await ann.issues.issue_create_issue(owner, name, gitea.CreateIssueOption(title="Hear me"))

        async def threads() -> list[gitea.NotificationThread]:
            return await ben.notices.notify_get_list()

        found = await threads()
        assert [(t.subject.title, t.subject.type, t.unread) for t in found] == [("Hear me", "Issue", True)]
        assert found[0].repository.full_name == f"{owner}/{name}"
        assert (await ben.notices.notify_new_available()).new == 1
        assert (await ben.notices.notify_get_thread(str(found[0].id))).id == found[0].id
        await ben.repos.user_current_delete_subscription(owner, name)
        with pytest.raises(gitea.exceptions.NotFoundException):
            await ben.repos.user_current_check_subscription(owner, name)


def test_eventually_gives_up_on_what_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.contract.forge.world.PATIENCE", 0.05)
    with pytest.raises(AssertionError, match="never"):
        eventually(lambda: None, "never")
