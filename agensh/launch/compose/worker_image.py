"""Builds the image of workers with a real CLI: the task's image with git, curl, certificates and the CLI's package."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from agensh.harnesses import install, package_of
from agensh.launch.compose.engine import build_image
from agensh.spec import TeamSpec


def build_worker_image(name: str, spec: TeamSpec) -> None:
    """Build the image of the workers of `spec`, with the version its options name or the newest tested one.

    UsageError for a harness without a package of its own: its spec names an image in container.image.
    """
    row = package_of(spec.worker.harness)
    binary = install(row.name, spec.worker.options.get("version", ""))
    folder = package_folder(binary)
    with tempfile.TemporaryDirectory(prefix="agensh-image-") as temporary:
        context = Path(temporary)
        shutil.copytree(folder, context / "package", symlinks=True)
        arguments = {
            "TASK": spec.container.task_image,
            "NAME": binary.name,
            "PROGRAM": str(binary.relative_to(folder)),
        }
        build_image(name, "worker.Dockerfile", arguments=arguments, context=context)


def package_folder(binary: Path) -> Path:
    """Return the folder of the npm package that a binary is part of."""
    for folder in binary.parents:
        if folder.parent.name == "node_modules" or (
            folder.parent.name.startswith("@") and folder.parent.parent.name == "node_modules"
        ):
            return folder
    return binary.parent
