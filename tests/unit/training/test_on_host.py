"""Trajectories in host memory: the same values, the same batches and the same losses as on the device."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import Tensor

from pdejepa.core.run_folder import STAGES
from pdejepa.method import load_data
from pdejepa.method.chain import train_stages
from pdejepa.training.on_host import Ahead, OnHost
from pdejepa.training.stage import Batch
from tests.gpu import needs_cuda
from tests.unit.method.small_run import CPU, small_config

VALUES = torch.arange(120.0).reshape(5, 4, 1, 6)  # (n,T,C,*grid)
ROWS, FRAMES = torch.tensor([4, 0, 4]), torch.tensor([[0, 1], [3, 2], [1, 1]])
WORDS = tuple(f"{name}.training={{budget: {{steps: 5}}, log_every: 1, n_scores: 2}}" for name in STAGES)


# ---- values ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "index", [ROWS, slice(1, 3), (ROWS, 2), (ROWS[:, None], FRAMES), 0], ids=["rows", "slice", "frame", "frames", "one"]
)
def test_it_is_indexed_like_a_tensor(index: object) -> None:
    assert torch.equal(OnHost(VALUES, CPU)[index], VALUES[index])  # type: ignore[index]


def test_parts_of_it_stay_on_the_host() -> None:
    host = OnHost(VALUES.clone(), CPU)
    assert torch.equal(host.subset(ROWS)[:], VALUES[ROWS])
    room = host.new_empty((5, 2), torch.bfloat16)
    room[1:3] = torch.ones(2, 2)
    assert isinstance(room, OnHost)
    assert (room[1:3].dtype, float(room[1:3].float().sum())) == (torch.bfloat16, 4.0)


# ---- batches -----------------------------------------------------------------------------------------------------
def numbers(asked: list[tuple[int, int]]) -> Ahead:
    def make(step: int, n_steps: int) -> Batch:
        asked.append((step, n_steps))
        return {"x": torch.tensor([step, n_steps])}

    return Ahead(make, CPU)


def test_a_batch_is_made_once_and_before_it_is_needed() -> None:
    asked: list[tuple[int, int]] = []
    ahead = numbers(asked)
    for step in range(3):
        assert ahead.take(step, 3)["x"].tolist() == [step, 3]
        ahead.prepare(step + 1, 3)
        assert asked[-1] == (min(step + 1, 2), 3)
    assert asked == [(0, 3), (1, 3), (2, 3)]


def test_another_batch_than_the_prepared_one_is_made_anew() -> None:
    """As where a rehearsal ends, or the clock changes the number of steps."""
    ahead = numbers([])
    for prepared, wanted in (((1, 3), (0, 3)), ((1, 3), (1, 4))):
        ahead.prepare(*prepared)
        assert ahead.take(*wanted)["x"].tolist() == list(wanted)
        assert ahead.take(*prepared)["x"].tolist() == list(prepared)


# ---- trainings ---------------------------------------------------------------------------------------------------
def losses(folder: Path, *words: str) -> dict[str, list[dict[str, float]]]:
    """Everything that the stages wrote."""
    train_stages(small_config(*words), folder, say=lambda _: None)
    found = {}
    for name in STAGES:
        if (folder / name).is_dir():
            lines = map(json.loads, (folder / name / "metrics.jsonl").read_text().splitlines())
            found[name] = [line.get("train") or line["valid"] for line in lines]
    return found


CASES = {
    "on the fly": ("advection", "latents=on_the_fly", "decode.share=0.5", "decode.frames=3"),
    "second order": ("wave_b", "latents=bfloat16"),
    "tangents": ("burgers", "dynamics.tangent_weight=0.1", "dynamics.denominators=per_frame"),
    "unit amplitude": ("combined", "amplitude=unit"),
}
LONG = ("tangents", "unit amplitude")


@pytest.mark.parametrize(
    "words", [pytest.param(CASES[name], id=name, marks=[pytest.mark.slow] * (name in LONG)) for name in CASES]
)
def test_every_stage_has_the_same_losses(words: tuple[str, ...], tmp_path: Path) -> None:
    words = (*words, *WORDS, f"stages=[{','.join(STAGES)}]")
    expected = losses(tmp_path / "device", *words)
    assert list(expected) == list(STAGES)
    with mock.patch.object(Ahead, "prepare", autospec=True, side_effect=Ahead.prepare) as prepared:
        assert losses(tmp_path / "host", *words, "memory=host") == expected
    assert prepared.call_count >= 5 * len(STAGES)


@needs_cuda
def test_every_stage_has_the_same_losses_on_a_gpu(tmp_path: Path) -> None:
    words = ("advection", "device=cuda", *WORDS, f"stages=[{','.join(STAGES)}]")
    expected = losses(tmp_path / "device", *words)
    for name, lines in losses(tmp_path / "host", *words, "memory=host").items():
        for found, before in zip(lines, expected[name], strict=True):
            assert found["loss" if "loss" in found else "score"] == pytest.approx(
                before["loss" if "loss" in before else "score"], rel=1e-3
            )


def test_only_the_batches_leave_the_host() -> None:
    """Fields and latents of train are never copied as a whole; valid, which is small, is on the device."""
    data = load_data.load_data(small_config("advection", "memory=host"), CPU, show=False)
    assert isinstance(data.fields["train"], OnHost)
    assert isinstance(data.fields["valid"], Tensor)
    resident = load_data.load_data(small_config("advection"), CPU, show=False)
    assert (data.hash, data.statistics) == (resident.hash, resident.statistics)
    assert torch.equal(data.fields["train"][:], resident.fields["train"][:])


@pytest.mark.parametrize(("free", "is_on_host"), [(10**9, False), (2 * 10**5, True)])
def test_a_gpu_keeps_what_fits(free: int, is_on_host: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """12 trajectories of 32 points in 8 tokens of width 16."""
    config, gpu = small_config("advection"), SimpleNamespace(type="cuda")
    problem = load_data.load_data(config, CPU, show=False).problem
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, free))
    assert load_data.stays_on_host(config, problem, 12, gpu) == is_on_host  # type: ignore[arg-type]
    assert not load_data.stays_on_host(config, problem, 12, CPU)
