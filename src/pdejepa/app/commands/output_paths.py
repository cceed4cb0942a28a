"""Places that commands write to, checked before any work is done.

    check_file("--out", out, "Pictures", FORMATS)        a name that can become a file
    check_folder("--out", folder)                        a folder that is there and can be written to, or can be made
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from pdejepa.core.errors import ResourceError, UsageError


def check_file(option: str, path: Path | None, what: str = "", suffixes: Collection[str] = ()) -> None:
    """Refuse a name without one of the suffixes, of a folder, or in a place that cannot be written to."""
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise UsageError(f"{what} are written as {', '.join(suffixes)}; got {path.name!r}. Give {option} such a name.")
    if os.path.isdir(path):
        raise UsageError(f"{option} must name a file; {path} is a folder.")
    check_folder(option, path.parent)


def check_folder(option: str, path: Path) -> None:
    """Refuse a folder that cannot be made, or written to."""
    there = next((p for p in (path, *path.parents) if os.path.exists(p)), Path())
    if not there.is_dir():
        raise UsageError(f"{option} needs a folder where {there} is a file; choose another name.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ResourceError(
            f"{option}: the folder {there} cannot be written to. Choose another one, or change its permissions."
        )
