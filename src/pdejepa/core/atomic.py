"""Write aside, then rename: a file is either the old one or the complete new one, never something between.

    DIR/
      train-0000.hdf5                                what readers see
      .train-0000.hdf5.tmp-4121-9c1e-5f0a33d2        what a writer is still working on

The temporary lies in the same folder, because a rename is atomic only within one file system, and starts
with a dot and ends without a suffix, so that a glob for `*.hdf5` never meets it. Its last part tells pid,
host and process of the writer; `remove_leftovers` uses it to remove only what nobody is writing any more.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pdejepa.core.errors import PdejepaError, ResourceError

JSON_WIDTH = 120
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_LEFTOVER = re.compile(
    r"^\..*\.tmp-(?P<pid>\d+)-(?P<host>[0-9a-f]{4})-(?P<process>[0-9a-f]{8})\w*$", re.DOTALL
)


@contextlib.contextmanager
def write_aside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path; when the block ends well, what was written there becomes `path`.

    Missing parent folders are made. If the block fails, only the temporary is removed and `path` stays as it
    was. A full disk becomes a ResourceError that says so. Writers that infer a format from the suffix
    (pictures, for example) must be told the format, since the temporary has none.
    """
    target = Path(path)
    temporary = target.with_name(_temporary_name(target.name))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _fsync(temporary)
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not isinstance(error, PdejepaError) and is_disk_full(error):
            raise ResourceError(
                f"Disk full while writing {target}; what was there before is intact. "
                "Free some space, then run the same command again."
            ) from error
        raise
    _fsync_directory(target.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace `path` by `text` (UTF-8, line ends as given)."""
    with write_aside(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Replace `path` by `data` as indented JSON; NaN and infinity are refused because JSON has neither."""
    write_text(path, _laid_out(json.loads(_flat(data))) + "\n")


def _flat(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False)


def _laid_out(data: Any, depth: int = 0, taken: int = 0) -> str:
    """JSON in which everything that fits into a line has one line; `taken`: letters before it in its line."""
    flat = _flat(data)
    if not isinstance(data, dict | list) or depth + taken + len(flat) <= JSON_WIDTH:
        return flat
    keys = [f"{_flat(key)}: " for key in data] if isinstance(data, dict) else [""] * len(data)
    values = data.values() if isinstance(data, dict) else data
    inside = ",\n".join(
        f"{' ' * (depth + 1)}{key}{_laid_out(value, depth + 1, len(key))}"
        for key, value in zip(keys, values, strict=True)
    )
    first, last = "{}" if isinstance(data, dict) else "[]"
    return f"{first}\n{inside}\n{' ' * depth}{last}"


def is_disk_full(error: BaseException | None) -> bool:
    """Whether `error`, or an error behind it, means that the disk or the quota is exhausted.

    HDF5 reports a full disk as text inside an error of its own, so the words count as well as the number.
    """
    seen = 0
    while error is not None and seen < 20:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if isinstance(error, OSError | RuntimeError) and any(os.strerror(n) in str(error) for n in _FULL):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


def without_temporary(path: str) -> str:
    """The path that somebody asked for, where an error names the temporary beside it."""
    return re.sub(r"(^|/)\.([^/]+)\.tmp-[\w-]+", r"\1\2", path)


def remove_leftovers(directory: str | os.PathLike[str], alone: bool = True) -> list[Path]:
    """Remove temporaries in `directory` (not below it) whose writers are gone; return what was removed.

    Call it while holding the lock of the directory. A temporary of a live process on this machine is always
    kept. Whether a writer on another machine lives cannot be seen from here: its temporary is removed only
    if `alone` says that we hold the whole directory, and kept when other slices may be at work.
    """
    removed = []
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(os.scandir(directory), key=lambda e: e.name):
            match = _LEFTOVER.match(entry.name)
            if match and entry.is_file(follow_symlinks=False) and _is_stale(match, alone):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
                    removed.append(Path(entry.path))
    return removed


def is_alive(pid: int) -> bool:
    """Whether a process with this number runs on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _is_stale(match: re.Match[str], alone: bool) -> bool:
    if match["host"] != _host_tag():
        return alone
    pid = int(match["pid"])
    if pid == os.getpid():
        # In a restarted container we may well have the number of our dead predecessor.
        return match["process"] != _process_tag(pid)
    return not is_alive(pid)


def _temporary_name(name: str) -> str:
    """A name no other writer uses. Long names are cut so that the result fits into 255 bytes."""
    short = name.encode("utf-8", "surrogateescape")[:180].decode("utf-8", "ignore")
    pid = os.getpid()
    return f".{short}.tmp-{pid}-{_host_tag()}-{_process_tag(pid)}{secrets.token_hex(4)}"


@functools.cache
def _host_tag() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:4]


@functools.cache
def _process_tag(pid: int) -> str:
    """Random, fixed for the life of a process; keyed by pid so that a fork gets its own."""
    return secrets.token_hex(4)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync_directory(directory: Path) -> None:
    """Make the rename itself durable. Some network file systems cannot, which must not fail it."""
    with contextlib.suppress(OSError):
        _fsync(directory)
