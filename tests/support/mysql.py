"""The real MySQL for tests, which Debian's stable suites do not have: from its unstable one, in a container.

`AGENSH_TEST_MYSQL=real` makes every fixture that hands out a MariaDB hand out this instead (`make test-mysql`).
`python -m tests.support.mysql` makes the image when it is missing and prints the variable that names it for
`agensh up`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agensh.launch.ports import free_port
from tests.support.mariadb import MariaDb

SUITE = "sid"
PACKAGES = "mysql-server-core,mysql-client-core"
START = Path(__file__).with_name("mysql-start")
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHANGES = (f"ENV {_PATH}", "VOLUME /var/lib/mysql", 'ENTRYPOINT ["mysql-start"]')
_PASSWORD = "a-password"  # with an empty one nothing of the login would be tried


class MySql(MariaDb):
    """A server in a container on the machine's own network: started, killed and started again on one port."""

    program = "mysqld"

    def __init__(self, image: str, options: Sequence[str]) -> None:
        self.port = free_port()
        self.password = _PASSWORD
        self._name = f"agensh-test-mysql-{uuid.uuid4().hex[:12]}"
        _run(
            "docker",
            "create",
            "--pull=never",
            f"--name={self._name}",
            "--network=host",
            f"--env=MYSQL_ROOT_PASSWORD={_PASSWORD}",
            image,
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--mysqlx=OFF",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--performance-schema=OFF",
            "--innodb-buffer-pool-size=32M",
            "--innodb-redo-log-capacity=32M",
            "--innodb-flush-method=nosync",  # no test cuts the power, and a killed server's writes are in the system
            *options,
        )

    @property
    def pid(self) -> int:
        """Id of its process."""
        return int(_run("docker", "inspect", "--format={{.State.Pid}}", self._name))

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._runs():
            _run("docker", "kill", self._name)
            _run("docker", "wait", self._name)

    def stop(self) -> None:
        """End it and remove what it has; its data go with it, so it need not write them down first."""
        _run("docker", "rm", "--force", "--volumes", self._name)

    def _launch(self) -> None:
        _run("docker", "start", self._name)

    def _runs(self) -> bool:
        return _run("docker", "inspect", "--format={{.State.Running}}", self._name).strip() == "true"

    def _words(self) -> str:
        return _run("docker", "logs", "--tail=40", self._name)


@contextmanager
def running_mysql(*options: str) -> Iterator[MySql]:
    """Start a server and stop it at the end of the block; `options` go after the small ones of tests."""
    database = MySql(image(), options)
    try:
        database.start()
        ((version,),) = database.run("SELECT VERSION()")
        assert "MariaDB" not in str(version), version
        yield database
    finally:
        database.stop()


def image() -> str:
    """Return the name of the image, which is made when it is missing (as root, by debootstrap)."""
    source = hashlib.sha256("\0".join((SUITE, PACKAGES, *_CHANGES, START.read_text())).encode())
    name = f"agensh-test/mysql-real:{source.hexdigest()[:12]}"
    if shutil.which("docker") is None or not _works("docker", "info"):
        raise RuntimeError("the real MySQL runs in a container: install Docker and start its engine")
    if _works("docker", "image", "inspect", name):
        return name
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise RuntimeError(f"{name} is made by root with debootstrap (Debian package debootstrap); it is missing here")
    with tempfile.TemporaryDirectory(prefix="agensh-mysql-") as temporary:
        tree = Path(temporary) / "tree"
        _run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(tree))
        _run("chroot", str(tree), "useradd", "--system", "--home-dir=/nonexistent", "--shell=/bin/false", "mysql")
        for each in (*(tree / "var/lib/mysql").glob("*"), *(tree / "var/cache/apt/archives").glob("*.deb")):
            each.unlink()
        shutil.copy(START, tree / "usr/local/bin")
        with subprocess.Popen(["tar", "-C", str(tree), "-c", "."], stdout=subprocess.PIPE) as archive:
            changes = [f"--change={change}" for change in _CHANGES]
            subprocess.run(
                ["docker", "import", *changes, "-", name], stdin=archive.stdout, stdout=subprocess.DEVNULL, check=True
            )
    return name


def _works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(*command: str) -> str:
    """Run a program and return what it said; RuntimeError with its words when it failed."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:2])} failed ({done.returncode}): {done.stdout[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    try:
        sys.stdout.write(f"AGENSH_IMAGE_MYSQL={image()}\n")
    except RuntimeError as error:
        sys.exit(str(error))
