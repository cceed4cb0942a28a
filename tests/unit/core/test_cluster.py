"""Tasks on a scheduler within this process, and what is said when there is none or its workers do not fit."""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdejepa.app.cli import main
from pdejepa.core import cluster
from pdejepa.core.cluster import Ground, connected, versions
from pdejepa.core.errors import ConfigError, ResourceError, UsageError
from pdejepa.data.generate.job import GenerateConfig

distributed = pytest.importorskip("distributed")
CALLS: list[int] = []


@pytest.fixture(scope="module")
def here() -> Iterator[distributed.LocalCluster]:
    """A scheduler and one worker, both threads of this process."""
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as started:
        yield started


def counted(n: int) -> tuple[int, int]:
    """n, and how often this was called."""
    CALLS.append(n)
    return n, len(CALLS)


def refused(text: str) -> None:
    raise ConfigError(text, [text, "another"])


def test_every_job_is_done(here: distributed.LocalCluster, tmp_path: Path) -> None:
    with connected(here.scheduler_address, tmp_path) as workers:
        assert len(list(tmp_path.iterdir())) == 1
        found = dict(workers.results(operator.mul, [(n, n) for n in range(20)]))
    assert found == {n: n * n for n in range(20)}
    assert list(tmp_path.iterdir()) == []


def test_a_repeated_job_runs_again(here: distributed.LocalCluster) -> None:
    with connected(here.scheduler_address) as workers:
        assert [list(workers.results(counted, [(3,)])) for _ in range(2)] == [[(0, (3, 1))], [(0, (3, 2))]]


def test_failures_of_tasks_arrive(here: distributed.LocalCluster) -> None:
    with connected(here.scheduler_address) as workers:
        with pytest.raises(ConfigError, match="no such thing") as caught:
            list(workers.results(refused, [("no such thing",)]))
        assert "in refused" in caught.value.__notes__[0]
        with pytest.raises(RuntimeError, match=r"ZeroDivisionError on .*: division by zero"):
            list(workers.results(operator.truediv, [(1, 0)]))
        assert list(workers.results(operator.truediv, [(1, 2)])) == [(0, 0.5)]


def test_without_workers_it_waits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "LOOK_EVERY_S", 0.1)
    said: list[str] = []
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as empty:
        later = threading.Timer(0.5, lambda: empty.scale(1))
        later.start()
        with connected(empty.scheduler_address, say=said.append) as workers:
            assert list(workers.results(operator.add, [(1, 2)])) == [(0, 3)]
        later.join()
    assert len(said) == 1
    assert "has no workers" in said[0]


# ---- workers that do not fit -----------------------------------------------------------------------------------------
def test_another_version_is_refused(here: distributed.LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {**versions(), "torch": "1.0"}
    assert Ground(versions()).problem() == ""
    assert f"has torch {versions()['torch']}, this machine 1.0; results would differ." in Ground(mine).problem()
    assert Ground({**versions(), "commit": ""}).problem() == ""
    with connected(here.scheduler_address) as workers:
        stranger = cluster.Cluster(workers.client, workers.address, Ground(mine), workers.say)
        with pytest.raises(ResourceError, match=r"The worker on .* has torch .*Install the same versions everywhere"):
            list(stranger.results(operator.add, [(1, 2)]))


def test_a_folder_that_a_worker_does_not_see(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    assert f"does not see {tmp_path}. Give a folder on a file system" in Ground(versions(), str(sign)).problem()
    sign.touch()
    assert Ground(versions(), str(sign)).problem() == ""


# ---- no scheduler ----------------------------------------------------------------------------------------------------
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "REACH_S", 0.5)
    with pytest.raises(ResourceError, match="No dask scheduler answers"), connected("tcp://127.0.0.1:1"):
        pass


@pytest.mark.parametrize("address", ["abc://host:1", "here", "tcp://host", "tcp://host:port"])
def test_no_address(address: str) -> None:
    with pytest.raises(UsageError, match="--scheduler takes tcp://HOST:PORT; got"), connected(address):
        pass


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ResourceError, match="needs the package distributed"), connected("tcp://127.0.0.1:1"):
        pass


def test_slices_and_a_scheduler(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["generate", "heat", "--out", str(tmp_path), "--scheduler", "tcp://a:1", "--shard", "0/2"]
    assert main(words) == 2
    assert "a scheduler shares the work out by itself" in capsys.readouterr().err
    assert GenerateConfig("heat", str(tmp_path), scheduler="tcp://a:1").scheduler == "tcp://a:1"
