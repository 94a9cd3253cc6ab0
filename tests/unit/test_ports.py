"""Ports that are given stay free until their service listens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agensh.launch import ports
from agensh.launch.ports import FIRST, HOST, free_port, free_ports


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own folder for temporary files, with a counter of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def counter(folder: Path) -> Path:
    return folder / f"agensh-ports-{os.getuid()}"


def test_the_kernel_gives_none_of_them_to_others() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found = free_ports(50)
    assert len(set(found)) == 50
    assert all(FIRST <= port < low for port in found)


@pytest.mark.parametrize(
    ("kernels", "end"),
    [
        ("32768\t60999\n", 30_000),
        ("25000 60999", 25_000),
        ("1024 65535", 30_000),
        ("20001 65535", 30_000),
        ("?", 30_000),
        ("", 30_000),
    ],
)
def test_the_range_ends_below_the_kernels(
    kernels: str, end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(kernels)
    monkeypatch.setattr(ports, "_KERNELS", tmp_path / "range")
    monkeypatch.setattr(ports, "_is_free", lambda _: True)
    counter(tmp_path).write_text(str(end - FIRST - 2))
    first, second = free_ports(2)
    assert (first, second) == (end - 1, FIRST)


def test_processes_that_choose_at_once_choose_different_ones(folder: Path) -> None:
    program = "from agensh.launch.ports import free_port; print(*(free_port() for _ in range(100)))"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program], env=os.environ | {"TMPDIR": str(folder)}, stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    found = [port for process in started for port in process.communicate()[0].split()]
    assert len(found) == 400
    assert len(set(found)) == 400


def test_a_port_that_is_taken_is_passed_over(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, free_port()))
        before = counter(folder)
        before.write_text(str(taken.getsockname()[1] - FIRST - 1))
        assert taken.getsockname()[1] not in free_ports(2)


def test_without_as_many_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "END", FIRST + 3)
    with pytest.raises(OSError, match=f"of the ports from {FIRST} on, [0-3] are free, and 4 are wanted"):
        free_ports(4)


@pytest.mark.parametrize("content", ["", "no number", "99999999"])
def test_a_counter_that_cannot_be_read_begins_anew(content: str, folder: Path) -> None:
    counter(folder).write_text(content)
    assert len({free_port() for _ in range(20)}) == 20


def test_a_counter_of_somebody_else_is_not_used(folder: Path) -> None:
    other = folder / "other"
    other.write_text("7")
    counter(folder).symlink_to(other)
    assert free_port() >= FIRST
    assert other.read_text() == "7"
    counter(folder).unlink()
    os.mkfifo(counter(folder))
    assert free_port() >= FIRST
