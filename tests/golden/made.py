"""What golden records hold: numbers of small, fixed computations, made through the doors that users take.

    stages      losses of every step of every stage, by `pdejepa train`
    solvers     losses of every step of every published solver
    forecasts   values of forecasts of the shipped models
    errors      of the shipped models, by `pdejepa evaluate`
    data        values of one file of every system, by `pdejepa generate`

Everything runs on one thread of a CPU, so that one kind of machine with one set of libraries repeats every bit.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

import pdejepa
from pdejepa import baselines, systems
from pdejepa.app.cli import main
from pdejepa.baselines.fit import build, fit
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.systems.structure import Split
from pdejepa.training.metrics_log import read_lines
from pdejepa.training.settings import Budget

Record = dict[str, Any]
CPU = torch.device("cpu")
N_STEPS = 5  # of every stage
N_VALUES = 40  # of a field, spread evenly
STAGES = ("pretrain", "align", "dynamics", "decode", "polish", "reconstruct")

# ---- stages ------------------------------------------------------------------------------------------------------
SMALL = (
    "counts={train: 8, valid: 4}",
    "model.encoder={patch: 4, width: 16, depth: 2, heads: 2}",
    "model.jepa_predictor={width: 16, depth: 1, heads: 2}",
    "model.causal_predictor={width: 16, depth: 1, heads: 2}",
    "model.field={width: 16, depth: 1, heads: 2, n_substeps: 2}",
    "model.decoder={widths: [16, 8, 8], scales: [2, 2]}",
    "pretrain.one_frame_clips=8",
    *(f"{name}.training.budget={{steps: {N_STEPS}}}" for name in STAGES),
    *(f"{name}.training.log_every=1" for name in STAGES),
    *(f"{name}.training.n_scores=2" for name in STAGES),
    *(f"{name}.training.batch={16 if name == 'dynamics' else 4}" for name in STAGES),
)
BF16 = ("precision=bf16", *(f"{name}.training.rounds=true" for name in ("dynamics", "decode", "polish")))
CASES: dict[str, tuple[str, ...]] = {
    "advection": ("advection", "switches.n_points=32"),
    "wave_b": ("wave_b", "switches.n_points=32"),
    "wave_b-history1": ("wave_b", "switches.n_points=32", "history=1"),
    "gray_scott": ("gray_scott", "switches={n_points: 16, dx: 2.0}"),
    "heterns": ("heterns", "switches={n_points: 32, solver_grid: 32}"),
    "burgers": ("burgers", "switches.n_points=32", "dynamics={tangent_weight: 0.1, response_weight: 0.1}"),
    "combined-unit": ("combined", "switches.n_points=32", "amplitude=unit", "dynamics.unroll=2"),
    "combined-bf16": ("combined", "switches.n_points=32", *BF16),
    "combined-geo": ("combined", "switches.n_points=32", "variant=geo"),
    "combined-vanilla": ("combined", "switches.n_points=32", "variant=vanilla"),
    "combined-direct": ("combined", "switches.n_points=32", "variant=direct"),
}


def stages(case: str, folder: Path) -> Record:
    """Losses and scores of every stage, and the hash of the data."""
    system, *words = CASES[case]
    command = ["train", system, "--recipe", "tiny", "--stages", ",".join(STAGES), "--device", "cpu"]
    assert main([*command, "--out", str(folder), *SMALL, *words]) == 0
    found: Record = {"data": json.loads((folder / "data.json").read_text())["hash"]}
    for name in STAGES:
        if (folder / name).is_dir():
            found[name] = _losses(folder / name)
    return found


def _losses(folder: Path) -> dict[str, list[float]]:
    """Every number that a stage wrote while it trained, by its name."""
    found: dict[str, list[float]] = {}
    for line in read_lines(folder / "metrics.jsonl"):
        for kind in ("train", "valid"):
            for key, value in line.get(kind, {}).items():
                found.setdefault(f"{kind}.{key}", []).append(value)
    return found


# ---- published solvers -------------------------------------------------------------------------------------------
def _pool(place: str) -> Pool:
    switches = {"n_points": 64} if place == "combined" else {}
    return build_pool(systems.get(place, **switches), {"train": 20, "valid": 2}, CPU)


def solvers(name: str, folder: Path, place: str = "combined") -> Record:
    """Losses of two steps of every stage of a solver at tiny size."""
    kind, pool = baselines.get(name), _pool(place)
    recipe = kind.recipe("tiny", pool.task)
    parts = []
    for part in recipe.stages:
        n_scores = min(1, part.training.n_scores)
        training = dataclasses.replace(part.training, budget=Budget(steps=2), log_every=1, n_scores=n_scores)
        parts.append(dataclasses.replace(part, training=training))
    recipe = dataclasses.replace(recipe, stages=tuple(parts))
    fit(build(kind, recipe, pool), recipe, pool, folder)
    return {part.name: _losses(folder / part.name) for part in recipe.stages}


# ---- forecasts ---------------------------------------------------------------------------------------------------
ERRORS = ("rel_l2", "rel_l2_joint", "median", "last_frame", "per_frame", "repeat_first", "n_unstable", "trajectories")
PLACES = ("combined", "gray_scott")
MODELS = ("advection", "burgers", "combined", "gray_scott", "heat", "wave_2d", "wave_b")


def forecasts(name: str) -> Record:
    """Two forecasts of a shipped model inside, and two outside the training range where there is such a split."""
    model = pdejepa.load(name, device="cpu")
    found: Record = {}
    for split in _inside_and_outside(model.system.splits):
        u0, xi = model.system.sample(split, [0, 1])
        made = model.forecast(u0, xi, n_frames=9)
        found[split] = {
            "xi": xi.flatten().tolist(),
            "fields": _sampled(made.fields),
            "reconstruction": _sampled(made.reconstruction),
            "latents": _sampled(model.encode(u0[:, None])),
            "times": made.times.tolist(),
            "outcome": [outcome.label for outcome in made.outcome],
            "support": list(made.support.sentences),
        }
    return found


def _inside_and_outside(splits: Iterable[Split]) -> list[str]:
    return [split.name for split in splits if split.name == "test" or split.is_ood]


def errors(name: str, folder: Path) -> Record:
    """Errors of a shipped model on 24 trajectories of every split that it is judged on, by `pdejepa evaluate`."""
    path = folder / f"{name}.json"
    assert main(["evaluate", name, "--n", "24", "--device", "cpu", "--out", str(path)]) == 0
    return {split: _error_values(values) for split, values in json.loads(path.read_text())["errors"].items()}


def _error_values(values: Record) -> Record:
    return {key: value for key, value in values.items() if key in ERRORS}


# ---- data --------------------------------------------------------------------------------------------------------
def data(folder: Path) -> Record:
    """Values of everything in the first file of the test split of a data set, by its path in the file."""
    path = sorted((folder / "data" / "test").glob("*.hdf5"))[0]
    found: Record = {}

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.dtype.kind in "fiu":
            found[name] = _sampled(torch.from_numpy(np.asarray(node[()], dtype=np.float64)))

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def _sampled(values: Tensor) -> list[float]:
    """Some values, spread evenly, and the mean square of all."""
    flat = values.detach().double().flatten()
    every = max(1, len(flat) // N_VALUES)
    return [*flat[::every].tolist(), float(flat.square().mean())]


# ---- files -------------------------------------------------------------------------------------------------------
HERE = Path(__file__).parent


def path_of(kind: str) -> Path:
    return HERE / f"{kind}.json"


def write(kind: str, record: Record) -> None:
    path_of(kind).write_text(json.dumps({"machine": machine(), **record}, indent=0) + "\n")


def read(kind: str) -> Record:
    return dict(json.loads(path_of(kind).read_text()))


def machine() -> dict[str, str]:
    """What bits depend on: libraries, and the instructions of the processor."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    wide = sorted({flag for flag in flags.split() if flag.startswith(("avx", "amx", "fma"))})
    return {"torch": torch.__version__, "numpy": np.__version__, "processor": " ".join(wide)}


def on_one_thread(function: Callable[..., Record], *arguments: Any) -> Record:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return function(*arguments)
    finally:
        torch.set_num_threads(before)
