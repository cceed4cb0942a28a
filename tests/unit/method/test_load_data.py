"""Training on a mix of the benchmark's states and broad ones, from a system and from a data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pdejepa import systems
from pdejepa.core.errors import ConfigError, DataError
from pdejepa.data.generate.job import GenerateConfig, generate
from pdejepa.data.source import Block
from pdejepa.method import recipes
from pdejepa.method.load_data import interleaved, load_data
from pdejepa.method.run_config import RunConfig

CPU = torch.device("cpu")


def config(**changes: object) -> RunConfig:
    return replace(recipes.get("advection", "tiny"), size="tiny", counts={"train": 10, "valid": 3}, **changes)  # type: ignore[arg-type]


def test_rows_are_interleaved_evenly() -> None:
    made = [
        Block(10.0 * sign * torch.arange(n)[:, None], torch.ones(n, 1), torch.arange(n) // 2)
        for sign, n in ((1, 7), (-1, 3))
    ]
    found = interleaved(*made)
    assert found.fields[:, 0].tolist() == [0, 10, 20, 0, 30, 40, -10, 50, 60, -20]
    assert found.environment.tolist() == [0, 0, 1, 4, 1, 2, 4, 2, 3, 5]
    assert found.xi.shape == (10, 1)


def test_the_mix_is_a_share_of_train_and_valid_stays() -> None:
    system = systems.get("advection")
    plain, mixed = load_data(config(), CPU, False), load_data(config(mix=0.3), CPU, False)
    assert {split: mixed.n(split) for split in mixed.fields} == {"train": 10, "valid": 3}
    xi = torch.cat((system.sample("train", range(7))[1], system.sample("broad_train", range(3))[1]))
    assert sorted(mixed.xi["train"].flatten().tolist()) == sorted(xi.flatten().tolist())
    assert torch.equal(mixed.xi["valid"], plain.xi["valid"])
    assert torch.equal(plain.xi["train"], system.sample("train", range(10))[1])
    assert mixed.hash != plain.hash == load_data(config(mix=0.05), CPU, False).hash


def test_a_data_set_with_both_gives_the_same(tmp_path: Path) -> None:
    splits = ("train", "valid", "broad_train")
    generate(GenerateConfig(system="advection", out=str(tmp_path / "both"), splits=splits, device="cpu"))
    stored, made = (load_data(config(mix=0.3, data=data), CPU, False) for data in (str(tmp_path / "both"), ""))
    assert torch.equal(stored.fields["train"], made.fields["train"])
    generate(GenerateConfig(system="advection", out=str(tmp_path / "one"), splits=splits[:2], device="cpu"))
    with pytest.raises(DataError, match="has no split 'broad_train'"):
        load_data(config(mix=0.3, data=str(tmp_path / "one")), CPU, False)


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_shares_beyond_train_are_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="mix must be from 0 to below 1"):
        config(mix=share)
