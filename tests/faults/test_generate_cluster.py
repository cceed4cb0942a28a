"""A data set made by the workers of a cluster, one of which is lost on the way."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.faults.generating import leftovers, manifest_bytes, start
from tests.faults.workers import scheduler, worker

pytest.importorskip("distributed")


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    out, straight = tmp_path / "cluster", tmp_path / "straight"
    alone = start(straight)
    with scheduler(tmp_path) as address, worker(address, tmp_path, "a") as lost, worker(address, tmp_path, "b") as kept:
        threading.Thread(target=lost.wait, daemon=True).start()  # a dead child counts as alive until it is waited for
        process = start(out, words=["--scheduler", address])
        told = process.communicate()[1]
        assert process.returncode == 0, told
        assert lost.returncode == -signal.SIGKILL
        assert kept.poll() is None
    assert alone.communicate() is not None
    assert alone.returncode == 0
    assert manifest_bytes(out) == manifest_bytes(straight)
    assert leftovers(out) == []
    assert not [path.name for path in out.iterdir() if path.name.startswith(".seen")]


@pytest.mark.slow
def test_a_scheduler_that_goes_away_is_told_in_a_sentence(tmp_path: Path) -> None:
    out = tmp_path / "cluster"
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(scheduler(tmp_path))
        with worker(address, tmp_path, "b"):  # which stays in its second shard
            process = start(out, words=["--scheduler", address])
            while process.poll() is None and not list((out / ".journal").glob("*.json")):
                time.sleep(0.05)
            stack.close()
            told = process.communicate()[1]
    assert process.returncode == 6, told
    assert told.splitlines()[-1].startswith(f"The scheduler at {address} went away. What was finished is kept")
    assert "Traceback" not in told
    assert len(list(out.glob("data/*/*.hdf5"))) == 1
