"""Look at untrusted HDF5 files in a process of their own.

The HDF5 library can crash, loop for ever or ask for absurd memory when a file's internal tables are damaged; a few
wrong bytes are enough.  So files are first inspected by a helper process with a time and a memory limit.  If a file
brings it down, that is a finding about the file, and a new helper looks at the next one.

    with Inspector() as inspector:
        problems, layout = inspector.inspect("data/train/a.hdf5", "a.hdf5")     structure
        faults = inspector.scan("data/train/a.hdf5", "a.hdf5")                  all values

The helper is this module run by the same interpreter; requests and answers are lines of JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from pdejepa.core.errors import DataError
from pdejepa.data.audit.frame_faults import FrameFaults, blocks
from pdejepa.data.well.pieces import Layout
from pdejepa.data.well.safety import FileFault
from pdejepa.data.well.shard import ShardFile

TIME_LIMIT_S = 60.0
MEMORY_LIMIT = 8 * 2**30  # address space of the helper
MAX_ANSWER = 64_000_000
SLOWEST_DISK = 5e6  # bytes per second that a scan may count on
ROW_LISTS = ("not_finite", "constant", "repeated")
READY = b"ready\n"


class Inspector:
    """A helper process that is started when first needed and replaced when a file has brought it down."""

    def __init__(self, time_limit: float = TIME_LIMIT_S) -> None:
        self.time_limit = time_limit
        self._helper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Inspector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def inspect(self, path: str | os.PathLike[str], name: str) -> tuple[list[FileFault], Layout | None]:
        """Problems and layout of one file, whatever is in it."""
        answer = self._ask("inspect", path, name, self.time_limit)
        if isinstance(answer, str):
            return [FileFault(name, "", answer)], None
        problems = [FileFault(**problem) for problem in answer["problems"]]
        layout = answer["layout"]
        return problems, None if layout is None else Layout(**{k: _tuples(v) for k, v in layout.items()})

    def scan(self, path: str | os.PathLike[str], name: str) -> FrameFaults | FileFault:
        """Read all frames of one file and say which are not finite, constant or repeated."""
        limit = self.time_limit + os.path.getsize(path) / SLOWEST_DISK
        answer = self._ask("scan", path, name, limit)
        if isinstance(answer, str):
            return FileFault(name, "", answer)
        if "problem" in answer:
            return FileFault(name, "", answer["problem"])
        lists = {key: {int(row): frame for row, frame in answer[key]} for key in ROW_LISTS}
        return FrameFaults(answer["n_rows"], **lists)

    def _ask(self, job: str, path: str | os.PathLike[str], name: str, limit: float) -> dict[str, Any] | str:
        """The answer, or the sentence that says why there is none; the helper is then gone."""
        request = json.dumps({"job": job, "path": os.path.abspath(path), "name": name}).encode() + b"\n"
        helper = self._start()
        try:
            assert helper.stdin is not None
            helper.stdin.write(request)
            helper.stdin.flush()
            return dict(json.loads(self._read_line(helper, limit)))
        except TimeoutError:
            self._stop()
            return f"is damaged: reading it took more than {limit:.0f} s"
        except (OSError, EOFError):
            self._stop()
            return "is damaged: it brought the HDF5 library down"

    def _start(self) -> subprocess.Popen[bytes]:
        if self._helper is None:
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._helper = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=env,
            )
            if self._read_line(self._helper, 120.0) != READY:
                raise RuntimeError("the helper that inspects files did not start")
        return self._helper

    def _read_line(self, helper: subprocess.Popen[bytes], limit: float) -> bytes:
        assert helper.stdout is not None
        end, line = time.monotonic() + limit, b""
        with selectors.DefaultSelector() as selector:
            selector.register(helper.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise TimeoutError
                part = os.read(helper.stdout.fileno(), 1 << 20)
                if not part or len(line) > MAX_ANSWER:
                    raise EOFError
                line += part
        return line

    def _stop(self) -> None:
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.kill()
            helper.wait()
            for stream in (helper.stdin, helper.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()


def refuse_unreadable(paths: Iterable[Path]) -> None:
    """DataError at the first file that cannot or must not be read; faults of format alone are let pass."""
    with Inspector() as inspector:
        for path in paths:
            problems, layout = inspector.inspect(path, str(path))
            if layout is None:
                raise DataError(f"Shard {problems[-1]}.")


def _tuples(value: Any) -> Any:
    """Lists of JSON back to the tuples they were."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _serve() -> None:
    """Answer requests until standard input ends."""
    _limit_memory()
    out = sys.stdout.buffer
    out.write(READY)
    out.flush()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        answer = {"inspect": _inspect, "scan": _scan}[request["job"]](request["path"], request["name"])
        out.write(json.dumps(answer).encode() + b"\n")
        out.flush()


def _inspect(path: str, name: str) -> dict[str, Any]:
    from pdejepa.data.well.validate import inspect_file

    problems, layout = inspect_file(path, name)
    return {
        "problems": [dataclasses.asdict(problem) for problem in problems],
        "layout": None if layout is None else dataclasses.asdict(layout),
    }


def _scan(path: str, name: str) -> dict[str, Any]:
    faults = FrameFaults()
    try:
        with contextlib.closing(ShardFile(path)) as shard:
            for start, fields in blocks(shard):
                faults.add(fields, start)
    except (DataError, MemoryError) as error:
        return {"problem": " ".join(str(error).split())[:500] or "does not fit into memory"}
    return {"n_rows": faults.n_rows, **{key: list(getattr(faults, key).items()) for key in ROW_LISTS}}


if __name__ == "__main__":
    _serve()
