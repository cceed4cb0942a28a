"""Evaluations: the errors of one model on whole splits, their files, and all those of a folder.

    found = read_evaluations(Path("results"))
    found.records       what could be understood, in the order of the files' names
    found.skipped       ("generate-cpu.json", "no record of an evaluation"), ...

What cannot be understood is named and left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from pdejepa.core.errors import CheckpointError, ConfigError, DataError
from pdejepa.core.files import read_json, write_json
from pdejepa.core.tables import Table
from pdejepa.core.text import percent, printable
from pdejepa.evaluate.published import metric_of
from pdejepa.evaluate.record import Number, Record, SplitErrors, parse, to_plain
from pdejepa.forecast import header
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.locate import shipped_models
from pdejepa.models.surrogate import Variant
from pdejepa.systems import Switch, get, is_known, switch_values

NO_RECORD = "no record of an evaluation"


@dataclass(frozen=True, kw_only=True)
class Evaluation(Record):
    """The errors of one model of the method.

    seconds, flops: of the parts of its training; `total` seconds of all together
    switches: of the system, where they differ from the benchmark's: such errors are not those of the published data
    """

    variant: Variant
    polish: bool = False
    observed_frames: int
    seconds: dict[str, Number] = field(default_factory=dict)
    flops: dict[str, Number] = field(default_factory=dict)
    switches: dict[str, Switch] = field(default_factory=dict)
    weights_sha256: str = ""
    weights_bytes: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.observed_frames < 1:
            raise ConfigError(f"observed_frames must be 1 or more, got {self.observed_frames}")
        for split, found in self.errors.items():
            if found.n_unstable is None:
                raise ConfigError(f"errors: {split} lacks n_unstable")

    @property
    def source(self) -> str:
        """The data sets that the truth was read from; empty if it was generated."""
        return ", ".join(sorted({found.data for found in self.errors.values()} - {""}))

    @property
    def kind(self) -> tuple[str, str, bool, int, str, str, str]:
        """Equal for records that differ in nothing but the seed."""
        switches = ", ".join(f"{name}={value}" for name, value in sorted(self.switches.items()))
        return self.system, self.variant, self.polish, self.observed_frames, self.source, self.recipe, switches

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two records of the same forecasts."""
        return *self.kind, self.weights_sha256 or self.file

    @property
    def file_name(self) -> str:
        """heat-tiny-s0.json, burgers-paper-geo-polish-s1.json: SYSTEM-RECIPE[-VARIANT][-polish]-sSEED.json"""
        variant = "" if self.variant == "physics" else f"-{self.variant}"
        polish = "-polish" if self.polish else ""
        recipe = re.sub(r"[^A-Za-z0-9_.]+", "_", self.recipe)  # it may come from anywhere
        return f"{self.system}-{recipe}{variant}{polish}-s{self.seed}.json"


def make_record(
    forecaster: Forecaster, errors: Mapping[str, SplitErrors], observed: int | None = None
) -> Evaluation:
    """The record of `evaluate(forecaster, ...)`; what is not known is an empty text or None."""
    details = forecaster.details
    seconds = details.get("seconds", {})
    words = ("device", "torch", "commit", "data_hash", "weights_sha256")
    return Evaluation(
        system=forecaster.problem.name,
        recipe=printable(str(details.get("recipe", "custom"))),
        variant=forecaster.surrogate.variant,
        polish=bool(details.get("polish", False)),
        seed=details.get("seed", 0),
        observed_frames=observed or forecaster.surrogate.history,
        errors=dict(errors),
        seconds={name: seconds.get(name) for name in header.STAGE_SECONDS},
        machine=printable(str(details.get("machine", ""))) or None,
        flops=dict(details.get("flops", {})),
        switches=_other_switches(forecaster),
        weights_bytes=details.get("weights_bytes", 0),
        **{key: printable(str(details.get(key, ""))) for key in words},
    )


def _other_switches(forecaster: Forecaster) -> dict[str, Switch]:
    """Switches of the system that made the data, where they are not those of the benchmark."""
    usual = switch_values(get(forecaster.problem.name)) if is_known(forecaster.problem.name) else {}
    return {name: value for name, value in forecaster.problem.switches.items() if usual.get(name) != value}


# ---- reading -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Found:
    """Records, and what was left out, each as name and why."""

    records: tuple[Evaluation, ...]
    skipped: tuple[tuple[str, str], ...]


