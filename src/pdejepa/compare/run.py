"""A comparison: data once, then every competitor in turn; each result is a file, and a result that exists is kept.

    DIR/
      combined-fno-fast-paper-180s-s0.json           system, solver, recipe, size of data, budget, seed: errors and cost
      runs/combined-fno-fast-paper-180s-s0/          its training: metrics, and the trained solver in `model`
      runs/combined-fno-fast-paper-180s-s0.trials    how the trials for its learning rate ended

Every competitor, the method of this package too, gets the same three short trials for its learning rate (a third of
the recipe's, as it is, three times as much; the best score on valid wins, or on train of those who fit codes, which
are known there only) and nothing else is tuned.  A longer budget with trials of the same length takes over those of a
record in the same folder.

The seconds of a budget are those of training: steps, scores, the timing of the first steps and, on a GPU, their
recording; trials do not count their first steps, or they could be over before they begin.  Data, the building of the
network, the judgement and files stay outside (checkpoints of a hundred million parameters would take a large part of
three minutes), and so does what a GPU compiles: a competitor with compiled parts first trains for a few steps that are
thrown away.

A competitor that fails is named and left out, and the others go on; the same command tries it again.  One that is
interrupted begins anew, with the learning rate that was found.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pdejepa import recipes
from pdejepa.baselines import known_as
from pdejepa.baselines.fit import TotalBudget
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.compare.blind import blind_error
from pdejepa.compare.entries import CARDS, NAMES, longest_history, make
from pdejepa.compare.protocol import is_blind, judge, speed, true_frames
from pdejepa.compare.records import read_record
from pdejepa.core.device import device_name, free_memory, used_memory
from pdejepa.core.errors import ConfigError, Interrupted, NumericalError, PdejepaError, did_you_mean
from pdejepa.core.files import lock, remove_leftovers, write_json
from pdejepa.data.plan import build_system
from pdejepa.evaluate.published import metric_of
from pdejepa.forecast.train import commit
from pdejepa.systems.structure import SIZES

FACTORS = (1 / 3, 1.0, 3.0)
TRIAL_SECONDS = 20.0
TRIAL_SHARE = 1 / 9  # of a short budget: then the trials together take a third of it
COMPILE_STEPS = 8  # of every stage, thrown away, so that no trial pays for compiling; they meet the usual shapes
N_JUDGED = 240  # trajectories of a split, at most: some solvers fit a code to each, or draw word after word


@dataclass(frozen=True)
class Comparison:
    """What is compared."""

    system: str
    solvers: tuple[str, ...]
    seconds: float
    out: Path
    size: str = "paper"
    recipe: str = "fast"
    seeds: int = 1
    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))

    def name(self, solver: str, seed: int) -> str:
        return f"{self.system}-{solver}-{self.recipe}-{self.size}-{self.seconds:g}s-s{seed}"


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Solvers by name; `all` means every forecaster."""
    if not names:
        raise ConfigError(f"Expected names of solvers, or all; got none. Solvers: {', '.join(NAMES)}.")
    wanted = list(NAMES) if "all" in names else [known_as(name) for name in names]
    for name in wanted:
        if name not in NAMES:
            make(name, "", "", 0)  # refuses, with a hint
    return tuple(dict.fromkeys(wanted))


def forecasters(plan: Comparison) -> list[str]:
    return [name for name in plan.solvers if CARDS[name].is_forecaster]


def compare(plan: Comparison, say: Callable[[str], object] = print) -> list[dict[str, Any]]:
    """Run what is missing; return all records.  One process at a time: another one in the same folder waits."""
    recipes.get(plan.system, plan.recipe)  # refuses unknown names
    if plan.size not in SIZES:
        hint = did_you_mean(plan.size, SIZES) or "."
        raise ConfigError(f"unknown size {plan.size!r}{hint} Sizes: {', '.join(SIZES)}.")
    with lock(plan.out, say=say):
        remove_leftovers(plan.out)
        return _compare(plan, say)


