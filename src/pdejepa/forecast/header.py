"""`config.json` of a model: everything but the weights, read strictly.

    {"format": "pdejepa-model", "format_version": 2, "system": "heat", "switches": {...}, "variant": "physics",
     "model": {...sizes...}, "statistics": {...}, "parameters": {...}, "weights_sha256": "9c1e...", ...}

The file may come from anywhere, so nothing in it is believed: its size is bounded, every key and type is checked, and
numbers that would make a network or a grid of absurd size are refused before anything is built.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import torch

from pdejepa import __version__
from pdejepa.core.config import load_config, to_dict
from pdejepa.core.device import single_precision
from pdejepa.core.errors import CheckpointError, ConfigError, UsageError
from pdejepa.models.amplitude import check_scaling
from pdejepa.models.condition import Statistics
from pdejepa.models.surrogate import ModelConfig, Surrogate, Variant
from pdejepa.systems import Switch, System, build_system
from pdejepa.systems.problem import ForcingLaw, Problem

CONFIG_NAME = "config.json"
FORMAT = "pdejepa-model"
FORMAT_VERSION = 2
FORMER_KEYS = ("as_trained",)  # of former versions; they say nothing that a reader needs
MAX_CONFIG_BYTES = 4_000_000
MAX_SIZE = 65_536  # of any width, depth or number of steps in `model`
MAX_DEPTH = 1_024
MAX_POINTS = 2**22  # of one frame
MAX_CHANNELS, MAX_AXES = 64, 3
STAGE_SECONDS = ("data", "pretrain", "align", "dynamics", "decode", "polish", "total")


@dataclass(frozen=True)
class Header:
    """The keys of config.json, in the order in which they are written.

    parameters: {name: {symbol, unit, meaning, train: [lowest, highest] of the train split}}
    lineage: {stage: sha256 of its weights}      seconds: {stage: wall-clock seconds}
    size: data size of the training, which fixes how many trajectories its other splits have
    training: the whole RunConfig, {} if it is not known      steps: {stage: how many it took}
    errors: {split: {"rel_l2": .., ...}}, filled in by `pdejepa evaluate`
    """

    format: Literal["pdejepa-model"]
    format_version: int
    pdejepa: str
    system: str
    switches: dict[str, Switch]
    variant: Variant
    history: int
    recipe: str
    polish: bool
    seed: int
    model: ModelConfig
    statistics: dict[str, Any]
    fields: tuple[str, ...]
    grid: tuple[int, ...]
    times: tuple[float, ...]
    parameters: dict[str, Any]
    lineage: dict[str, str]
    data_hash: str
    seconds: dict[str, float]
    device: str
    torch: str
    commit: str
    errors: dict[str, Any]
    weights_sha256: str
    weights_bytes: int
    weights_dtype: Literal["float32", "float16"]
    size: Literal["tiny", "small", "laptop", "paper"] = "paper"
    training: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    machine: str = ""
    flops: dict[str, float] = field(default_factory=dict)
    problem: dict[str, Any] = field(default_factory=dict)  # empty in format 1, which needs the class of the system

    def build(self, device: str = "cpu") -> Surrogate:
        """The model with the shapes and statistics described, and any weights; on `meta`, with none."""
        _refuse_monsters(self.model)
        try:
            problem = self._problem()
            statistics = _statistics(self.statistics, problem, self.model.encoder.width)
            # Initial weights are drawn and thrown away.
            with torch.random.fork_rng(devices=[]), torch.device(device), single_precision():
                return Surrogate(problem, self.model, self.variant, statistics, self.history)
        except UsageError as error:
            raise CheckpointError(f"The model described cannot be built: {error}") from None
        except (ArithmeticError, RuntimeError, ValueError, IndexError) as error:
            reason = " ".join(str(error).split())[:200]
            raise CheckpointError(f"The model described cannot be built ({type(error).__name__}: {reason}).") from None

    def _problem(self) -> Problem:
        """What the model forecasts: as stored, or, in files of format 1, as the system of that name says."""
        problem = problem_of(self.system, self.switches, self.problem)
        self._compare(problem)
        return problem

    def _compare(self, problem: Problem) -> None:
        """Refuse a model whose problem is not what the other keys say."""
        times = problem.times
        pairs = (
            ("fields", self.fields, problem.fields),
            ("grid", self.grid, problem.grid),
            ("parameters", tuple(self.parameters), problem.parameter_names),
            ("number of frames", len(self.times), len(times)),
        )
        for what, stored, here in pairs:
            if stored != here:
                raise CheckpointError(
                    f"The model was made for another {problem.name}: its {what} are {stored}, here they are {here}."
                )
        if not all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in zip(self.times, times, strict=True)):
            raise CheckpointError(f"The model was made for another {problem.name}: its output times differ.")


def describe(surrogate: Surrogate, details: dict[str, Any], weights: dict[str, Any]) -> dict[str, Any]:
    """The content of config.json.  `details`: what the model itself does not know; `weights`: the weights_* keys."""
    problem, statistics = surrogate.problem, surrogate.statistics
    own = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "pdejepa": __version__,
        "system": problem.name,
        "switches": dict(sorted(problem.switches.items())),
        "variant": surrogate.variant,
        "history": surrogate.history,
        "model": to_dict(surrogate.config),
        "statistics": statistics.to_dict(),
        "fields": list(problem.fields),
        "grid": list(problem.grid),
        "times": list(problem.times),
        "parameters": {
            p.name: {"symbol": p.symbol, "unit": p.unit, "meaning": p.meaning, "train": list(statistics.ranges[p.name])}
            for p in problem.parameters
        },
        "problem": to_dict(problem),
        **weights,
    }
    told = {
        "recipe": "custom",
        "polish": False,
        "seed": 0,
        "lineage": {},
        "data_hash": "",
        "seconds": {},
        "device": "",
        "torch": str(torch.__version__),
        "commit": "",
        "errors": {},
        "size": "paper",
        "training": {},
        "steps": {},
        "machine": "",
        "flops": {},
    }
    unknown = [key for key in details if key not in told and key not in own]
    if unknown:
        raise CheckpointError(f"A model keeps no {', '.join(unknown)}; it keeps {', '.join(told)}.")
    told.update({key: value for key, value in details.items() if key in told})
    values = {**told, **own}
    plain = json.loads(json.dumps({f.name: values[f.name] for f in fields(Header)}))
    parse(plain, "the new model")
    return plain


def read(folder: Path) -> dict[str, Any]:
    """`folder/config.json` as plain data; CheckpointError if it is missing, unreadable, too large or too new."""
    path = folder / CONFIG_NAME
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError(f"{path} is not a regular file.")
        with path.open("rb") as stream:
            raw = stream.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no {CONFIG_NAME}: the model was not saved to its end.") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}).") from None
    if len(raw) > MAX_CONFIG_BYTES:
        raise CheckpointError(f"{path} is larger than {MAX_CONFIG_BYTES // 1_000_000} MB, and no model's.")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({str(error)[:100]}).") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CheckpointError(
            f'{path} does not describe a model: "format" must be "{FORMAT}". '
            "A published solver is loaded by pdejepa.load(...) as well."
        )
    _check_version(data.get("format_version"), path)
    return {key: value for key, value in data.items() if key not in FORMER_KEYS}


def parse(data: dict[str, Any], what: str | Path) -> Header:
    """Plain data as a Header; one CheckpointError names all faults."""
    try:
        return load_config(Header, defaults=data)
    except ConfigError as error:
        faults = "; ".join(problem.removeprefix("defaults: ") for problem in error.problems[:5])
        raise CheckpointError(f"{what} does not describe a model: {faults}.") from None
    except RecursionError:
        raise CheckpointError(f"{what} does not describe a model: it is nested too deeply.") from None


def _check_version(version: Any, path: Path) -> None:
    if type(version) is not int or version < 1:
        raise CheckpointError(f"{path} has no usable format_version; got {str(version)[:40]!r}.")
    if version > FORMAT_VERSION:
        raise CheckpointError(f"Format {version} needs a newer pdejepa; this is {__version__} ({path}).")


def _refuse_monsters(model: ModelConfig) -> None:
    """A network can be described in one line that no machine can build."""
    for part, settings in to_dict(model).items():
        for key, value in settings.items():
            for number in value if isinstance(value, list) else [value]:
                most = MAX_DEPTH if key.endswith(("depth", "layers", "n_blocks")) else MAX_SIZE
                if isinstance(number, int | float) and number > most:
                    raise CheckpointError(f"model.{part}.{key} is {number}; more than {most} is refused.")
        if settings.get("width", 1) * settings.get("mlp_ratio", 1) > MAX_SIZE:
            raise CheckpointError(f"model.{part} describes a layer of more than {MAX_SIZE} units; it is refused.")


def system_of(problem: Problem) -> System:
    """The system that made the data of a problem."""
    try:
        return build_system(problem.name, "paper", dict(problem.switches))
    except UsageError as error:
        raise CheckpointError(
            f"The system {problem.name!r} is not known here, so nothing can be sampled or solved: {error}"
        ) from None


def problem_of(name: str, switches: Mapping[str, Switch], stored: dict[str, Any]) -> Problem:
    """What a file's model forecasts: as stored, or, in files of former versions, as the system of that name says."""
    if not stored:
        return _known_problem(name, switches)
    problem = _stored_problem(stored)
    if (problem.name, problem.switches) != (name, dict(switches)):
        raise CheckpointError(f"The problem stored is {problem.name[:60]!r}, but the model is for {name!r}.")
    return problem


