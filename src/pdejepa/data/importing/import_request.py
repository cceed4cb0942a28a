"""What somebody says about files that are to be imported, in the words of the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pdejepa.core.errors import UsageError, did_you_mean
from pdejepa.systems import is_known

NAME = re.compile(r"[a-z][a-z0-9_]{1,40}")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}")
AXES = ("n", "t", "c", "x", "y")
TAKEN = ("time", "time_grid", "space_grid", "boundary_output", "n_frames", "forcing", "t0", "u0", "gradients", "xi")
OTHER_ENDS = ("open", "dirichlet", "neumann")
NONE = "none"


@dataclass(frozen=True)
class ImportRequest:
    """Files and what they hold; None: not said.

    axes: what each axis of the arrays is: n trajectories, t time, c channels, x, y space
    fields: names of the channels, or of the arrays in an npz or HDF5 file
    params: a table, or "none"           dt: between frames            box: (low, high) of each spatial axis
    periodic: which axes wrap around; the ends of the others are what `ends` says
    ood: conditions such as "nu<1e-3", or ("none",); None: the outer tenth of a parameter
    lengths: what happens to trajectories of other lengths than the shortest
    is_sure: the axes are right although they look otherwise
    paths: what arrays of HDF5 files are called here, (("u", "/train/u"), ("nu", "/train/nu"))
    """

    files: tuple[Path, ...]
    out: Path
    name: str | None = None
    axes: tuple[str, ...] | None = None
    fields: tuple[str, ...] | None = None
    params: str | None = None
    dt: float | None = None
    box: tuple[tuple[float, float], ...] | None = None
    periodic: tuple[str, ...] | None = None
    ends: Literal["open", "dirichlet", "neumann"] = "open"
    ood: tuple[str, ...] | None = None
    lengths: Literal["refuse", "cut"] = "refuse"
    seed: int = 0
    is_sure: bool = False
    paths: tuple[tuple[str, str], ...] | None = None
    title: str = ""
    equation: str = ""

    def __post_init__(self) -> None:
        if not self.files:
            raise UsageError("Name the files to import.")
        if self.name is not None:
            check_name(self.name)
        for name in self.fields or ():
            check_word(name, "--fields")
        if self.axes is not None:
            _check_axes(self.axes)
        for axis in self.periodic or ():
            if axis not in ("x", "y", NONE):
                raise UsageError(f"--periodic names axes such as x or x,y, or none; got {axis[:40]!r}.")
        if self.dt is not None and not 0 < self.dt < math.inf:
            raise UsageError(f"--dt must be a positive time between frames, got {self.dt}.")
        if self.ends not in OTHER_ENDS:
            raise UsageError(f"--ends must be {', '.join(OTHER_ENDS)}; got {self.ends!r}.")
        if self.lengths not in ("refuse", "cut"):
            raise UsageError(f"--lengths must be refuse or cut; got {self.lengths!r}.")


def check_name(name: str) -> None:
    """A name for a data set: a word that is none of the built-in equations'."""
    if not NAME.fullmatch(name):
        raise UsageError(f"--name must be a word such as my_flow (a-z, 0-9, _); got {name[:60]!r}.")
    if is_known(name):
        raise UsageError(f"--name: there is a system {name!r} already, with a solver. Choose another name.")


def check_word(name: str, where: str) -> None:
    """A name for a field or a parameter, which also is a keyword of `forecast`."""
    if not WORD.fullmatch(name):
        raise UsageError(f"{where}: names are words such as nu or wind_speed; got {name[:60]!r}.")
    if name in TAKEN:
        raise UsageError(f"{where}: the name {name!r} has a meaning already. Choose another one.")


def _check_axes(axes: Sequence[str]) -> None:
    for axis in axes:
        if axis not in AXES:
            hint = did_you_mean(axis, AXES) or "."
            raise UsageError(f"--axes names each axis n, t, c, x or y, for example n,t,x; got {axis[:40]!r}{hint}")
    if len(set(axes)) < len(axes) or "t" not in axes or "x" not in axes:
        raise UsageError(f"--axes needs t and x, and names each axis once; got {','.join(axes)}.")


def parse_list(text: str | None) -> tuple[str, ...] | None:
    """`n,t,x` -> ("n", "t", "x")."""
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def parse_map(text: str | None) -> tuple[tuple[str, str], ...] | None:
    """`u=/train/u,nu=/train/nu` -> (("u", "/train/u"), ("nu", "/train/nu"))."""
    if text is None:
        return None
    pairs = []
    for part in text.split(","):
        name, equals, place = (word.strip() for word in part.partition("="))
        if not (equals and name and place):
            raise UsageError(f"--map takes NAME=/PATH pairs, for example u=/train/u,nu=/train/nu; got {part[:60]!r}.")
        pairs.append((name, place))
    return tuple(pairs)


def parse_box(text: str | None) -> tuple[tuple[float, float], ...] | None:
    """`0:1,0:2pi` -> ((0, 1), (0, 6.28...))."""
    if text is None:
        return None
    found = []
    for part in text.split(","):
        low, _, high = part.partition(":")
        try:
            ends = (_length(low), _length(high))
        except ValueError:
            ends = (0.0, 0.0)
        if not (ends[0] < ends[1] and all(map(math.isfinite, ends))):
            raise UsageError(f"--box takes LOW:HIGH for each spatial axis, e.g. 0:1 or 0:2pi; got {part[:40]!r}.")
        found.append(ends)
    return tuple(found)


def _length(text: str) -> float:
    """A number, or a multiple of pi: `2pi`, `-pi`."""
    text = text.strip()
    if not text.endswith("pi"):
        return float(text)
    factor = text.removesuffix("pi").removesuffix("*")
    return math.pi * float(factor if factor not in ("", "-") else factor + "1")
