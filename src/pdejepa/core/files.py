"""Files that can be trusted: safe writing, hashes, the manifest of a folder, free space, locks.

The safe writer lives in `atomic`, the lock in `locks`; both are offered from here so that a caller needs one
import. The manifest is what makes a folder of data provable:

    manifest.json
      {"format_version": 1,
       "files": {"data/train/train-0000.hdf5": {"sha256": "9c1e...", "bytes": 1048576}, ...}}
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pdejepa.core.atomic import is_disk_full, remove_leftovers, write_aside, write_json, write_text
from pdejepa.core.errors import DataError, ResourceError
from pdejepa.core.locks import lock
from pdejepa.core.text import human_bytes

__all__ = [
    "Damage",
    "Entry",
    "Manifest",
    "check_free_space",
    "is_disk_full",
    "lock",
    "read_json",
    "remove_leftovers",
    "safe_relative_path",
    "sha256_file",
    "write_aside",
    "write_json",
    "write_text",
]

MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = 1
_MAX_MANIFEST_BYTES = 64_000_000
_MAX_JSON_BYTES = 20_000_000
_HEX = frozenset("0123456789abcdef")


def read_json(path: Path) -> Any:
    """The content of a JSON file from anywhere; ValueError says in a few words what is wrong with it."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("not a file")
        with path.open("rb") as stream:
            raw = stream.read(_MAX_JSON_BYTES + 1)
    except OSError as error:
        raise ValueError(error.strerror or "cannot be read") from None
    if len(raw) > _MAX_JSON_BYTES:
        raise ValueError("too large")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("damaged: not JSON") from None


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file in hexadecimal, read in pieces so that its size does not matter."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_free_space(directory: str | os.PathLike[str], n_bytes: float, what: str) -> None:
    """Raise ResourceError if `n_bytes` do not fit into `directory`, which need not exist yet.

    Meant for the start of a long write: an hour of work is best refused in its first second.
    """
    folder = Path(directory).absolute()
    existing = next((p for p in (folder, *folder.parents) if p.exists()), Path("/"))
    free = shutil.disk_usage(existing).free
    if n_bytes > free:
        raise ResourceError(
            f"Not enough space: {what} needs about {human_bytes(n_bytes)}, {human_bytes(free)} free in "
            f"{directory}. Free some space or choose another folder."
        )


def safe_relative_path(text: str) -> PurePosixPath:
    """Return `text` as a path that stays below the folder it is joined to; DataError if it could not."""
    path = PurePosixPath(text)
    bad = not text or path.is_absolute() or "\\" in text or "\0" in text or str(path) != text
    if bad or text == "." or ".." in path.parts or (len(text) > 1 and text[1] == ":"):
        raise DataError(f"The path {text[:200]!r} is not a plain relative path; it is not used.")
    return path


@dataclass(frozen=True)
class Damage:
    """One file that is not what the manifest says, and in which way."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} is damaged ({self.reason})"


@dataclass(frozen=True)
class Entry:
    """What the manifest knows of one file."""

    sha256: str
    bytes: int


@dataclass
class Manifest:
    """Sizes and hashes of the files of a folder, keyed by relative path with forward slashes."""

    files: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def read(cls, root: str | os.PathLike[str]) -> Manifest:
        """Read `root/manifest.json`; DataError if it is missing, unreadable, hostile or too new."""
        path = Path(root) / MANIFEST_NAME
        try:
            with path.open("rb") as stream:
                raw = stream.read(_MAX_MANIFEST_BYTES + 1)
        except FileNotFoundError:
            raise DataError(f"{root} has no {MANIFEST_NAME}: it is not a finished data set.") from None
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}).") from error
        try:
            if len(raw) > _MAX_MANIFEST_BYTES:
                raise ValueError("too large")
            return cls._parse(json.loads(raw), path)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path} is damaged ({error}).") from error

    @classmethod
    def _parse(cls, data: dict[str, Any], path: Path) -> Manifest:
        version = data["format_version"]
        if type(version) is not int or version < 1:
            raise ValueError(f"format version {version!r}")
        if version > MANIFEST_FORMAT:
            raise DataError(
                f"{path} has format {version}; this version of pdejepa reads up to {MANIFEST_FORMAT}. "
                "Install a newer one."
            )
        return cls({name: _parse_entry(name, entry) for name, entry in data["files"].items()})

    def write(self, root: str | os.PathLike[str]) -> None:
        """Write `root/manifest.json`, sorted by path so that equal content gives equal bytes."""
        files = {name: {"sha256": e.sha256, "bytes": e.bytes} for name, e in sorted(self.files.items())}
        write_json(Path(root) / MANIFEST_NAME, {"format_version": MANIFEST_FORMAT, "files": files})

    def add(self, root: str | os.PathLike[str], relative: str) -> Entry:
        """Hash `root/relative` as it is now and remember it."""
        path = Path(root) / safe_relative_path(relative)
        self.files[relative] = Entry(sha256_file(path), path.stat().st_size)
        return self.files[relative]

    def verify(self, root: str | os.PathLike[str], paths: Iterable[str] | None = None) -> list[Damage]:
        """Compare the files (all, or `paths`) with the manifest; an empty list means that all are good.

        Sizes are compared first, so that the common damage of a cut file costs no hashing.
        """
        found = []
        for name in sorted(self.files) if paths is None else paths:
            entry = self.files.get(name)
            reason = "not in the manifest" if entry is None else _check(Path(root), name, entry)
            if reason:
                found.append(Damage(name, reason))
        return found


def _parse_entry(name: str, entry: dict[str, Any]) -> Entry:
    safe_relative_path(name)
    digest, size = entry["sha256"], entry["bytes"]
    if not isinstance(digest, str) or len(digest) != 64 or not set(digest) <= _HEX:
        raise ValueError(f"the hash of {name[:200]!r} is not a SHA-256")
    if type(size) is not int or size < 0:
        raise ValueError(f"the size of {name[:200]!r} is not a number of bytes")
    return Entry(digest, size)


def _check(root: Path, name: str, entry: Entry) -> str:
    """The reason why one file is damaged, or an empty string."""
    path = root / safe_relative_path(name)
    try:
        if not path.resolve().is_relative_to(root.resolve()):
            return "leads outside the folder"
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return "not a file"
        if status.st_size == 0 and entry.bytes > 0:
            return "empty"
        if status.st_size != entry.bytes:
            return "size differs"
        return "" if sha256_file(path) == entry.sha256 else "hash differs"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
