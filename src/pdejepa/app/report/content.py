"""Read a run folder into one object, whatever state it is in (the folder is drawn in `core.run_folder`).

    read_run(RUN) -> RunContent
      train       the configuration               data      hash and statistics of the data
      stages      one StageContent for each: how far it came, logged lines, scores, selected step, hash
      model       config.json of RUN/model, or {}  errors    {split: {"rel_l2": ..}} of the model and of RUN/results
      problems    a sentence for everything that is missing or damaged

Nothing in the files is believed: sizes are bounded, wrong types count as missing, and a file that cannot be read
becomes a sentence.  Only a folder that is not a run at all is refused.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdejepa.core.errors import CheckpointError, PdejepaError
from pdejepa.core.run_folder import METHOD_STAGES, STAGES, RunFolder
from pdejepa.forecast.header import problem_of
from pdejepa.systems import System, build_system, is_known
from pdejepa.systems.problem import Problem
from pdejepa.training.metrics_log import read_lines

MAX_JSON_BYTES = 4_000_000
MAX_LINES_BYTES = 100_000_000
MAX_POINTS = 2**22  # of one axis; more is damage
MAX_SPLITS = 30  # whose errors are shown
LARGEST = 1e30  # values and steps beyond it are damage, and no axis can show them

Plain = dict[str, Any]


@dataclass(frozen=True)
class StageContent:
    """What one stage left behind.  `train` and `valid` are lines {"step": n, key: value, ...}."""

    name: str
    is_begun: bool = False
    is_done: bool = False
    n_planned: int | None = None
    n_done: int | None = None
    seconds: float | None = None
    flops: float | None = None
    selected: int | None = None  # step whose weights were kept
    score: float | None = None  # of the selected step
    sha256: str = ""
    train: tuple[Plain, ...] = ()
    valid: tuple[Plain, ...] = ()

    @property
    def loss(self) -> float | None:
        """The last loss that was logged."""
        return next((value for line in reversed(self.train) if (value := number(line.get("loss"))) is not None), None)

    @property
    def judged(self) -> Plain:
        """Everything measured on valid at the selected step, or at the last measured one; empty if nothing was."""
        chosen = [line for line in self.valid if line["step"] == self.selected]
        return (chosen or list(self.valid) or [{}])[-1]


@dataclass(frozen=True)
class RunContent:
    """A run folder; see the legend above."""

    root: Path
    train: Plain
    versions: Plain
    data: Plain
    stages: dict[str, StageContent]
    model: Plain
    errors: dict[str, Plain]
    system: System | None  # with its solver, where it is known
    problem: Problem | None
    problems: tuple[str, ...]

    @property
    def asked(self) -> tuple[str, ...]:
        """The stages that make up this run: those of the configuration and those that were begun."""
        named = self.train.get("stages")
        wanted = [name for name in named if isinstance(name, str)] if isinstance(named, list) else list(METHOD_STAGES)
        if self.train.get("variant") == "vanilla":
            wanted = [name for name in wanted if name != "align"]
        return tuple(name for name in STAGES if name in wanted or self.stages[name].is_begun)

    @property
    def is_done(self) -> bool:
        return bool(self.asked) and all(self.stages[name].is_done for name in self.asked)

    @property
    def valid_error(self) -> float | None:
        """Relative error of forecasts on valid, as the last stage that makes fields measured it."""
        for name in ("polish", "decode"):
            if self.stages[name].is_done and self.stages[name].score is not None:
                return self.stages[name].score
        return None


# ---- values ----------------------------------------------------------------------------------------------------
def number(value: Any) -> float | None:
    """A finite number of sane size, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LARGEST else None  # NaN compares as False


