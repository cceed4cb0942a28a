"""The problem of a data set that no system of ours made: read off its files.

Fields, axes, boundaries, times and parameters stand in them; ranges are those of the train split.  Coordinates are
stored in float32: the shortest decimal number that rounds to each of them is taken, 0.1 and not 0.100000001.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pdejepa.core.errors import DataError
from pdejepa.systems import is_known
from pdejepa.systems.given import given_problem
from pdejepa.systems.problem import Axis, Boundary, Problem

if TYPE_CHECKING:
    from pdejepa.data.well.reader import Dataset

# Of a wall no more may be told: convolutions then mirror fields there, as at neumann.
WORDS: dict[str, Boundary] = {
    "periodic": "periodic", "wall": "neumann", "dirichlet": "dirichlet", "neumann": "neumann", "open": "open",
}  # fmt: skip
MAX_AXES = 2
UNEVEN = 1e-3  # of a frame gap


def stored_problem(data: Dataset) -> Problem:
    """What a model must know of the data; DataError if they cannot be trained on."""
    config, first = data.config or {}, data.shard(data.shards(data.splits[0])[0])
    if not 1 <= len(data.axes) <= MAX_AXES:
        told = f"{len(data.axes)} spatial axes ({', '.join(data.axes)})"
        raise DataError(f"{data.root} has {told}; models take one or two.")
    times = _decimals(data.times)
    gaps = np.diff(times)
    if len(gaps) < 1 or gaps.max() - gaps.min() > UNEVEN * gaps.mean():
        raise DataError(f"{data.root}: frames must be evenly spaced, and two at least; the times are {times[:4]}, ...")
    boundaries = first.boundaries
    axes = []
    for name, values in data.axes.items():
        if values.ndim != 1:
            raise DataError(f"{data.root}: every trajectory has a grid of its own; models take one grid for all.")
        axes.append(Axis(name, _decimals(values), WORDS.get(boundaries.get(name, "open"), "open")))
    xi = data.xi("train" if "train" in data.splits else data.splits[0])
    ranges = {name: (float(xi[:, j].min()), float(xi[:, j].max())) for j, name in enumerate(data.parameter_names)}
    title, equation = str(config.get("title", "")), str(config.get("equation", ""))
    return given_problem(name_of(data), data.field_names, axes, times, ranges, title, equation)


def name_of(data: Dataset) -> str:
    """The name of a data set as a word; one that is taken by a system of ours is refused."""
    word = re.sub(r"[^a-z0-9_]+", "_", data.system_name.lower()).strip("_")[:40]
    word = word if re.match(r"[a-z]\w", word) else f"data_{word}".rstrip("_")
    if is_known(word):
        raise DataError(
            f"{data.root} calls itself {data.system_name[:40]!r}, like a system of pdejepa that did not make it. "
            "Import it under another name: pdejepa import FILES --name NAME"
        )
    return word


def _decimals(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(str(value)) for value in values.astype(np.float32))
