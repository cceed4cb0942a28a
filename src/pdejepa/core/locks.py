"""One writer per output folder, enforced by the kernel.

    DIR/.lock             whole-folder writers hold it exclusively, slice writers hold it shared
    DIR/.lock.3-of-8      the writer of slice 3 holds it exclusively

So slices work beside each other, two writers of one slice exclude each other, and a writer of the whole
folder excludes everybody. The locks are `flock` locks: they vanish with the process, however it ends, so a
lock can never be left behind. The files stay; their content only serves the message to whoever has to wait.
Slices of different counts (1 of 2 beside 1 of 4) do not exclude each other.

Network file systems differ in what they promise for `flock`; where it is not offered at all we say so and go
on, because every single file is still written aside and renamed.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pdejepa.core.atomic import is_alive, is_disk_full
from pdejepa.core.errors import ResourceError

Say = Callable[[str], object]

_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


def _to_stderr(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


@contextlib.contextmanager
def lock(
    directory: str | os.PathLike[str],
    slice_: tuple[int, int] | None = None,
    wait: bool = True,
    say: Say = _to_stderr,
    option: str = "",
) -> Iterator[None]:
    """Hold `directory` (made if missing) for writing, wholly or only slice `(i, n)` of it.

    If someone else holds it: say who, once, and wait; or with `wait=False` raise ResourceError. `option` is the
    one by which a user decides between the two, if there is one. Do not take the same lock twice in one process:
    the second would wait for the first.
    """
    folder = Path(directory)
    whole = folder / ".lock"
    with contextlib.ExitStack() as stack:
        if slice_ is None:
            stack.enter_context(_held(whole, fcntl.LOCK_EX, folder, wait, say, option))
        else:
            own = folder / f".lock.{slice_[0]}-of-{slice_[1]}"
            stack.enter_context(_held(whole, fcntl.LOCK_SH, folder, wait, say, option))
            stack.enter_context(_held(own, fcntl.LOCK_EX, folder, wait, say, option))
        yield


def remove_bare(directory: Path) -> None:
    """Remove a folder that holds nothing but our locks, after a refusal; call it while holding them."""
    with contextlib.suppress(OSError):
        entries = list(directory.iterdir())
        if all(entry.name == ".lock" or entry.name.startswith(".lock.") for entry in entries):
            for entry in entries:
                entry.unlink()
            directory.rmdir()


@dataclass(frozen=True)
class _Holder:
    """Who wrote a lock file, as far as can be read from it."""

    pid: int
    host: str
    since: datetime.datetime

    @classmethod
    def here(cls) -> _Holder:
        return cls(os.getpid(), socket.gethostname(), datetime.datetime.now().astimezone())

    @classmethod
    def read(cls, path: Path) -> _Holder | None:
        try:
            data = json.loads(path.read_bytes()[:4096])
            since = datetime.datetime.fromisoformat(data["since"])
            return cls(int(data["pid"]), str(data["host"])[:100], since.astimezone())
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None

    def to_bytes(self) -> bytes:
        data = {"pid": self.pid, "host": self.host, "since": self.since.isoformat(timespec="seconds")}
        return json.dumps(data).encode()

    def may_live(self) -> bool:
        return self.host != socket.gethostname() or is_alive(self.pid)

    def __str__(self) -> str:
        today = datetime.datetime.now().astimezone().date() == self.since.date()
        when = f"{self.since:%H:%M}" if today else f"{self.since:%Y-%m-%d %H:%M}"
        return f"Another process (pid {self.pid}, host {self.host}, since {when})"


@contextlib.contextmanager
def _held(path: Path, kind: int, folder: Path, wait: bool, say: Say, option: str) -> Iterator[None]:
    """Hold one lock file. Closing the descriptor, by us or by the kernel, lets go of it."""
    descriptor = _open(path, folder)
    try:
        _acquire(descriptor, kind, path, folder, wait, say, option)
        if kind == fcntl.LOCK_EX:
            _sign(descriptor, _Holder.here().to_bytes())
        try:
            yield
        finally:
            if kind == fcntl.LOCK_EX:
                _sign(descriptor, b"")
    finally:
        os.close(descriptor)


def _open(path: Path, folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if is_disk_full(error):
            raise ResourceError(f"Disk full: cannot make a lock in {folder}. Free some space.") from error
        raise ResourceError(
            f"Cannot write in {folder} ({error.strerror}). Choose another folder or change its permissions."
        ) from error


def _acquire(descriptor: int, kind: int, path: Path, folder: Path, wait: bool, say: Say, option: str) -> None:
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            who = str(_find_holder(path, folder) or "Another process")
            if not wait:
                other = f", or without {option} to wait for it" if option else ""
                raise ResourceError(f"{who} is writing {folder}. Try again later{other}.") from None
            other = f"use {option} to leave instead" if option else "Ctrl-C leaves"
            say(f"{who} is writing {folder}. Waiting; {other}.")
            fcntl.flock(descriptor, kind)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        say(f"File locks do not work in {folder}; make sure that no other process writes there.")


def _find_holder(path: Path, folder: Path) -> _Holder | None:
    """Whoever most likely blocks `path`: its signature, or for the whole folder one of the slices."""
    candidates = [path, *sorted(folder.glob(".lock.*-of-*"))] if path.name == ".lock" else [path]
    holders = (_Holder.read(candidate) for candidate in candidates)
    return next((holder for holder in holders if holder is not None and holder.may_live()), None)


def _sign(descriptor: int, content: bytes) -> None:
    """Replace the content. It is only for messages, so a full disk must not break the lock."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)