def dig(data: Any, *keys: str) -> Any:
    """data[key][key]..., or None where a level is missing or no mapping."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def series(lines: Sequence[Plain], key: str) -> tuple[list[int], list[float]]:
    """Steps and values of one measure, where it is a number."""
    found = [(line["step"], value) for line in lines if (value := number(line.get(key))) is not None]
    return [step for step, _ in found], [value for _, value in found]


# ---- reading ---------------------------------------------------------------------------------------------------
def read_run(path: str | Path) -> RunContent:
    """Everything about the run; CheckpointError if the folder is not a run."""
    folder = RunFolder(Path(path))
    reader = _Reader()
    config = reader.read_json(folder.config) if folder.root.is_dir() else {}
    _refuse_others(folder.root, config)
    train = _mapping(config.get("train"))
    if not train:
        reader.problems.append("The configuration (config.json) is missing or damaged, so settings are not known.")
    stages = {name: reader.read_stage(folder.stage(name), name) for name in STAGES}
    has_model = (folder.model / "config.json").exists()
    model = reader.read_json(folder.model / "config.json") if has_model else {}
    system = reader.find_system(train or model, has_problem=bool(model.get("problem")))
    return RunContent(
        root=folder.root,
        train=train,
        versions={key: str(config[key]) for key in ("pdejepa", "torch") if isinstance(config.get(key), str)},
        data=reader.read_json(folder.data) if folder.data.exists() else {},
        stages=stages,
        model=model,
        errors=reader.read_errors(folder.root, model),
        system=system,
        problem=system.problem if system is not None else reader.find_problem(model),
        problems=tuple(dict.fromkeys(reader.problems)),
    )


def _refuse_others(root: Path, config: Plain) -> None:
    if not root.exists():
        raise CheckpointError(f"There is no folder {root}; give the folder of a run, the --out of `pdejepa train`.")
    if not root.is_dir():
        raise CheckpointError(f"{root} is a file; give the folder of a run, the --out of `pdejepa train`.")
    if config.get("format") == "pdejepa-model":
        raise CheckpointError(f"{root} is a model, not a run; give the folder of the training that it came from.")
    if not _mapping(config.get("train")) and not any((root / name).is_dir() for name in STAGES):
        raise CheckpointError(
            f"{root} is not a run of pdejepa: it holds neither the config.json of a training nor a stage. "
            "Give the --out of `pdejepa train`."
        )


@dataclass
class _Reader:
    """Reads files of a run and collects what is wrong with them."""

    problems: list[str] = field(default_factory=list)

    def read_json(self, path: Path) -> Plain:
        """The mapping in a file, or {}."""
        try:
            raw = _read_bounded(path, MAX_JSON_BYTES)
            data = json.loads(raw)
            if isinstance(data, dict):
                return data
            raise ValueError("no mapping")
        except FileNotFoundError:
            self.problems.append(f"{_short(path)} is missing.")
        except (OSError, ValueError, RecursionError) as error:
            self.problems.append(f"{_short(path)} cannot be read ({str(error)[:100]}).")
        return {}

    def read_stage(self, folder: Path, name: str) -> StageContent:
        if not folder.is_dir():
            return StageContent(name)
        plan = self.read_json(folder / "plan.json")
        is_done = (folder / "done.json").exists()
        done = self.read_json(folder / "done.json") if is_done else {}
        lines = self.read_steps(folder / "metrics.jsonl")
        train, valid = (_lines_of(lines, kind) for kind in ("train", "valid"))
        times = self.read_steps(folder / "timings.jsonl") if (folder / "timings.jsonl").exists() else []
        spent = [seconds for line in times if (seconds := number(line.get("seconds"))) is not None]
        seconds = number(done.get("seconds"))
        return StageContent(
            name,
            is_begun=True,
            is_done=bool(done),
            n_planned=_whole(plan.get("steps")),
            n_done=_whole(done.get("steps")) or max((line["step"] for line in lines), default=0),
            seconds=max(spent, default=None) if seconds is None else seconds,
            flops=number(done.get("flops")),
            selected=_whole(done.get("step")),
            score=number(done.get("score")) if done else next(reversed(series(valid, "score")[1]), None),
            sha256=str(done.get("weights_sha256") or ""),
            train=train,
            valid=valid,
        )

    def read_steps(self, path: Path) -> list[Plain]:
        """The sound lines of a .jsonl file, by step; a last line without its end is a crash's, and no damage."""
        try:
            n_lines = _read_bounded(path, MAX_LINES_BYTES).count(b"\n")
            lines = read_lines(path)
        except FileNotFoundError:
            self.problems.append(f"{_short(path)} is missing, so there is nothing to draw of it.")
            return []
        except (OSError, ValueError) as error:
            self.problems.append(f"{_short(path)} cannot be read ({str(error)[:100]}).")
            return []
        sound = [line for line in lines if 0 <= line["step"] <= LARGEST]
        if len(sound) < n_lines:
            lost = n_lines - len(sound)
            self.problems.append(f"{_short(path)}: {lost} of {n_lines} lines are damaged and were left out.")
        return sorted(sound, key=lambda line: line["step"])

    def read_errors(self, root: Path, model: Plain) -> dict[str, Plain]:
        """Errors in the records of RUN/results that belong to the model, and those in the model itself."""
        found: dict[str, Plain] = {}
        digest = model.get("weights_sha256")
        paths = sorted((root / "results").glob("*.json")) if (root / "results").is_dir() else []
        for record in (self.read_json(path) for path in paths[:100]):
            if not model or record.get("weights_sha256") == digest:
                found.update(_errors_in(record))
        for split, told in _errors_in(model).items():
            found[split] = {**told, **{key: value for key, value in found.get(split, {}).items() if key not in told}}
        return dict(list(found.items())[:MAX_SPLITS])

    def find_problem(self, model: Plain) -> Problem | None:
        """What a finished model forecasts, where no system is known."""
        try:
            return problem_of(str(model["system"]), _mapping(model.get("switches")), model["problem"])
        except (PdejepaError, KeyError, TypeError, ValueError):
            return None

    def find_system(self, train: Plain, has_problem: bool = False) -> System | None:
        """The system of the configuration; of data without one the model knows the problem."""
        name = train.get("system")
        if not isinstance(name, str):
            self.problems.append("The configuration names no system.")
            return None
        if train.get("data") and not is_known(name):
            if not has_problem:
                told = "is data without a system; its fields are told when there is a model"
                self.problems.append(f"{name[:60]} {told}.")
            return None
        try:
            size = train.get("size", "paper")
            system = build_system(name, size, _mapping(train.get("switches")))
            if getattr(system, "n_points", 1) > MAX_POINTS:
                raise ValueError(f"a grid of {getattr(system, 'n_points', 0)} points per axis")
            _ = system.grid, system.times  # whatever is wrong with the switches shows here
        except (PdejepaError, ArithmeticError, RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
            self.problems.append(f"The system of the configuration cannot be built: {str(error)[:200]}")
            return None
        return system


def _read_bounded(path: Path, limit: int) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("not a regular file")
    with path.open("rb") as stream:
        raw = stream.read(limit + 1)
    if len(raw) > limit:
        raise ValueError(f"larger than {limit // 1_000_000} MB")
    return raw


def _lines_of(lines: list[Plain], kind: str) -> tuple[Plain, ...]:
    return tuple({**_mapping(line[kind]), "step": line["step"]} for line in lines if kind in line)


def _errors_in(record: Plain) -> dict[str, Plain]:
    return {str(split): told for split, told in _mapping(record.get("errors")).items() if isinstance(told, dict)}


def _mapping(value: Any) -> Plain:
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= LARGEST else None


def _short(path: Path) -> str:
    """`decode/metrics.jsonl`, or the name alone for files of the run itself."""
    return f"{path.parent.name}/{path.name}" if path.parent.name in (*STAGES, "model", "results") else path.name
