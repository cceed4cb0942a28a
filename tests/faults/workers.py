"""A cluster of dask on this machine: a scheduler and two workers, each a process of its own with one thread.

Worker `a` kills itself with SIGKILL in the middle of writing its second shard.  Worker `b` does not end its second
shard before that, so that `a` surely gets a second one: no test depends on how fast a machine is.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tests.faults.generating import SOURCE

T = TypeVar("T")
WAIT_S = 120.0
DISTURBED = """
import os, signal, time
from pathlib import Path
from pdejepa.data.well import writer

def disturb(fill):
    filled, gone = [], Path(os.environ["GONE"])

    def disturbed(self, *args):
        fill(self, *args)
        filled.append(1)
        if len(filled) == 2 and os.environ["ROLE"] == "a":
            gone.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        while len(filled) == 2 and not gone.exists():
            time.sleep(0.02)

    return disturbed

if not hasattr(writer, "is_disturbed"):  # dask may load this file twice
    writer.is_disturbed, writer._Writer._fill = True, disturb(writer._Writer._fill)
"""


@contextlib.contextmanager
def scheduler(folder: Path) -> Iterator[str]:
    """The address of a scheduler without workers."""
    file = folder / "scheduler.json"
    with _process("scheduler", "--port", "0", "--host", "127.0.0.1", "--scheduler-file", str(file)) as process:
        yield _until(lambda: json.loads(file.read_text())["address"], process)


@contextlib.contextmanager
def worker(address: str, folder: Path, role: str = "", **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A worker process; with a role it is disturbed as told above.  It has joined when the block begins."""
    (folder / "disturbed.py").write_text(DISTURBED)
    pid = folder / f"worker-{role or 'calm'}.pid"
    words = ["--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", "--pid-file", str(pid)]
    words += ["--local-directory", str(folder / f"local-{role}"), "--name", role or "calm"]
    words += ["--preload", str(folder / "disturbed.py")] if role else []
    with _process("worker", address, *words, ROLE=role, GONE=str(folder / "gone"), **environment) as process:
        _until(lambda: _names(address).index(role or "calm"), process)
        yield process


def _names(address: str) -> list[str]:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        return [one["name"] for one in client.scheduler_info(n_workers=-1)["workers"].values()]


@contextlib.contextmanager
def _process(kind: str, *words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    path = {"PYTHONPATH": os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *words, "--no-dashboard"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **path, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _until(found: Callable[[], T], process: subprocess.Popen[str]) -> T:
    """What `found` returns as soon as it does not fail."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            return found()
        except (OSError, ValueError, KeyError):
            assert process.poll() is None, "the process ended"
            assert time.monotonic() < end, "the process did not begin"
            time.sleep(0.1)