def read_evaluations(folder: Path) -> Found:
    """All evaluations among the JSON files of a folder; files below it do not count."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {what}; give the folder that holds the records of `pdejepa evaluate`.")
    paths = sorted(path for path in folder.glob("*.json") if not path.name.startswith("."))
    return _collect({path.name: partial(read_json, path) for path in paths})


def shipped_evaluations() -> Found:
    """What the models that come with the package tell about themselves in config.json."""
    return _collect({name: partial(_from_config, folder) for name, folder in shipped_models().items()})


def _collect(sources: Mapping[str, Callable[[], Any]]) -> Found:
    """Records of one model and one way to judge it become one: a copy must not count as another seed."""
    found: dict[tuple[object, ...], Evaluation] = {}
    skipped = []
    for name, read in sources.items():
        try:
            record = replace(parse_evaluation(read()), file=printable(name))
        except (ValueError, CheckpointError) as error:
            skipped.append((name, str(error)))
            continue
        before = found.get(record.identity)
        if before is None:
            found[record.identity] = record
        elif set(record.errors) <= set(before.errors):
            skipped.append((name, f"the same forecasts as {before.file}"))
        else:
            found[record.identity] = replace(before, errors={**record.errors, **before.errors})
    return Found(tuple(found.values()), tuple(skipped))


def parse_evaluation(plain: Any) -> Evaluation:
    """Plain data as an evaluation; ValueError says what is wrong."""
    if not isinstance(plain, dict) or not isinstance(plain.get("errors"), dict):
        raise ValueError(NO_RECORD)
    return parse(Evaluation, plain)


def _from_config(folder: Path) -> dict[str, Any]:
    """config.json of a model in the shape of a record; the long lists are not kept there."""
    plain = header.read(folder)
    known = {key: plain[key] for key in (f.name for f in fields(Evaluation)) if key in plain}
    return {**known, "observed_frames": plain.get("history")}


def earlier_errors(record: Evaluation, path: Path) -> dict[str, SplitErrors]:
    """The errors in the record at `path`, if there is one of the same forecasts."""
    try:
        before = parse_evaluation(read_json(path))
    except ValueError:
        return {}
    keys = ("system", "weights_sha256", "observed_frames")
    return before.errors if all(getattr(before, key) == getattr(record, key) for key in keys) else {}


def larger(known: Mapping[str, int], counts: Mapping[str, int]) -> str:
    """`1,000 trajectories of test`: the first split that is known from more than `counts`; empty if none is."""
    more = (f"{known[split]:,} trajectories of {split}" for split, n in counts.items() if known.get(split, 0) > n)
    return next(more, "")


def counted(errors: Mapping[str, Any]) -> dict[str, int]:
    """From how many trajectories each split is known, in a record or in the config.json of a model."""
    told = {split: to_plain(found) for split, found in errors.items()}
    counts = {split: found.get("n") for split, found in told.items() if isinstance(found, dict)}
    return {split: n for split, n in counts.items() if isinstance(n, int)}


# ---- writing -----------------------------------------------------------------------------------------------------
def write_evaluation(record: Evaluation, path: Path) -> None:
    """Write the record; splits that an earlier record of the same forecasts holds are kept."""
    write_json(path, to_plain(replace(record, errors={**earlier_errors(record, path), **record.errors})))


def brief_errors(errors: Mapping[str, SplitErrors]) -> dict[str, dict[str, Any]]:
    """Errors without the long lists, for config.json and the model card."""
    return {split: to_plain(replace(found, trajectories=(), per_frame=())) for split, found in errors.items()}


COLUMNS = {
    "rel L2": ("rel_l2", "relative L2 of the forecast frames, mean over channels, then over trajectories"),
    "joint": ("rel_l2_joint", "the same with one norm over all channels"),
    "median": ("median", "over trajectories"),
    "last frame": ("last_frame", "of that frame alone"),
    "all frames": ("rel_l2_all_frames", "with the observed ones, encoded and decoded again"),
    "repeat first": ("repeat_first", "the error of the observed frame, repeated"),
}


def evaluation_table(record: Record) -> Table:
    """One row per split; the metric by which the system is judged comes first and carries a star."""
    judged = "joint" if metric_of(record.system) == "rel_l2_joint" else "rel L2"
    names = [judged, *(name for name in COLUMNS if name != judged)]
    if _n_channels(record) == 1:
        names.remove("joint")  # the same number
    heads = [f"{name}*" if name == judged else name for name in names]
    rows = [
        (split, f"{found.n:,}", *(percent(getattr(found, COLUMNS[name][0])) for name in names), str(found.n_unstable))
        for split, found in record.errors.items()
    ]
    notes = [f"{head}: {COLUMNS[name][1]}" for head, name in zip(heads, names, strict=True)]
    last = "unstable: forecasts that left every plausible bound; each counts as 100 %"
    return Table(("split", "n", *heads, "unstable"), rows, [". ".join((*notes, last)) + ". *: the judged metric."])


def _n_channels(record: Record) -> int:
    """Fields of what was forecast: the errors tell them one by one, older ones leave them to the system."""
    told = [len(found.per_channel) for found in record.errors.values()]
    return max(told, default=0) or (len(get(record.system).fields) if is_known(record.system) else 1)
