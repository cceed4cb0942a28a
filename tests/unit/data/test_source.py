"""Trajectories: the same values from a system, a data set and memory, however they are cut into blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pdejepa import systems
from pdejepa.core.errors import DataError
from pdejepa.data.source import Arrays, Block, Generated, Stored, Trajectories, environments_of
from pdejepa.data.well.reader import Dataset

CPU = torch.device("cpu")
SYSTEM = systems.get("combined")


def arrays(source: Trajectories, n: int = 10) -> Arrays:
    block = source.block("test", 0, n)
    return Arrays(source.problem, {"test": block.fields.numpy()}, {"test": block.xi.numpy()})


@pytest.fixture
def sources(tiny_datasets: Callable[[str], Path]) -> list[Trajectories]:
    generated = Generated(SYSTEM, "tiny")
    return [generated, Stored(Dataset.open(tiny_datasets("combined"))), arrays(generated)]


def test_all_sources_have_the_same_trajectories(sources: list[Trajectories]) -> None:
    expected = sources[0].block("test", 0, 10)
    assert expected.fields.shape == (10, 14, 1, 256)
    for source in sources:
        assert source.n("test") == 10
        assert source.problem == SYSTEM.problem
        found = source.block("test", 0, 10)
        assert torch.equal(found.fields, expected.fields)
        assert torch.equal(found.xi, expected.xi)
        assert torch.equal(found.environment, expected.environment)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_blocks_are_the_whole(size: int, sources: list[Trajectories]) -> None:
    for source in sources:
        whole, blocks = source.block("test", 0, 7), list(source.blocks("test", 7, size))
        assert torch.equal(torch.cat([block.fields for block in blocks]), whole.fields)
        assert sum(len(block.xi) for block in blocks) == 7
        if source.granule(CPU) == 1:
            assert len(blocks) == -(-7 // size)


def test_generated_blocks_begin_at_chunks_of_the_solver() -> None:
    source = Generated(replace(SYSTEM, n_points=32))
    chunk = source.granule(CPU)
    sizes = [len(block.xi) for block in source.blocks("test", 2 * chunk + 5, chunk + 7)]
    assert sizes == [chunk, chunk, 5]


def test_environments_share_parameters() -> None:
    xi = torch.tensor([[2.0, 1.0], [0.0, 1.0], [2.0, 1.0], [0.0, 3.0], [0.0, 1.0]])
    assert environments_of(xi).tolist() == [0, 1, 0, 2, 1]


def test_hashes_tell_trajectories_and_settings(sources: list[Trajectories]) -> None:
    for source in (sources[0], sources[2]):
        block = source.block("test", 0, 4)
        digest = source.digest({"test": block})
        moved = Block(block.fields + 1e-3, block.xi, block.environment)
        assert digest == source.digest({"test": source.block("test", 0, 4)})
        assert len({digest, source.digest({"test": moved}), source.digest({"train": block})}) >= 2
        assert digest != source.digest({"test": moved})
    assert sources[0].digest({}) != Generated(replace(SYSTEM, dt=0.01)).digest({})


def test_too_many_and_unknown_splits_are_refused(sources: list[Trajectories]) -> None:
    for source in sources[1:]:
        with pytest.raises(DataError, match="10 trajectories in test; 11 were asked for"):
            source.check("test", 11)
    with pytest.raises(DataError, match="have no split 'toast'; their splits: test"):
        sources[2].n("toast")


def test_arrays_of_another_shape_are_refused() -> None:
    fields = torch.zeros(3, 14, 1, 256)
    with pytest.raises(DataError, match=r"test must be fields \(n, 14, 1, 256\).*got \(3, 14, 1, 128\)"):
        Arrays(SYSTEM.problem, {"test": fields[..., :128]}, {"test": torch.zeros(3, 3)})
    with pytest.raises(DataError, match="no parameters"):
        Arrays(SYSTEM.problem, {"test": fields}, {})
