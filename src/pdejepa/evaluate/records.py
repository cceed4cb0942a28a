"""The records of many evaluations, read back: those of a folder, or of the models that come with the package.

    found = read_records(Path("results"))
    found.records       what could be understood, in the order of the files' names
    found.skipped       ("generate-cpu.json", "no system"), ...

A record may come from anywhere, so it is checked before it is believed; what is no record is named and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pdejepa.core.errors import CheckpointError, DataError
from pdejepa.core.files import read_json
from pdejepa.forecast import header
from pdejepa.forecast.locate import shipped_models
from pdejepa.method.model_card import VARIANTS
from pdejepa.systems import NAMES

MAX_FRAMES = 100_000
MAX_DEVICE = 60  # letters of a device's name that are kept


@dataclass(frozen=True)
class SplitErrors:
    """Errors over one split; what a record does not tell is None or empty."""

    rel_l2: float | None
    rel_l2_joint: float | None
    per_frame: tuple[float | None, ...]  # of the forecast frames, mean over channels
    n: int
    n_unstable: int
    source: str  # name of the data set, empty if the truth was generated


@dataclass(frozen=True)
class Record:
    """One evaluation of one model; `name` is that of its file or of the shipped model."""

    name: str
    system: str
    recipe: str
    variant: str
    polish: bool
    seed: int
    observed_frames: int
    errors: dict[str, SplitErrors]
    seconds: float | None  # of the whole training
    weights_bytes: int | None
    weights_sha256: str
    device: str

    @property
    def source(self) -> str:
        """The data set that the truth was read from; empty if it was generated."""
        return ", ".join(sorted({found.source for found in self.errors.values()} - {""}))

    @property
    def kind(self) -> tuple[str, str, bool, int, str]:
        """Equal for records that differ in nothing but the seed."""
        return self.system, self.variant, self.polish, self.observed_frames, self.source

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two records of the same forecasts."""
        return *self.kind, self.recipe, self.weights_sha256 or self.name


@dataclass(frozen=True)
class Found:
    """Records, and what was left out, each as name and why."""

    records: tuple[Record, ...]
    skipped: tuple[tuple[str, str], ...]


def read_records(folder: Path) -> Found:
    """All records among the JSON files of a folder; files below it do not count."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {what}; give the folder that holds the records of `pdejepa evaluate`.")
    paths = sorted(path for path in folder.glob("*.json") if not path.name.startswith("."))
    return _collect({path.name: partial(read_json, path) for path in paths})


def shipped_records() -> Found:
    """What the models that come with the package tell about themselves in config.json."""
    return _collect({name: partial(_from_config, folder) for name, folder in shipped_models().items()})


def _collect(sources: Mapping[str, Callable[[], Any]]) -> Found:
    """Records of one model and one way to judge it become one: a copy must not count as another seed."""
    found: dict[tuple[object, ...], Record] = {}
    skipped = []
    for name, read in sources.items():
        try:
            record = parse_record(name, read())
        except (ValueError, CheckpointError) as error:
            skipped.append((name, str(error)))
            continue
        before = found.get(record.identity)
        if before is None:
            found[record.identity] = record
        elif set(record.errors) <= set(before.errors):
            skipped.append((name, f"the same forecasts as {before.name}"))
        else:
            found[record.identity] = replace(before, errors={**record.errors, **before.errors})
    return Found(tuple(found.values()), tuple(skipped))


def _from_config(folder: Path) -> dict[str, Any]:
    """config.json of a model in the shape of a record; the long lists are not kept there."""
    plain = header.read(folder)
    return {**plain, "observed_frames": plain.get("history")}


# ---- checks ----------------------------------------------------------------------------------------------------
def parse_record(name: str, plain: Any) -> Record:
    """Plain data as a Record; ValueError tells the first thing that is wrong."""
    if not isinstance(plain, dict) or not isinstance(plain.get("errors"), dict):
        raise ValueError("no record of an evaluation")
    seconds = plain.get("seconds")
    return Record(
        name=name,
        system=_one_of(plain, "system", NAMES),
        recipe=_text(plain.get("recipe")),
        variant=_one_of(plain, "variant", VARIANTS),
        polish=plain.get("polish") is True,
        seed=_count(plain, "seed"),
        observed_frames=_count(plain, "observed_frames", 1),
        errors={str(split): _split_errors(split, found) for split, found in plain["errors"].items()},
        seconds=_number(seconds.get("total")) if isinstance(seconds, dict) else None,
        weights_bytes=_count(plain, "weights_bytes") or None,
        weights_sha256=_text(plain.get("weights_sha256")),
        device=_text(plain.get("device"))[:MAX_DEVICE],
    )


def _split_errors(split: str, found: Any) -> SplitErrors:
    if not isinstance(found, dict):
        raise ValueError(f"no errors under {str(split)[:40]!r}")
    frames = found.get("per_frame", [])
    if not isinstance(frames, list) or len(frames) > MAX_FRAMES:
        raise ValueError("per_frame is no list of numbers")
    source = _text(found.get("source"))
    return SplitErrors(
        rel_l2=_number(found.get("rel_l2")),
        rel_l2_joint=_number(found.get("rel_l2_joint")),
        per_frame=tuple(_number(value) for value in frames),
        n=_count(found, "n"),
        n_unstable=_count(found, "n_unstable"),
        source="" if source == "generated" else Path(source).name[:MAX_DEVICE],
    )


def _one_of(plain: dict[str, Any], key: str, known: Container[str]) -> str:
    value = plain.get(key)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"no {key}" if value is None else f"unknown {key} {str(value)[:40]!r}")
    return value


def _count(plain: dict[str, Any], key: str, least: int = 0) -> int:
    value = plain.get(key)
    if type(value) is not int or not least <= value < 2**63:
        raise ValueError(f"{key} is no whole number from {least}")
    return value


def _number(value: Any) -> float | None:
    """A finite number of 0 or more; None for null.  JSON as Python reads it may also hold NaN and giants."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e300:
        raise ValueError(f"{str(value)[:40]!r} is neither an error nor a time")
    return float(value)


def _text(value: Any) -> str:
    """Printable letters of a text, and nothing for anything else."""
    return "".join(letter for letter in value if letter.isprintable()) if isinstance(value, str) else ""
