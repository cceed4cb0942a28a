"""What an import will write, decided before anything is written: problem, parameters, splits, files.

A plan follows from the request and the sources alone, so a killed import that is repeated makes the same bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pdejepa.core.errors import DataError, UsageError
from pdejepa.data.generate.layout import MAX_FILE_BYTES, Piece
from pdejepa.data.importing.import_request import NAME, NONE, ImportRequest, check_word
from pdejepa.data.importing.parameter_table import Columns, read_parameters
from pdejepa.data.importing.partition import Partition, partition
from pdejepa.data.importing.parts import Found
from pdejepa.data.importing.sniff import looks_periodic
from pdejepa.systems import is_known
from pdejepa.systems.given import given_problem
from pdejepa.systems.problem import Axis, Boundary, Problem

ORIGIN = "imported"  # in config.json and in the provenance of every file
ROWS_PER_FILE = 1000
MAX_PARAMETERS = 100


def missing_options(request: ImportRequest, found: Found) -> dict[str, str]:
    """What must be said and neither the request nor the files say: {option: what it looks like}."""
    missing = {}
    if request.axes is None and not found.is_recognised:
        missing["axes"] = ",".join(found.axes)
    if request.dt is None and found.times is None:
        missing["dt"] = "1"
    if request.box is None and any(axis not in found.points for axis in found.space):
        missing["box"] = ",".join("0:1" for _ in found.space)
    if request.periodic is None and any(axis not in found.boundaries for axis in found.space):
        missing["periodic"] = ",".join(looks_periodic(found)) or NONE
    if request.params is None and not found.columns and not found.is_recognised:
        missing["params"] = NONE
    if request.name is None and not _usual_name(request):
        missing["name"] = "my_data"
    return missing


def _usual_name(request: ImportRequest) -> str:
    """The name of the first file as that of the data set; empty if it is none."""
    word = re.sub(r"[^a-z0-9_]+", "_", request.files[0].stem.lower()).strip("_")
    return word if NAME.fullmatch(word) and not is_known(word) else ""


@dataclass(frozen=True)
class ImportPlan:
    """One import.  xi: (n,P) float64, the columns in the order of `parameters`."""

    request: ImportRequest
    found: Found
    problem: Problem
    xi: np.ndarray
    partition: Partition
    sources: tuple[dict[str, Any], ...] = ()
    left_out: tuple[int, ...] = ()

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """All files, in a fixed order."""
        found = []
        for split, rows in self.partition.rows.items():
            for number, start in enumerate(range(0, len(rows), self.rows_per_file)):
                stop = min(start + self.rows_per_file, len(rows))
                found.append(Piece(self.problem.name, split, number, start, stop))
        return tuple(found)

    @property
    def row_bytes(self) -> int:
        """Disk space of one trajectory, apart from what HDF5 adds."""
        problem = self.problem
        values = len(problem.times) * len(problem.fields) * math.prod(problem.grid)
        return 4 * values + 12 * len(problem.parameters) + 32

    @property
    def rows_per_file(self) -> int:
        return max(1, min(ROWS_PER_FILE, MAX_FILE_BYTES // self.row_bytes))

    def source_rows(self, piece: Piece) -> tuple[int, ...]:
        """Which trajectories of the source a file holds."""
        return self.partition.rows[piece.split][piece.start : piece.stop]

    def with_sources(self, sources: Sequence[dict[str, Any]], left_out: Sequence[int]) -> ImportPlan:
        """The same with hashes of the sources, and without some trajectories."""
        request, names = self.request, self.problem.parameter_names
        cut = partition(self.xi, names, request.ood, request.seed, left_out)
        return replace(self, sources=tuple(sources), left_out=tuple(left_out), partition=cut)

    def stored(self) -> dict[str, Any]:
        """config.json: equal plans give equal content."""
        problem, request = self.problem, self.request
        return {
            "origin": ORIGIN,
            "name": problem.name,
            "title": problem.title,
            "equation": problem.equation,
            "sources": list(self.sources),
            "source_axes": list(self.found.axes),
            "fields": list(problem.fields),
            "parameters": list(problem.parameter_names),
            "boundaries": {axis.name: axis.boundary for axis in problem.axes},
            "frames": len(problem.times),
            "frame_gap": problem.frame_gap,
            "seed": request.seed,
            "counts": self.partition.counts,
            "splits_are_cut": self.partition.how,
            "ood": self.partition.ood,
            "left_out": list(self.left_out),
            "notes": list(self.found.notes),
        }

    def stored_text(self) -> str:
        return json.dumps(self.stored(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def make_plan(request: ImportRequest, found: Found) -> ImportPlan:
    """The plan of a request in which nothing is missing."""
    columns = _columns(request, found)
    names = tuple(columns)
    check_names(found.fields, names)
    xi = np.stack(list(columns.values()), 1) if columns else np.zeros((found.n, 0))
    if not np.isfinite(xi).all():
        row, j = map(int, np.argwhere(~np.isfinite(xi))[0])
        raise DataError(f"The parameter {names[j]} of trajectory {row} is {xi[row, j]}; expected a finite number.")
    cut = partition(xi, names, request.ood, request.seed)
    inside = xi[list(cut.rows["train"])]
    ranges = {name: (float(inside[:, j].min()), float(inside[:, j].max())) for j, name in enumerate(names)}
    times = found.times if found.times is not None else (request.dt or 1.0) * np.arange(found.n_frames)
    name = request.name or _usual_name(request)
    axes = [_axis(request, found, axis, at) for at, axis in enumerate(found.space)]
    problem = given_problem(name, found.fields, axes, times.tolist(), ranges, request.title, request.equation)
    return ImportPlan(request, found, problem, xi, cut)


def _columns(request: ImportRequest, found: Found) -> Columns:
    if request.params is None:
        return found.columns
    if request.params == NONE:
        return {}
    files = request.files if found.is_one_to_a_file and found.n == len(request.files) else ()
    return read_parameters(Path(request.params), found.n, files)


def check_names(fields: Sequence[str], parameters: Sequence[str]) -> None:
    """Refuse names of fields and parameters that are no words, or mean two things."""
    if len(parameters) > MAX_PARAMETERS:
        raise DataError(f"There are {len(parameters)} parameters; at most {MAX_PARAMETERS} are taken.")
    for name in fields:
        check_word(name, "--fields")
    for name in parameters:
        check_word(name, "parameters")
    twice = {*fields} & {*parameters} | ({*parameters, *fields} & {"x", "y", "t"})
    if twice:
        raise UsageError(f"The name {min(twice)!r} is used for two things (fields, parameters, axes). Rename one.")


def _axis(request: ImportRequest, found: Found, name: str, at: int) -> Axis:
    """The points of an axis: those of the file, or evenly spaced in the box; a ring leaves its end point out."""
    n = found.grid[at]
    told = found.boundaries.get(name)
    is_ring = name in request.periodic if request.periodic is not None else told == "periodic"
    boundary: Boundary = "periodic" if is_ring else told if told not in (None, "periodic") else request.ends  # type: ignore[assignment]
    if name in found.points and request.box is None:
        return Axis(name, tuple(found.points[name].tolist()), boundary)
    box = request.box or ((0.0, 1.0),) * len(found.space)
    if len(box) != len(found.space):
        raise UsageError(f"--box needs LOW:HIGH for {', '.join(found.space)}; got {len(box)} of them.")
    low, high = box[at]
    return Axis(name, tuple(np.linspace(low, high, n, endpoint=not is_ring).tolist()), boundary)
