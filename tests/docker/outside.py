"""A host outside the box, as the internet is: behind a router, with no way back to the box's own networks.

It is a network namespace of this machine, joined by a cable, with a web server in it. What the box translates to its
own address is answered; what arrives with an address of a Docker network is not, for nobody there knows a way to it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

BOX, HOST = "198.51.100.1", "198.51.100.2"
"""Of TEST-NET-2 (RFC 5737): nobody has these."""
PORT = 8000
NAMESPACE, CABLE, PLUG = "agensh-outside", "agensh-out0", "agensh-out1"
START = 60.0  # seconds


@contextmanager
def outside() -> Iterator[str]:
    """Yield the URL of a server on a host outside the box."""
    _clear()
    _ip("netns", "add", NAMESPACE)
    try:
        _ip("link", "add", CABLE, "type", "veth", "peer", "name", PLUG, "netns", NAMESPACE)
        _ip("address", "add", f"{BOX}/30", "dev", CABLE)
        _ip("link", "set", CABLE, "up")
        _ip("-n", NAMESPACE, "address", "add", f"{HOST}/30", "dev", PLUG)
        _ip("-n", NAMESPACE, "link", "set", PLUG, "up")
        server = [sys.executable, "-m", "http.server", str(PORT), "--directory", "/usr/share/doc"]
        url = f"http://{HOST}:{PORT}/"
        with subprocess.Popen(
            ["ip", "netns", "exec", NAMESPACE, *server], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                _wait(url)
                yield url
            finally:
                process.kill()
    finally:
        _clear()


def _wait(url: str) -> None:
    end = time.monotonic() + START
    while subprocess.run(["curl", "-sf", "-m", "2", "-o", "/dev/null", url], check=False).returncode:
        assert time.monotonic() < end, f"no server at {url}"
        time.sleep(0.1)


def _clear() -> None:
    for command in (("netns", "delete", NAMESPACE), ("link", "delete", CABLE)):
        subprocess.run(["ip", *command], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