def _compare(plan: Comparison, say: Callable[[str], object]) -> list[dict[str, Any]]:
    able = forecasters(plan)
    for name in plan.solvers:
        if name not in able:
            say(f"{CARDS[name].title}: skipped, it makes representations and no forecasts")
    if not able:
        raise ConfigError(f"None of the solvers makes forecasts; got {', '.join(plan.solvers)}. Give others.")
    turns = [(seed, name) for seed in range(plan.seeds) for name in able]
    places = [(seed, name, plan.out / f"{plan.name(name, seed)}.json") for seed, name in turns]
    pool = None if all(path.exists() for *_, path in places) else _pool(plan, say)
    known = {path: _read(path, plan, name, seed, pool) for seed, name, path in places if path.exists()}  # refused now
    for seed, name, path in places:
        if path in known:
            continue
        assert pool is not None
        record = _tried(plan, name, seed, pool, path, say)
        if record is None:
            _clear(plan.device)  # here, where nothing of the failed training is held any more
            continue
        known[path] = record
    return [known[path] for *_, path in places if path in known]


def _read(path: Path, plan: Comparison, name: str, seed: int, pool: Pool | None) -> dict[str, Any]:
    """A record; one of another device, or of other data, is not an answer to what is asked now."""
    record, here = read_record(path), device_name(plan.device)
    keys = ("system", "solver", "recipe", "size", "budget_seconds", "seed")
    asked = (plan.system, name, plan.recipe, plan.size, plan.seconds, seed)
    if record is None or tuple(map(record.get, keys)) != asked:
        raise ConfigError(f"{path} is not the record that its name promises. Use another --out, or remove it.")
    if record["device"] != here:
        raise ConfigError(f"{path} was measured on {record['device']}, this is {here}. Use another --out.")
    if pool is not None and record["data_hash"] != pool.data.hash:
        raise ConfigError(
            f"{path} was measured on other data (hash {record['data_hash'][:12]}, now {pool.data.hash[:12]}). "
            "Use another --out, or remove it."
        )
    return record


def _pool(plan: Comparison, say: Callable[[str], object]) -> Pool:
    system = build_system(plan.system, plan.size, {})
    judged = ["test", *(split.name for split in system.splits if split.is_ood)]
    counts = {name: system.split(name).size(plan.size) for name in ("train", "valid", *judged)}
    counts |= {name: min(counts[name], N_JUDGED) for name in judged}
    begun = time.monotonic()
    pool = build_pool(system, counts, plan.device)
    say(f"{plan.system}: {sum(counts.values()):,} trajectories in {time.monotonic() - begun:.1f} s")
    if any(is_blind(CARDS[name]) and CARDS[name].is_forecaster for name in plan.solvers):
        say(f"{plan.system}: solving for what can be known from one frame without the parameters")
        pool.floors = {split: blind_error(pool, split) for split in judged}
    return pool


def _tried(
    plan: Comparison, name: str, seed: int, pool: Pool, path: Path, say: Callable[[str], object]
) -> dict[str, Any] | None:
    """The record of one competitor, written, or None if it failed: that must not cost the others their turn."""
    long = f"{trial_seconds(plan.seconds):.3g} s for each of three learning rates, then {plan.seconds:g} s"
    say(f"{CARDS[name].title}, seed {seed}: {long}")
    try:
        write_json(path, _one(plan, name, seed, pool))
        record: dict[str, Any] = json.loads(path.read_text())
    except Interrupted:
        raise
    except PdejepaError as error:
        say(f"{CARDS[name].title}: {error}")
    except torch.OutOfMemoryError:
        say(f"{CARDS[name].title}: out of memory on {plan.device}; it is left out.")
    except Exception:  # a mistake of ours
        say(f"{CARDS[name].title}: failed.\n{traceback.format_exc()}")
    else:
        test, n_steps = record["errors"]["test"][metric_of(plan.system)], sum(record["steps"].values())
        say(f"{CARDS[name].title}: test {test:.3%}, {n_steps:,} steps, {record['seconds']:.0f} s")
        return record
    return None


