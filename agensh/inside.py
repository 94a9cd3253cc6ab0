"""Writing into a folder that somebody else can change, such as a worker's, which a node host as root writes into.

Who may write in a folder can put a link where a folder is expected, so that a path leads elsewhere, at any moment. So
paths are walked from a folder of ours by handle, one name at a time, and no link is followed. What stands in the way of
a folder, a link or a file, is removed; a folder in the way of a file is set aside.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

_TRIES = 20  # of one name, against somebody who puts links there all the time
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder_inside(folder: Path, inside: str = ".") -> Path:
    """Make sure that `folder`/`inside` is a folder, and all above it up to `folder`; return its path.

    The folder that holds `folder` is ours, so that nobody else can put a link there; `folder` may be missing. OSError
    when it cannot be made.
    """
    with _opened(folder, PurePosixPath(inside)):
        return folder / inside


def write_private_inside(folder: Path, inside: str, text: str) -> Path:
    """Write the file `folder`/`inside`, mode 600, whole or not at all, with the folders above it; return its path.

    `folder` as above. OSError when it cannot be written.
    """
    place = PurePosixPath(inside)
    temporary = f".{place.name}.{secrets.token_hex(8)}"
    with _opened(folder, place.parent) as handle:
        try:
            with os.fdopen(os.open(temporary, _NEW_FILE, 0o600, dir_fd=handle), "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            _put(temporary, place.name, handle)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=handle)
            raise
    return folder / place


def remove_inside(folder: Path, inside: str) -> None:
    """Remove the file `folder`/`inside`, where there is one; `folder` as above."""
    place = PurePosixPath(inside)
    with _opened(folder, place.parent) as handle, suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(place.name, dir_fd=handle)


def open_file_inside(folder: Path, inside: str) -> int:
    """Open the file `folder`/`inside` for reading and writing and return its descriptor; `folder` as above.

    OSError when it is missing, or is a link, a device, a pipe or a second name of another file.
    """
    place = PurePosixPath(inside)
    with _opened(folder, place.parent) as handle:
        # A pipe would be waited for.
        descriptor = os.open(place.name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "this is no file of its own", str(folder / place))
    return descriptor


def _put(temporary: str, name: str, handle: int) -> None:
    try:
        os.replace(temporary, name, src_dir_fd=handle, dst_dir_fd=handle)
    except IsADirectoryError:
        os.rename(name, f"{name}.{secrets.token_hex(8)}", src_dir_fd=handle, dst_dir_fd=handle)
        os.replace(temporary, name, src_dir_fd=handle, dst_dir_fd=handle)


@contextmanager
def _opened(folder: Path, inside: PurePosixPath) -> Iterator[int]:
    """Open `folder`/`inside`, made where it is missing."""
    if inside.is_absolute() or ".." in inside.parts:
        raise ValueError(f"{inside} does not lie inside a folder")
    handle = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in (folder.name, *inside.parts):
            below = _open_folder(handle, name)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _open_folder(parent: int, name: str) -> int:
    for _ in range(_TRIES):
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        try:
            return os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
                raise
        with suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(name, dir_fd=parent)
    raise OSError(errno.ELOOP, "somebody keeps putting something else there", name)