def _known_problem(name: str, switches: Mapping[str, Switch]) -> Problem:
    """The problem of a system by its name, for files that do not hold one."""
    system = build_system(name, "paper", dict(switches))
    n_points = getattr(system, "n_points", 1)
    if not 0 < n_points <= MAX_POINTS or math.prod(system.grid) > MAX_POINTS:
        raise CheckpointError(f"A grid of {n_points} points per axis is refused; it cannot be a model's.")
    return system.problem


def _stored_problem(plain: dict[str, Any]) -> Problem:
    """A problem from a file that may come from anywhere."""
    try:
        problem = load_config(Problem, defaults=plain)
    except ConfigError as error:
        faults = "; ".join(fault.removeprefix("defaults: ")[:200] for fault in error.problems[:3])
        raise CheckpointError(f"The problem stored with the model cannot be read: {faults}.") from None
    sizes = {
        "fields": (len(problem.fields), MAX_CHANNELS),
        "axes": (len(problem.axes), MAX_AXES),
        "points": (math.prod(problem.grid), MAX_POINTS),
        "times": (len(problem.times) - 1, MAX_POINTS),
        "parameters": (len(problem.parameters) + 1, MAX_DEPTH),
        "terms": (len(problem.structure.terms) + 1, MAX_DEPTH),
    }
    for what, (n, most) in sizes.items():
        if not 1 <= n <= most:
            raise CheckpointError(f"A problem with this many {what} is refused; it cannot be a model's.")
    used = {name for term in problem.structure.terms for name in (*term.coefficient.powers, *term.coefficient.equals)}
    unknown = sorted(used - set(problem.parameter_names))
    if unknown:
        raise CheckpointError(f"A term of the problem needs {unknown[0][:60]!r}, which is none of its parameters.")
    return problem.with_law(_law(problem)) if problem.structure.forcing != "none" else problem


