"""Containers that are gone between two answers of the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import docker
import pytest

from adapters.container_runtime import remove_containers
from agensh.launch.compose.live import find_service, has_remains


class Forgetful(BaseHTTPRequestHandler):
    """An engine that lists a container, and when it is asked for it knows none any more; it has nothing else."""

    def do_GET(self) -> None:
        if self.path.partition("?")[0].endswith("/containers/json"):
            self._answer(200, [{"Id": "c0ffee"}])
        elif self.path.partition("?")[0].endswith("/c0ffee/json"):
            self._answer(404, {"message": "No such container: c0ffee"})
        else:
            self._answer(200, {"Volumes": None} if "/volumes" in self.path else [])

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def client() -> Iterator[docker.DockerClient]:
    """A client of that engine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Forgetful) as engine:
        thread = Thread(target=engine.serve_forever, daemon=True)
        thread.start()
        made = docker.DockerClient(base_url=f"http://127.0.0.1:{engine.server_port}", version="1.41")
        yield made
        made.close()
        engine.shutdown()
        thread.join()


def test_a_container_that_goes_while_it_is_looked_for_is_none(client: docker.DockerClient) -> None:
    assert find_service(client, "demo", "node") is None
    assert not has_remains(client, "demo")
    assert remove_containers(client, "demo") == 0
