"""The record of a result: who forecasts which system, and with which errors on which splits.

    results/combined-fast-polish-s0.json                    Evaluation    `evaluate.evaluations`
    results/compare/combined-fno-fast-paper-180s-s0.json    SolverRecord  `studies.compare.comparison_records`
    results/ablate-combined-fast.json                       Ablation      `studies.ablate.ablation_record`

    {"system", "solver", "recipe", "variant", "seed", "errors": {split: {"rel_l2", "rel_l2_joint", "n", ...}}, ...}

All have these keys; a study adds its own.  A record may come from anywhere, so every key, type and bound is checked
when it is read, by `core.config.load_config`.  An unknown key is an error: no committed file needs another rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from pdejepa.core.config import load_config
from pdejepa.core.errors import ConfigError
from pdejepa.systems import is_known

METHOD = "pdejepa"
LARGEST, LARGEST_WHOLE = 1e300, 2**63  # of numbers; in a JSON file they may be anything
MAX_FRAMES = 100_000

Number = float | None
T = TypeVar("T")


# ---- what is recorded ---------------------------------------------------------------------------------------------
class Checked:
    """A part of a record.  Its numbers are not negative, its texts print."""

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):  # type: ignore[arg-type]
            for value in _leaves(getattr(self, name)):
                if isinstance(value, str) and not value.isprintable():
                    raise ConfigError(f"{name} has letters that do not print: {value[:40]!r}")
                largest = LARGEST_WHOLE if isinstance(value, int) else LARGEST
                if isinstance(value, int | float) and not 0 <= value < largest:
                    raise ConfigError(f"{name} must be 0 or more and below {largest:.3g}, got {str(value)[:40]}")


@dataclass(frozen=True)
class SplitErrors(Checked):
    """Errors over n trajectories of one split (`evaluate.metrics`); None where one was not measured.

    per_channel, per_frame, trajectories: the same error taken apart
    repeat_first: of the first frame repeated             blind: of the mean over unknown parameters
    tail, tail_from: over the frames from that one on     n_unstable, n_diverged: forecasts that did not stay finite
    source: the data set that the truth was read from
    """

    rel_l2: Number
    rel_l2_joint: Number
    n: int
    rel_l2_all_frames: Number = None
    median: Number = None
    last_frame: Number = None
    per_channel: dict[str, Number] = field(default_factory=dict)
    per_frame: tuple[Number, ...] = ()
    repeat_first: Number = None
    blind: Number = None
    tail: Number = None
    tail_from: int | None = None
    n_unstable: int | None = None
    n_diverged: int | None = None
    trajectories: tuple[Number, ...] = ()
    source: str = "generated"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.per_frame) > MAX_FRAMES:
            raise ConfigError(f"per_frame must have at most {MAX_FRAMES:,} numbers, got {len(self.per_frame):,}")

    @property
    def data(self) -> str:
        """Name of the data set, empty if the truth was generated."""
        return "" if self.source == "generated" else Path(self.source).name


@dataclass(frozen=True, kw_only=True)
class Record(Checked):
    """What every result tells; `file` is the name of the file that it was read from, and is not written."""

    system: str
    solver: str = METHOD
    recipe: str = ""
    variant: str = ""
    seed: int
    errors: dict[str, SplitErrors]
    device: str = ""
    machine: str | None = None  # which processor, and how many threads; None in older records
    torch: str = ""
    commit: str = ""
    data_hash: str = ""
    file: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_generated = any(found.source == "generated" for found in self.errors.values())
        if is_generated and not is_known(self.system):  # stored truth needs no system
            raise ConfigError(f"unknown system {self.system[:40]!r}")
        if not re.fullmatch(r"\w+", self.system, re.ASCII):
            raise ConfigError(f"{self.system[:40]!r} is not the name of a system")
        for split in self.errors:
            if not re.fullmatch(r"\w+", split, re.ASCII):
                raise ConfigError(f"errors: {split[:40]!r} is not the name of a split")


# ---- to and from plain data ---------------------------------------------------------------------------------------
def parse(kind: type[T], plain: Mapping[str, Any]) -> T:
    """Plain data as a record of that kind; ValueError says in a few words the first thing that is wrong."""
    try:
        return load_config(kind, defaults=plain)
    except ConfigError as error:
        raise ValueError(error.problems[0].removeprefix("defaults: ").removeprefix("configuration: ")) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def to_plain(part: Any) -> Any:
    """A record, or a part of it, as JSON has it; keys that have nothing to tell are left out."""
    if is_dataclass(part) and not isinstance(part, type):
        known = {f.name: getattr(part, f.name) for f in fields(part) if f.name != "file" and not _is_empty(f, part)}
        return {name: to_plain(value) for name, value in known.items()}
    if isinstance(part, dict):
        return {key: to_plain(value) for key, value in part.items()}
    return [to_plain(value) for value in part] if isinstance(part, list | tuple) else part


def _is_empty(f: Field[Any], part: Any) -> bool:
    """Whether a field has its default, and that is nothing: None, () or {}."""
    default = f.default_factory() if f.default_factory is not MISSING else f.default
    return default is not MISSING and default in (None, (), {}) and getattr(part, f.name) == default


def _leaves(value: Any) -> Iterator[Any]:
    """Numbers and texts of nested lists and dictionaries, the keys among them."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str | int | float):
        yield value