def _law(problem: Problem) -> ForcingLaw | None:
    """What computes the forcing, where the system is known; elsewhere a forecast is handed the field."""
    try:
        return build_system(problem.name, "paper", dict(problem.switches)).problem.law
    except UsageError:
        return None


def _statistics(data: dict[str, Any], problem: Problem, width: int) -> Statistics:
    """The statistics, complete and finite."""
    known = {f.name for f in fields(Statistics)}
    if set(data) not in (known, known - {"unit_ranges"}):  # older models take fields as they are
        raise CheckpointError(f"The statistics must hold {', '.join(sorted(known))}; got {', '.join(sorted(data))}.")
    statistics = Statistics.from_dict(data)
    if statistics.unit_ranges:
        check_scaling(problem)
    n_channels, terms = len(problem.fields), [term.name for term in problem.structure.terms]
    is_complete = (
        len(statistics.mean) == len(statistics.std) == n_channels
        and set(statistics.ranges) == set(problem.parameter_names)
        and set(statistics.unit_ranges) in (set(), set(problem.parameter_names))
        and set(statistics.coefficients) == set(terms)
        and {len(statistics.latent_mean), len(statistics.latent_std)} in ({0}, {width})
    )
    if not is_complete:
        raise CheckpointError(f"The statistics do not fit {problem.name}: a channel, parameter, term or width differs.")
    scales = (*statistics.std, *statistics.latent_std, statistics.velocity_scale)
    scales += tuple(scale for _, scale in statistics.coefficients.values())
    others = (*statistics.mean, *statistics.latent_mean, *(centre for centre, _ in statistics.coefficients.values()))
    others += tuple(end for pair in (*statistics.ranges.values(), *statistics.unit_ranges.values()) for end in pair)
    if not all(map(math.isfinite, (*scales, *others))) or min(scales) <= 0:
        raise CheckpointError("The statistics hold a value that is not finite, or a scale that is not positive.")
    return statistics
