"""What a worker's container keeps from it: the reference, the other networks, the rights of others, their secrets.

Everything that must fail for the worker is seen to work for somebody else, or on something else, in the same way.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Network
from pathlib import Path
from threading import Thread

import pytest

from tests.docker import reading
from tests.docker.conftest import GATEWAY, Box, make_box, until
from tests.docker.outside import outside

pytestmark = pytest.mark.timeout(900)
CELL = "dockercell"
WORKER, PEER = f"{CELL}-worker1", f"{CELL}-worker2"
REFERENCE = "/opt/pbench/executable"
STATUS = "curl -sS -m 60 -o /dev/null -w '%{http_code}' "
NO_ANSWER = STATUS.replace("-m 60", "-m 5")
"""Where none is expected; what answers does so in milliseconds."""
CONNECT = "python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)' "
HIDDEN = {"mysql": 3306, "postgres": 5432, "board": 8660}
"""What no worker reaches, and where it listens."""


def at_once(probe: Callable[[str], None], places: Iterable[str]) -> None:
    """Call `probe` with all of the places side by side: each waits for what does not come."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(probe, places))


@pytest.fixture(scope="module")
def cell(images: dict[str, str], reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A team of two whose time does not run out, with its first worker at work."""
    made = make_box(images, reference, tmp_path_factory.mktemp("cell"), CELL)
    box = next(made)
    box.spec.write_text(box.spec.read_text() + GATEWAY)
    try:
        box.agensh("up", str(box.spec), "--workers", "2", "--speed", "1")
        until(lambda: box.in_worker(WORKER, "pgrep -f adapters.scripted")[0] == 0, "the first worker works")
        yield box
    finally:
        made.close()


@pytest.fixture
def folder(cell: Box) -> Iterator[Path]:
    """A folder of the worker's, in which programs can be run."""
    made = cell.run().worker(WORKER) / "probe"
    made.mkdir()
    os.chown(made, 10_000, 10_000)
    yield made
    shutil.rmtree(made)


def test_the_reference_can_be_run_and_not_be_read(cell: Box, folder: Path, reference: Path) -> None:
    assert cell.in_worker(WORKER, f"{REFERENCE} seq 3") == (0, "1\n2\n3\n")
    assert cell.in_worker(WORKER, f"stat -c '%u:%g %a' {REFERENCE}") == (0, "0:0 111\n")
    shutil.copy(reading.__file__, folder / "reading.py")
    copy = folder / "readable"
    shutil.copy(reference, copy)
    for path in folder.iterdir():
        os.chown(path, 10_000, 10_000)

    def attempts(program: str, name: str) -> dict[str, int | str]:
        script = f"mkdir {folder}/{name} && python3 {folder}/reading.py {program} {folder}/{name}"
        code, said = cell.in_worker(WORKER, script)
        assert code == 0, said
        found: dict[str, int | str] = json.loads(said.splitlines()[-1])
        return found

    read = attempts(str(copy), "copy")
    # The engine's own filter of system calls takes one way from everybody (of Docker 20.10; newer ones do not).
    assert {name for name, got in read.items() if not isinstance(got, int)} <= {"process_vm_readv"}, read
    refused = attempts(REFERENCE, "reference")
    assert refused.keys() == read.keys()
    assert [name for name, got in refused.items() if isinstance(got, int)] == [], refused


def test_no_library_is_loaded_into_the_reference(cell: Box, folder: Path) -> None:
    source = '#include <unistd.h>\n__attribute__((constructor)) void in(void) { write(1, "inside\\n", 7); }\n'
    (folder / "in.c").write_text(source)
    build = f"cd {folder} && gcc -shared -fPIC -o in.so in.c && export LD_PRELOAD={folder}/in.so"
    assert cell.in_worker(WORKER, f"{build} && /usr/bin/true") == (0, "inside\n")
    # The task's reference is static. One that is not runs with whatever libraries a worker names.
    assert cell.in_worker(WORKER, f"{build} && {REFERENCE} hold </dev/null") == (0, "held\n")


def test_a_worker_reaches_its_services(cell: Box) -> None:
    for url in (
        "http://gitea:3000/api/v1/version",
        "http://mattermost:8065/api/v4/system/ping",
        "http://node:8700/healthz",
        "http://gateway:8670/healthz",
    ):
        assert cell.in_worker(WORKER, STATUS + url) == (0, "200"), url


@pytest.mark.parametrize("service", HIDDEN)
def test_a_worker_does_not_reach(cell: Box, service: str) -> None:
    networks = cell.container(service).attrs["NetworkSettings"]["Networks"].values()

    def probe(host: str) -> None:
        connect = f"{CONNECT} {host} {HIDDEN[service]}"
        assert cell.inside("node", connect) == (0, ""), host
        code, said = cell.in_worker(WORKER, connect)
        assert code == 1, (host, said)
        assert any(
            word in said
            for word in ("timed out", "No route to host", "Network is unreachable", "name resolution", "not known")
        ), said

    at_once(probe, (service, *(network["IPAddress"] for network in networks)))


def test_a_worker_does_not_reach_the_internet_and_the_gateway_does(cell: Box) -> None:
    with outside() as url:
        assert cell.inside("gateway", STATUS + url) == (0, "200")

        def probe(closed: str) -> None:
            user = "10000:10000" if closed == WORKER else ""
            assert cell.inside(closed, NO_ANSWER + url, user)[0] in {7, 28}, closed

        at_once(probe, ("mysql", "board", "node", WORKER))


def test_a_worker_does_not_reach_the_box(cell: Box) -> None:
    networks = {str(network.name): network for network in cell.client.networks.list(names=[f"{CELL}_", "bridge"])}
    subnets = {name: IPv4Network(each.attrs["IPAM"]["Config"][0]["Subnet"]) for name, each in networks.items()}
    addresses = {name: str(next(subnet.hosts())) for name, subnet in subnets.items()}
    assert addresses.keys() == {f"{CELL}_services", f"{CELL}_team", f"{CELL}_egress", "bridge"}
    with ThreadingHTTPServer(("0.0.0.0", 0), BaseHTTPRequestHandler) as box:
        Thread(target=box.serve_forever, daemon=True).start()
        try:
            # 501: that server knows no GET.
            url = f"http://{addresses[f'{CELL}_egress']}:{box.server_port}/"
            assert cell.inside("gateway", STATUS + url) == (0, "501")

            def probe(name: str) -> None:
                url = f"http://{addresses[name]}:{box.server_port}/"
                assert cell.in_worker(WORKER, NO_ANSWER + url)[0] in {7, 28}, name

            at_once(probe, addresses)
        finally:
            box.shutdown()


def test_a_worker_administers_nothing(cell: Box) -> None:
    secrets = cell.run().secrets()
    own = secrets.workers[WORKER]
    admin = f'{STATUS} -H "Authorization: Bearer {secrets.board_admin}" http://board:8660/metrics'
    assert cell.inside("node", admin) == (0, "200")
    mcp = f'-H "Authorization: Bearer {own.mcp_token}"'
    key = f'-H "Authorization: Bearer {own.gateway_key}"'
    forge = f'-H "Authorization: token {own.forge_token}"'
    assert cell.in_worker(WORKER, f"{STATUS} {key} http://gateway:8670/key") == (0, "200")
    assert cell.in_worker(WORKER, f"{STATUS} {forge} http://gitea:3000/api/v1/user") == (0, "200")
    for arguments, answer in {
        "http://node:8700/status": "401",
        f"{mcp} http://node:8700/status": "403",
        f"{mcp} http://node:8700/mcp/{PEER}": "403",
        f"{mcp} http://node:8700/pending/{PEER}": "403",
        # What the board answers its administrator is not behind another's door either.
        f"{mcp} http://node:8700/tokens": "404",
        f"{mcp} http://node:8700/metrics": "404",
        f"{mcp} http://node:8700/board/{CELL}": "404",
        f"{key} http://gateway:8670/usage": "403",
        f"{key} -X POST -d '{{}}' http://gateway:8670/keys": "403",
        f"{key} -X DELETE http://gateway:8670/keys/{PEER}": "403",
        f"{key} http://gateway:8670/tokens": "404",
        f"{key} http://gateway:8670/metrics": "404",
        # Nor does one of them pass a request on as a proxy.
        f"{mcp} -x http://node:8700 http://board:8660/metrics": "404",
        f"{key} -x http://gateway:8670 http://board:8660/metrics": "404",
        f"{forge} http://gitea:3000/api/v1/admin/users": "403",
    }.items():
        assert cell.in_worker(WORKER, STATUS + arguments) == (0, answer), arguments


def test_services_are_on_loopback_only_and_no_secret_is_where_a_worker_looks(cell: Box) -> None:
    run = cell.run()
    secrets = run.secrets()
    for service in ("mysql", "postgres", "gitea", "mattermost", "board", "gateway", "node"):
        ports = cell.container(service).attrs["NetworkSettings"]["Ports"] or {}
        for bindings in ports.values():
            assert all(binding["HostIp"] == "127.0.0.1" for binding in bindings or [])
    for name in ("secrets", "secrets.json"):
        assert (run.path / name).stat().st_mode & 0o077 == 0
    values = (run.path / "compose.env").read_text() + json.dumps(cell.container(WORKER).attrs)
    administrators = (secrets.board_admin, secrets.node_admin, secrets.gateway_admin, secrets.forge_admin.password)
    for secret in (secrets.board_db, *administrators):
        assert secret
        assert secret not in values


def test_a_worker_has_its_own_tokens_and_no_peers(cell: Box) -> None:
    run = cell.run()
    secrets = run.secrets()
    own, peer = secrets.workers[WORKER], secrets.workers[PEER]
    token = f"{run.worker(WORKER)}/home/.config/agensh/forge-token"
    user = f'{STATUS} -H "Authorization: token $(cat {token})" http://gitea:3000/api/v1/user'
    assert cell.in_worker(WORKER, user) == (0, "200")
    found = cell.in_worker(WORKER, "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")[1]
    assert own.mcp_token in found
    for secret in (peer.mcp_token, peer.forge_token, peer.gateway_key, secrets.board_admin, secrets.node_admin):
        assert secret
        assert secret not in found
    search = "grep -rlaF {} / --exclude-dir=proc --exclude-dir=sys 2>/dev/null"
    assert token in cell.in_worker(WORKER, search.format(own.forge_token))[1]
    assert cell.in_worker(WORKER, search.format(peer.forge_token))[1] == ""
    # Of the run it sees its own folder, and what its CLI reads.
    seen = {"": ["task", "workers"], "/task": ["playbook"], "/workers": [WORKER]}
    for place, names in seen.items():
        assert cell.in_worker(WORKER, f"ls -A {run.path}{place}")[1].split() == names, place


def test_a_worker_is_confined(cell: Box) -> None:
    host = cell.container(WORKER).attrs["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["ReadonlyRootfs"]
    assert "no-new-privileges" in host["SecurityOpt"]
    assert host["Memory"] == 64 * 2**30
    assert host["PidsLimit"] == 4096
    assert not host["Privileged"]
    said = cell.in_worker(WORKER, "cat /proc/self/status")[1]
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in said.splitlines())}
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0, kind
    assert (status["Uid"].split()[0], status["NoNewPrivs"], status["Seccomp"]) == ("10000", "1", "2")
    for attempt in ("unshare -r true", "mount -t tmpfs none /mnt", "touch /etc/new", "ulimit -c 1", "chroot / true"):
        assert cell.in_worker(WORKER, attempt)[0] != 0, attempt
    find = "find / -name 'docker*.sock' -not -path '/proc/*' 2>/dev/null"
    assert "/docker.sock" in cell.inside("node", find)[1]
    assert cell.in_worker(WORKER, find)[1] == ""
