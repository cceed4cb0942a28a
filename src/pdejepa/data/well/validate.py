"""Validate files and folders in The Well's format, ours or other people's.

    problems = check_folder("data/burgers")    every file of every split, and that they agree with one another
    problems = check_file("some.hdf5")         one file

A problem names the file, the place inside it and says in a sentence what is wrong.  Neither function raises
on a hostile or broken file: whatever cannot be read is a problem, and nothing outside the file is ever
followed (see `hdf5_safety`).  The rules of one file are in `well_rules`; they are applied in a helper process,
because damaged bytes can bring the HDF5 library itself down (see `inspector`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pdejepa.core import yaml_subset
from pdejepa.data.well.inspector import Inspector
from pdejepa.data.well.pieces import Layout
from pdejepa.data.well.rules import RuleBook
from pdejepa.data.well.safety import FileFault, Unreadable, open_hdf5, refusals

__all__ = ["FileFault", "Layout", "check_file", "check_folder", "find_splits"]

SUFFIXES = (".hdf5", ".h5")
STATISTICS = ("mean", "std", "rms", "mean_delta", "std_delta", "rms_delta")
MAX_STATS_BYTES = 1_000_000
# What every file of a data set must share, with the words if it does not.
SHARED = (
    ("dataset_name", "the name of the data set differs"),
    ("grid_type", "the grid type differs"),
    ("axes", "the axes differ"),
    ("grid", "the grid size differs"),
    ("coordinates", "the coordinates differ"),
    ("fields", "the fields differ"),
    ("scalars", "the scalars differ"),
    ("dtypes", "the number types differ"),
    ("boundaries", "the boundary conditions differ"),
)


def check_file(path: str | os.PathLike[str], name: str | None = None) -> list[FileFault]:
    """Every fault of one file; an empty list means that it conforms."""
    with Inspector() as inspector:
        return inspector.inspect(path, str(path) if name is None else name)[0]


def inspect_file(path: str | os.PathLike[str], name: str | None = None) -> tuple[list[FileFault], Layout | None]:
    """The faults of one file and, unless it is unreadable or refused, what it holds; in this very process."""
    name = str(path) if name is None else name
    layout = Layout(name)
    book: RuleBook | None = None
    try:
        with open_hdf5(path) as file:
            refused = refusals(file, name)
            if refused:
                return refused, None
            book = RuleBook(file, layout)
            book.apply()
            return book.problems, layout
    except Unreadable as error:
        return [FileFault(name, "", str(error))], None
    except Exception as error:  # damage shows wherever the library happens to stumble over it
        found = [] if book is None else book.problems
        return [*found, FileFault(name, "", f"cannot be read to its end ({type(error).__name__})")], None


def find_splits(root: str | os.PathLike[str]) -> dict[str, list[Path]]:
    """{split: its files}, sorted; empty if `root` has no folder `data` with split folders in it."""
    base = Path(root) / "data"
    try:
        folders = sorted(entry for entry in base.iterdir() if entry.is_dir() and entry.name[0] != ".")
    except OSError:
        return {}
    return {folder.name: _data_files(folder) for folder in folders}


def check_folder(
    root: str | os.PathLike[str], report: Callable[[int], None] | None = None, skip: Iterable[str] = ()
) -> list[FileFault]:
    """Every fault of a data set: its folders, its files, the agreement between them, and its statistics.

    `report` is told after each file; files whose relative path is in `skip` are left out.
    """
    splits, left_out = find_splits(root), set(skip)
    if not splits:
        return [FileFault(str(root), "", "has no folder data/<split>, as The Well's layout has for each split")]
    found = [FileFault(f"data/{split}", "", "has no .hdf5 or .h5 file") for split in splits if not splits[split]]
    layouts: list[Layout] = []
    with Inspector() as inspector:
        for path in [path for files in splits.values() for path in files]:
            name = path.relative_to(root).as_posix()
            if name not in left_out:
                problems, layout = inspector.inspect(path, name)
                found += problems
                layouts += [] if layout is None else [layout]
            if report:
                report(1)
    found += _disagreements(layouts)
    return found + (_check_stats(Path(root), layouts[0]) if layouts else [])


def _data_files(folder: Path) -> list[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [entry for entry in entries if entry.suffix in SUFFIXES and not entry.name.startswith(".")]


def _disagreements(layouts: list[Layout]) -> list[FileFault]:
    """Loaders take names from the first file and compare little, so a stray file would load silently."""
    found = []
    for other in layouts[1:]:
        for attribute, word in SHARED:
            first, value = getattr(layouts[0], attribute), getattr(other, attribute)
            if first is not None and value is not None and first != value:
                told = "" if attribute == "coordinates" else f": {_brief(value)} here, {_brief(first)} there"
                found.append(FileFault(other.file, "", f"{word} from {layouts[0].file}{told}"))
    return found


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _check_stats(root: Path, layout: Layout) -> list[FileFault]:
    """`stats.yaml`: six maps with a number (a list for vectors) for every field."""
    path = root / "stats.yaml"
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_STATS_BYTES + 1)
    except FileNotFoundError:
        return [FileFault("stats.yaml", "", "is missing; loaders cannot normalise without it", is_warning=True)]
    except OSError as error:
        return [FileFault("stats.yaml", "", f"cannot be read ({error.strerror})")]
    try:
        data = yaml_subset.parse(raw.decode("utf-8")) if len(raw) <= MAX_STATS_BYTES else None
    except ValueError as error:
        return [FileFault("stats.yaml", "", str(error))]
    if not isinstance(data, dict):
        return [FileFault("stats.yaml", "", "must hold six maps from field names to numbers")]
    return [
        FileFault("stats.yaml", f"{key}/{name}", sentence)
        for key in STATISTICS
        for group, name, is_varying in layout.fields
        if is_varying or not key.endswith("_delta")
        if (sentence := _stats_fault(data.get(key), name, group != "t0_fields"))
    ]


def _stats_fault(values: Any, name: str, is_list: bool) -> str:
    if not isinstance(values, dict) or name not in values:
        return "is missing"
    numbers = values[name]
    flat = [numbers]
    while flat and isinstance(flat[0], list):
        flat = [one for part in flat for one in (part if isinstance(part, list) else [part])]
    if isinstance(numbers, list) != is_list or not flat:
        return f"must be {'a list of numbers' if is_list else 'one number'}"
    is_number = all(isinstance(one, int | float) and not isinstance(one, bool) for one in flat)
    return "" if is_number and all(abs(one) < float("inf") for one in flat) else "must be finite numbers"
