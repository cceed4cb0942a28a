"""A comparison: data once, then every competitor in turn; each result is a file, and a result that exists is kept.

    DIR/
      combined-fno-fast-paper-180s-s0.json           system, solver, recipe, size of data, budget, seed: errors and cost
      runs/combined-fno-fast-paper-180s-s0/          its training: metrics, and the trained solver in `model`
      runs/combined-fno-fast-paper-180s-s0.trials    how the trials for its learning rate ended

Every competitor, the method of this package too, gets the same three short trials for its learning rate (a third of
the recipe's, as it is, three times as much) and nothing else is tuned.  The best score on valid wins; for solvers that
fit codes, which are known on train only, the best on train (`studies.compare.trials`: short budgets that count all
have none).  A longer budget with trials of the same length takes over
those of a record in the same folder.

By the recipe laptop on a CPU a budget in seconds is what a user waits for: set-up, trials and training together, kept
within a tenth.  A solver is refused if one of its steps takes more than a fiftieth of it.  Data, judgement and files
stay outside, and the operations of a forecast are counted after it.

Otherwise a budget is a time, or a number of steps or operations (`pdejepa.training.budget`).  Seconds are those of
training: the warm-up, on a GPU the recording of steps, scores, and steps, whose schedule follows the clock and which
end in time (`pdejepa.training.timing`).  Trials do not count their warm-up, or they could be over before they begin.
Data, the building of the network, the judgement and files stay outside (checkpoints of a hundred million parameters
would take a large part of three minutes), and so does what a GPU compiles: a competitor with compiled parts first
trains for a few steps that are thrown away.

At unit amplitude all data are rescaled to rms 1, and parameters with them, for all who take part (`models.amplitude`).
Who learns one code per environment is refused where that gives its trajectories parameters of their own.

A competitor that fails is named and left out, and the others go on; the same command tries it again.  One that is
interrupted keeps the trials that were done; its training begins anew.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch

from pdejepa import systems
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.core.device import device_name, machine_name, used_memory
from pdejepa.core.errors import ConfigError, Interrupted, NumericalError, PdejepaError, did_you_mean
from pdejepa.core.files import lock, remove_leftovers, write_json
from pdejepa.core.load import is_busy, load_and_cores
from pdejepa.evaluate.record import METHOD, parse, to_plain
from pdejepa.method import recipes
from pdejepa.models.amplitude import Amplitude, check_scaling
from pdejepa.studies.compare.cards import card_of
from pdejepa.studies.compare.comparison_records import SolverRecord, budget_key, read_record
from pdejepa.studies.compare.competitors import Entry, longest_history
from pdejepa.studies.compare.judgement import is_blind, judge, speed, true_frames
from pdejepa.studies.compare.training_curve import curve
from pdejepa.studies.compare.trials import clear, has_trials, keep_trials, trial, trial_budget, trials_of
from pdejepa.studies.compare.turns import Comparison, Turn, forecasters, records_before
from pdejepa.studies.compare.unknown_parameters import blind_error
from pdejepa.systems import build_system
from pdejepa.systems.structure import SIZES
from pdejepa.training import timing
from pdejepa.training.budget import TotalBudget
from pdejepa.training.timing import Limit

LEAST_SHARE = 0.1  # of a budget that counts trials: what must be left to train
COMPILE_STEPS = 8  # of every stage, thrown away, so that no trial pays for compiling; they meet the usual shapes
N_JUDGED = 240  # trajectories of a split, at most: some solvers fit a code to each, or draw word after word


def compare(plan: Comparison, say: Callable[[str], object] = print) -> list[SolverRecord]:
    """Run what is missing; return all records.  One process at a time: another one in the same folder waits."""
    recipes.get(plan.system, plan.recipe)  # refuses unknown names
    if plan.size not in SIZES:
        hint = did_you_mean(plan.size, SIZES) or "."
        raise ConfigError(f"unknown size {plan.size!r}{hint} Sizes: {', '.join(SIZES)}.")
    if plan.amplitude not in get_args(Amplitude):
        hint = did_you_mean(plan.amplitude, get_args(Amplitude)) or "."
        raise ConfigError(f"unknown amplitude {plan.amplitude!r}{hint} Choose {' or '.join(get_args(Amplitude))}.")
    if plan.amplitude == "unit":
        check_scaling(systems.get(plan.system).problem)
    with lock(plan.out, say=say):
        remove_leftovers(plan.out)
        return _compare(plan, say)


def _compare(plan: Comparison, say: Callable[[str], object]) -> list[SolverRecord]:
    able = forecasters(plan)
    for name in plan.solvers:
        if name not in able:
            say(f"{card_of(name).title}: skipped, it makes representations and no forecasts")
    if not able:
        raise ConfigError(f"None of the solvers makes forecasts; got {', '.join(plan.solvers)}. Give others.")
    turns = [(seed, name) for seed in range(plan.seeds) for name in able]
    places = [(seed, name, plan.out / f"{plan.name(name, seed)}.json") for seed, name in turns]
    waiting = [name for _, name, path in places if not path.exists()]
    for name in dict.fromkeys(waiting):
        card = card_of(name)
        if card.package and importlib.util.find_spec(card.package) is None:
            extra = "classical" if card.is_closed_form else card.name
            say(f'{card.title} will be left out, unless you stop and say: pip install "pdejepa[{extra}]"')
    pool = _pool(plan, waiting, say) if waiting else None
    known = {path: _read(path, plan, name, seed, pool) for seed, name, path in places if path.exists()}  # refused now
    left = [place for place in places if place[2] not in known]
    for number, (seed, name, path) in enumerate(left, 1):
        assert pool is not None
        record = _tried(Turn(plan, name, seed, pool), path, f"{number} of {len(left)}", say)
        if record is None:
            clear(plan.device)  # here, where nothing of the failed training is held any more
            continue
        known[path] = record
    return [known[path] for *_, path in places if path in known]


def _check_machine(plan: Comparison, say: Callable[[str], object]) -> None:
    """Say so if a CPU is too slow for the recipe, or busy: then threads wait, and make a fiftieth of their steps."""
    if plan.recipe in ("fast", "paper"):
        say(
            f"The recipe {plan.recipe} is made for a data-centre GPU: on a CPU a stage takes two steps at least, which "
            "may last minutes whatever the budget. Use --recipe laptop."
        )
    if is_busy():
        load, n = load_and_cores()
        say(
            f"This machine was busy in the last minute (load {load:.1f}, {n} cores). If it stays so, seconds buy few "
            "steps here and errors mean little; OMP_NUM_THREADS=1 loses least."
        )


def _question(plan: Comparison, name: str, seed: int) -> tuple[Any, ...]:
    """What the name of a record promises, see `SolverRecord.question`."""
    amplitude = None if plan.amplitude == "as_is" else plan.amplitude
    return plan.system, name, plan.recipe, plan.size, plan.budget, amplitude, seed


def _read(path: Path, plan: Comparison, name: str, seed: int, pool: Pool | None) -> SolverRecord:
    """A record; one of another device, or of other data, is not an answer to what is asked now."""
    record, here = read_record(path), device_name(plan.device)
    if record is None or record.question != _question(plan, name, seed):
        raise ConfigError(f"{path} is not the record that its name promises. Use another --out, or remove it.")
    if record.device != here:
        raise ConfigError(f"{path} was measured on {record.device}, this is {here}. Use another --out.")
    if pool is not None and record.data_hash != pool.data.hash:
        raise ConfigError(
            f"{path} was measured on other data (hash {record.data_hash[:12]}, now {pool.data.hash[:12]}). "
            "Use another --out, or remove it."
        )
    return record


def _pool(plan: Comparison, waiting: Sequence[str], say: Callable[[str], object]) -> Pool:
    """The data of all splits, on the grid of the recipe; and what a frame tells, if a waiting solver needs it."""
    if plan.device.type == "cpu":
        _check_machine(plan, say)
    system = build_system(plan.system, plan.size, dict(recipes.get(plan.system, plan.recipe).switches))
    judged = ["test", *(split.name for split in system.splits if split.is_ood)]
    counts = {name: system.split(name).size(plan.size) for name in ("train", "valid", *judged)}
    counts |= {name: min(counts[name], N_JUDGED) for name in judged}
    begun = time.monotonic()
    pool = build_pool(system, counts, plan.device, amplitude=plan.amplitude)
    pool.tail_from = longest_history(pool.task, plan.recipe)
    say(f"{plan.system}: {sum(counts.values()):,} trajectories in {time.monotonic() - begun:.1f} s")
    if any(is_blind(card_of(name)) for name in waiting):
        pool.floors = _floors_before(plan, pool.data.hash)
        if set(judged) - set(pool.floors):
            say(f"{plan.system}: solving for what can be known from one frame without the parameters")
            pool.floors = {split: blind_error(pool, split) for split in judged}
    return pool


def _floors_before(plan: Comparison, data_hash: str) -> dict[str, float | None]:
    """What can be known from one frame, where a record of the same data tells it."""
    known: dict[str, float | None] = {}
    for record in records_before(plan, f"{plan.system}-*.json"):
        if record.data_hash == data_hash:
            blind = {split: part.blind for split, part in record.errors.items()}
            known |= {split: value for split, value in blind.items() if value is not None}
    return known


def _tried(turn: Turn, path: Path, number: str, say: Callable[[str], object]) -> SolverRecord | None:
    """The record of one competitor, written, or None if it failed: that must not cost the others their turn."""
    plan, title = turn.plan, card_of(turn.solver).title
    long = f"{trial_budget(plan.budget).words(3)} for each of three learning rates, then {plan.budget.words()}"
    counted = "; operations are counted first" if plan.budget.unit == "flops" else ""  # on a CPU it may take a while
    if plan.counts_all:
        tried = "set-up, three trials and training together"
        long = f"{plan.budget.words()} for {tried if has_trials(plan) else 'set-up and training, too short for trials'}"
    what = "fitted at once, whatever the budget" if card_of(turn.solver).is_closed_form else f"{long}{counted}"
    say(f"{title} ({number}), seed {turn.seed}: {what}")
    try:
        record = replace(_one(turn), file=str(path))
        write_json(path, to_plain(record))
    except Interrupted:
        raise
    except PdejepaError as error:
        say(f"{title}: {error}")
    except OSError as error:
        say(f"{title}: {error.strerror or error} ({error.filename}); it is left out.")
    except torch.OutOfMemoryError:
        say(f"{title}: out of memory on {plan.device}; it is left out.")
    except Exception:  # a mistake of ours
        say(f"{title}: failed.\n{traceback.format_exc()}")
    else:
        test, n_steps = record.error("test") or 0.0, sum(record.steps.values())
        say(f"{title}: test {test:.3%}, {n_steps:,} steps, {record.seconds:.0f} s")
        return record
    return None


def _one(turn: Turn) -> SolverRecord:
    """Train and judge one competitor."""
    import torch._dynamo  # a second of its own

    plan, pool, card = turn.plan, turn.pool, card_of(turn.solver)
    pool.task.check(card)
    torch._dynamo.reset()  # there is a limit to what one process keeps compiled
    if plan.device.type == "cuda" and turn.entry().has_compiled_parts(pool):
        trial(turn, 1.0, TotalBudget("steps", COMPILE_STEPS * len(card.stages)))
    entry, report, factor, trials, seconds = _trained(turn)
    entry.save(turn.folder / "model")
    trained = {
        "seconds": seconds if plan.counts_all else sum(part["seconds"] for part in report.values()),
        "trial_seconds": _trial_seconds(trials) if plan.counts_all else None,
        "curve": curve(turn.folder, report, entry.field_stages, seconds if plan.counts_all else None),
        "steps": {stage: part["steps"] for stage, part in report.items()},
        "learning_rate_factor": factor,
        "trials": trials,
        "parameters": entry.n_parameters,
        "peak_memory_bytes": used_memory(plan.device),
    }
    splits = [split for split in pool.data.fields if split not in ("train", "valid")]
    errors = {split: judge(entry, pool, split) for split in splits}
    flops = entry.forecast_flops(pool) if plan.counts_all else None
    costs = {**trained, **speed(entry, pool, "test"), "flops_per_forecast": flops}
    told = {**_asked(turn, entry), "errors": errors, **costs, **_where(turn)}
    return parse(SolverRecord, told)


def _asked(turn: Turn, entry: Entry) -> dict[str, Any]:
    """What is compared: the part of a record that does not depend on how it goes."""
    plan, card = turn.plan, card_of(turn.solver)
    solver, _, network = turn.solver.partition("@")
    return {
        "system": plan.system,
        "solver": solver,
        "network": network or None,
        "title": card.title,
        "recipe": plan.recipe,
        "variant": recipes.get(plan.system, plan.recipe).variant if turn.solver == METHOD else "",
        "size": plan.size,
        "seed": turn.seed,
        "amplitude": None if plan.amplitude == "as_is" else plan.amplitude,
        budget_key(plan.budget.unit): plan.budget.amount,
        "weights": "scratch",
        "true_frames": true_frames(entry, turn.pool),
        "is_blind": is_blind(card),
        "adapts": card.adapts,
    }


def _where(turn: Turn) -> dict[str, Any]:
    """With which code, on which machine and data."""
    return {
        "device": device_name(turn.plan.device),
        "machine": machine_name(turn.plan.device),
        "torch": torch.__version__,
        "commit": turn.plan.commit,
        "data_hash": turn.pool.data.hash,
    }


def _trained(turn: Turn) -> tuple[Entry, dict[str, Any], float, list[dict[str, Any]], float]:
    """The competitor after its training with the learning rate whose short trial ended with the best score on valid.

    Trials are done once.  A rate that survived its trial and not the training counts as failed: the next one is taken.
    Last, the seconds of all that was done, trials and failed trainings included.
    """
    begun = timing.clock()
    if card_of(turn.solver).is_closed_form:  # nothing to try, and no budget to keep
        entry = turn.entry()
        report = entry.fit(turn.pool, turn.plan.budget, turn.folder, 1.0, keep="memory")
        return entry, report, 1.0, [], timing.clock() - begun
    if not has_trials(turn.plan):
        entry = turn.entry()
        return entry, _fit(turn, entry, 1.0, begun), 1.0, [], timing.clock() - begun
    trials = trials_of(turn)
    begun = timing.clock() - _trial_seconds(trials)  # some may be of an earlier process
    while good := [one for one in trials if one["score"] is not None]:
        keep_trials(turn, trials)
        best = min(good, key=lambda one: one["score"])
        entry = turn.entry()
        try:
            report = _fit(turn, entry, best["factor"], begun)
        except NumericalError:
            best["score"] = None
            continue
        return entry, report, best["factor"], trials, timing.clock() - begun
    raise ConfigError(f"{turn.solver} diverged with all three learning rates, so it is left out.")


def _fit(turn: Turn, entry: Entry, factor: float, begun: float) -> dict[str, Any]:
    """The report of a training that begins anew."""
    limit = _limit(turn, begun)
    clear(turn.plan.device)
    shutil.rmtree(turn.folder, ignore_errors=True)
    return entry.fit(turn.pool, turn.plan.budget, turn.folder, factor, keep="memory", limit=limit)


def _trial_seconds(trials: Sequence[dict[str, Any]]) -> float:
    return sum(one.get("seconds", 0.0) for one in trials)


def _limit(turn: Turn, begun: float) -> Limit | None:
    """When a training ends whose budget counts all that was done since `begun`; refused if nothing is left for it."""
    if not turn.plan.counts_all:
        return None
    limit = Limit(begun + turn.plan.budget.amount, turn.plan.budget.amount)
    if limit.left < LEAST_SHARE * limit.seconds:
        raise ConfigError(
            f"{turn.solver} has {limit.left:.3g} s of its {limit.seconds:.4g} s left after its trials, too few to "
            "train. Give more seconds."
        )
    return limit