def _one(plan: Comparison, name: str, seed: int, pool: Pool) -> dict[str, Any]:
    """Train and judge one competitor."""
    import torch._dynamo  # a second of its own

    card, folder = CARDS[name], plan.out / "runs" / plan.name(name, seed)
    pool.task.check(card)
    torch._dynamo.reset()  # there is a limit to what one process keeps compiled
    if plan.device.type == "cuda" and make(name, plan.system, plan.recipe, seed).has_compiled_parts(pool):
        _trial(plan, name, seed, pool, folder, 1.0, TotalBudget("steps", COMPILE_STEPS * len(card.stages)))
    factor, trials = _learning_rate(plan, name, seed, pool, folder)
    entry = make(name, plan.system, plan.recipe, seed)
    _clear(plan.device)
    shutil.rmtree(folder, ignore_errors=True)
    report = entry.fit(pool, TotalBudget("seconds", plan.seconds), folder, factor, keep="memory")
    seconds = sum(part["seconds"] for part in report.values())
    entry.save(folder / "model")
    memory = used_memory(plan.device)
    splits = [split for split in pool.data.fields if split not in ("train", "valid")]
    tail_from = longest_history(pool.task, plan.recipe)
    errors = {split: judge(entry, pool, split, tail_from) for split in splits}
    return {
        "system": plan.system,
        "solver": name,
        "title": card.title,
        "recipe": plan.recipe,
        "size": plan.size,
        "seed": seed,
        "budget_seconds": plan.seconds,
        "weights": "scratch",
        "true_frames": true_frames(entry, tail_from),
        "is_blind": is_blind(card),
        "adapts": card.adapts,
        "errors": errors,
        "seconds": seconds,
        "steps": {stage: part["steps"] for stage, part in report.items()},
        "learning_rate_factor": factor,
        "trials": trials,
        "parameters": entry.n_parameters,
        "peak_memory_bytes": memory,
        **speed(entry, pool, "test"),
        "device": device_name(plan.device),
        "torch": torch.__version__,
        "commit": commit(),
        "data_hash": pool.data.hash,
    }


def _learning_rate(
    plan: Comparison, name: str, seed: int, pool: Pool, folder: Path
) -> tuple[float, list[dict[str, Any]]]:
    """The factor of the learning rate whose short trial ends with the best score on valid; decided once."""
    known = folder.with_name(f"{folder.name}.trials")
    trials = _kept(known) or _trials_before(plan, name, seed, pool) or _trials(plan, name, seed, pool, folder)
    good = [trial for trial in trials if trial["score"] is not None]
    if not good:
        raise ConfigError(f"all three trials of {name} failed; lower the learning rate of its recipe")
    write_json(known, trials)
    return min(good, key=lambda trial: trial["score"])["factor"], trials


def _kept(path: Path) -> list[dict[str, Any]]:
    """Trials that were done before; [] if there are none, or the file is damaged."""
    try:
        trials: list[dict[str, Any]] = json.loads(path.read_text())
        return trials if all({"factor", "score"} <= set(trial) for trial in trials) else []
    except (OSError, ValueError, TypeError):
        return []


def trial_seconds(budget: float) -> float:
    return min(TRIAL_SECONDS, TRIAL_SHARE * budget)


def _trials_before(plan: Comparison, name: str, seed: int, pool: Pool) -> list[dict[str, Any]]:
    """Those of a record with another budget and trials of the same length, which would only be repeated; or []."""
    for path in sorted(plan.out.glob(f"{plan.system}-{name}-{plan.recipe}-{plan.size}-*s-s{seed}.json")):
        record = read_record(path)
        if record is None:
            continue
        same = (trial_seconds(plan.seconds), device_name(plan.device), pool.data.hash)
        if (trial_seconds(record["budget_seconds"]), record["device"], record["data_hash"]) == same:
            return list(record["trials"])
    return []


def _trials(plan: Comparison, name: str, seed: int, pool: Pool, folder: Path) -> list[dict[str, Any]]:
    """[{factor, score}, ...]; the score of a training that failed is None."""
    budget = TotalBudget("seconds", trial_seconds(plan.seconds))
    return [{"factor": factor, "score": _trial(plan, name, seed, pool, folder, factor, budget)} for factor in FACTORS]


def _trial(
    plan: Comparison, name: str, seed: int, pool: Pool, folder: Path, factor: float, budget: TotalBudget
) -> float | None:
    """The score of a short training that leaves nothing behind; None if its values did not stay finite."""
    place = folder.with_name(f"{folder.name}-trial-{factor:.2g}")
    shutil.rmtree(place, ignore_errors=True)
    _clear(plan.device)
    entry = make(name, plan.system, plan.recipe, seed)
    try:
        report = entry.fit(pool, budget, place, factor, keep="trial")
    except NumericalError:  # a learning rate that is too large; other failures have nothing to do with it
        return None
    finally:
        shutil.rmtree(place, ignore_errors=True)
    score: float | None = list(report.values())[-1]["score"]
    return score


def _clear(device: torch.device) -> None:
    free_memory()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
