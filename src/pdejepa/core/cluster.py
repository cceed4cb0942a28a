"""Independent tasks on the workers of a dask scheduler, for commands with `--scheduler tcp://HOST:PORT`.

    with connected("tcp://head:8786", folder) as cluster:
        for number, found in cluster.results(task, jobs):   # task(*jobs[number]), in the order in which they end
            ...

Who does what, and that a task of a lost worker goes to another one, is dask's work. A task may therefore run twice,
also while its first run still writes: it must be a pure function of its job, and files must be written aside.
Every task first checks that its worker has our versions and, if a folder is given, that it sees this folder.

dask sends functions and arguments as pickles between client, scheduler and workers; no file is ever made of them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import logging
import pkgutil
import queue
import secrets
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pdejepa import __version__
from pdejepa.core.atomic import write_text
from pdejepa.core.errors import PdejepaError, ResourceError, UsageError
from pdejepa.core.provenance import commit

if TYPE_CHECKING:
    from distributed import Client, Future

T = TypeVar("T")
Say = Callable[[str], object]

EXTRA = 'pip install "pdejepa[cluster]"'
REACH_S = 10.0  # until a scheduler counts as not reachable
LOOK_EVERY_S = 20.0  # whether there are workers, while no task ends
SIGN = ".seen-by-workers-"
PACKAGES = ("torch", "numpy", "h5py")  # on which the values and bytes of results depend


def _to_stderr(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


# ---- what client and workers must have in common ---------------------------------------------------------------------
@functools.cache
def versions() -> dict[str, str]:
    """{package: version} of this process; the commit is empty outside a checkout."""
    found = {"pdejepa": __version__, "commit": commit()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


@dataclass(frozen=True)
class Ground:
    """versions: of the client.  sign: path of a file that a worker must see; empty if it need not see any."""

    versions: dict[str, str]
    sign: str = ""

    def problem(self) -> str:
        """What this process lacks, as the end of a sentence; empty if it lacks nothing."""
        for name, theirs in self.versions.items():
            ours = versions().get(name, "")
            if ours != theirs and (name != "commit" or (ours and theirs)):
                return (
                    f"has {name} {ours or 'not at all'}, this machine {theirs}; results would differ. "
                    "Install the same versions everywhere."
                )
        if self.sign and not Path(self.sign).exists():
            return (
                f"does not see {Path(self.sign).parent}. Give a folder on a file system "
                "that all machines share, under the same path."
            )
        return ""


@dataclass(frozen=True)
class Failure:
    """An exception of a task as plain data: tracebacks do not always survive the way from a worker to a client."""

    kind: type[Exception]
    words: tuple[Any, ...]
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        text = traceback.format_exc()
        if isinstance(error, PdejepaError):
            return cls(type(error), error.args, text)
        return cls(RuntimeError, (f"{type(error).__name__} on {socket.gethostname()}: {error}",), text)

    def error(self) -> Exception:
        found = self.kind(*self.words)
        found.add_note(f"On the worker:\n{self.traceback}")
        return found


def _perform(ground: Ground, task: Callable[..., T], job: tuple[Any, ...]) -> T | Failure:
    """Runs on a worker."""
    try:
        problem = ground.problem()
        if problem:
            raise ResourceError(f"The worker on {socket.gethostname()} {problem}")
        return task(*job)
    except Exception as error:
        return Failure.of(error)


@contextlib.contextmanager
def _sign(folder: Path | None) -> Iterator[str]:
    """The path of a file in the folder that was not there before, while the block runs."""
    if folder is None:
        yield ""
        return
    for old in folder.glob(f"{SIGN}*"):  # of a client that was killed
        old.unlink(missing_ok=True)
    path = folder.resolve() / f"{SIGN}{secrets.token_hex(6)}"
    write_text(path, "")
    try:
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


# ---- tasks -----------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def connected(address: str, folder: Path | None = None, say: Say = _to_stderr) -> Iterator[Cluster]:
    """The workers of the scheduler at `address`.  `folder` must be seen by all, and held by the caller alone."""
    with _quiet(), contextlib.closing(_client(address)) as client:
        _check_installed(client, address)
        with _sign(folder) as sign:
            yield Cluster(client, address, Ground(versions(), sign), say)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """dask logs failures with their tracebacks; we tell them in sentences."""
    with contextlib.suppress(ImportError):  # told by `_client`
        import distributed  # noqa: F401  makes the loggers
    loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _client(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError as error:
        raise ResourceError(f"--scheduler needs the package {error.name}. Get it with: {EXTRA}") from None
    try:
        return Client(address, timeout=REACH_S, set_as_default=False)
    except (ValueError, TypeError) as error:
        raise UsageError(f"--scheduler takes tcp://HOST:PORT; got {address[:100]!r} ({error}).") from None
    except OSError as error:
        raise ResourceError(
            f"No dask scheduler answers at {address} ({_first_line(error)}). Start one with `dask scheduler` and "
            f"workers with `dask worker {address} --nthreads 1`, or leave --scheduler out."
        ) from None


def _check_installed(client: Client, address: str) -> None:
    """Scheduler and workers that cannot load this module would end, or wait forever, instead of saying so."""
    name = f"{__name__}:{_perform.__name__}"
    try:
        client.run_on_scheduler(pkgutil.resolve_name, name)
        client.run(pkgutil.resolve_name, name)
    except Exception as error:
        raise ResourceError(
            f"The scheduler or a worker at {address} cannot load pdejepa {__version__} ({_first_line(error)}). "
            "Install the same versions everywhere."
        ) from None


@dataclass(frozen=True)
class Cluster:
    """A connection to a scheduler."""

    client: Client
    address: str
    ground: Ground
    say: Say

    def results(self, task: Callable[..., T], jobs: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, T]]:
        """(number, task(*jobs[number])) of every job, in the order in which they end.

        The first failure of a task is raised here.  What has not begun then is not begun any more.
        """
        ended: queue.Queue[Future[Any]] = queue.Queue()
        numbers: dict[object, int] = {}
        futures = []
        try:
            for number, job in enumerate(jobs):
                # Names are never used again: a repeated task runs again, instead of being taken from before.
                future = self.client.submit(_perform, self.ground, task, job, pure=False)
                numbers[future.key] = number
                futures.append(future)
                future.add_done_callback(ended.put)
            for _ in jobs:
                future = self._next(ended)
                yield numbers[future.key], self._result(future)
        finally:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                self.client.cancel([future for future in futures if not future.done()])

    def _next(self, ended: queue.Queue[Future[Any]]) -> Future[Any]:
        """The next that ends.  Without workers it waits for some, and says so once."""
        was_told = False
        while True:
            try:
                return ended.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                if not was_told and not self.client.scheduler_info()["workers"]:
                    self.say(
                        f"The scheduler at {self.address} has no workers. Waiting for one "
                        f"(`dask worker {self.address} --nthreads 1`); Ctrl-C leaves."
                    )
                    was_told = True

    def _result(self, future: Future[Any]) -> Any:
        try:
            found = future.result()
        except Exception as error:
            raise self._explained(error) from error
        if isinstance(found, Failure):
            raise found.error()
        return found

    def _explained(self, error: Exception) -> Exception:
        """Failures of the cluster itself, as sentences."""
        from distributed import CancelledError, KilledWorker

        again = "What was finished is kept: run the same command to continue."
        if isinstance(error, KilledWorker):
            return ResourceError(
                "Four workers were lost over one task, for lack of memory (`dask worker --memory-limit`) or because "
                f"pdejepa is not installed there. {again}"
            )
        if isinstance(error, CancelledError | OSError):  # those of tasks come as Failure
            return ResourceError(f"The scheduler at {self.address} went away. {again}")
        return error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
