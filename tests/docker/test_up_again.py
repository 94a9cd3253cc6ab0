"""A team that is interrupted: `up` killed while it provisions, `down` and `clean` while the workers work."""

from __future__ import annotations

import json
import signal

import pytest

from agensh.launch.compose.dry_run import VOLUMES
from agensh.launch.compose.project import ADMIN
from tests.docker.conftest import Box, until, workers

pytestmark = pytest.mark.timeout(900)


def _ask(box: Box, path: str) -> str:
    """Return what Gitea answers to its administrator, asked in its container."""
    admin = box.run().secrets().forge_admin
    script = f"curl -fsS -u '{admin.name}:{admin.password}' http://127.0.0.1:3000/api/v1/{path}"
    done = box.container("gitea").exec_run(["sh", "-c", script])
    assert isinstance(done.output, bytes)
    assert done.exit_code == 0, done.output
    return done.output.decode()


def test_up_that_is_killed_while_it_provisions_goes_on_and_doubles_nothing(box: Box) -> None:
    arguments = ("up", str(box.spec), "--workers", "2", "--speed", "30")
    first = box.start(*arguments)
    assert first.stdout is not None
    try:
        for line in first.stdout:
            if line.startswith("provisioning"):
                break
        for command in (arguments, ("down",), ("clean",)):
            refused = box.agensh(*command, check=False)
            assert (refused.returncode, refused.stderr.count("\n")) == (1, 1), refused.stderr
            assert f"another command (process {first.pid}) is at work" in refused.stderr
        first.send_signal(signal.SIGKILL)
    finally:
        first.kill()
        first.wait()
        first.stdout.close()
    run = box.run()

    said = box.agensh(*arguments).stdout
    assert "going on" in said
    assert box.run() == run
    users = _ask(box, "admin/users?limit=50")
    for name in (f"{box.project}-worker1", f"{box.project}-worker2"):
        assert users.count(f'"login":"{name}"') + users.count(f'"login": "{name}"') == 1
    # The workers are at work by now, and may have opened pull requests.
    issues = json.loads(_ask(box, f"repos/{box.project}/workspace/issues?state=all"))
    assert [issue["number"] for issue in issues if issue["user"]["login"] == ADMIN] == [1]
    assert "-worker2" in str(sorted(run.secrets().workers))

    until(lambda: bool(workers(box)), "a worker")
    box.agensh("down")
    assert not workers(box)
    assert not [name for name in box.listing().networks if name.startswith(f"{box.project}_")]

    assert "going on" in box.agensh(*arguments).stdout
    assert box.run() == run
    until(lambda: len(workers(box)) == 2, "the workers are back")
    volumes = box.volumes()
    assert len(volumes) >= 4
    box.agensh("clean")  # of a team that works
    box.leaves_nothing(volumes)


def test_down_before_the_first_worker_says_no_more_than_that_it_stopped(box: Box) -> None:
    """SIGTERM interrupts `up` as Ctrl-C does; no volume of an image is left nameless."""
    first = box.start("up", str(box.spec), "--workers", "2")
    assert first.stdout is not None
    for line in first.stdout:
        if line.startswith("provisioning"):
            break
    first.send_signal(signal.SIGTERM)
    rest = first.communicate(timeout=60)[0]
    assert first.returncode == 1
    assert rest.endswith("agensh: interrupted\n")
    done = box.agensh("down")
    assert done.stdout.splitlines()[-1] == f"stopped; the record is in {box.run().path}"
    assert "Traceback" not in done.stderr
    volumes = {name for kind, name in box.listing().names - box.before if kind == "volume"}
    assert volumes == {f"{box.project}_{name}" for name in VOLUMES}
