"""Measured order of accuracy: refine, fit a slope, compare with theory on both sides, and prove the test can fail.

A `Study` is one claim about one solver ("Burgers, ETDRK4 in time: order 4"): a list of refinements, an error for each,
what theory expects, and a mutant, that is, a small and plausible mistake put into the solver for the length of a `with`
block.  The claim must hold, and the same assertion must fail under the mutant; otherwise the test proves nothing.

    Order(p)     error ~ h^p            least-squares slope of log error over log h within 0.2 of p, both sides
    Spectral()   faster than any power  the slope grows as h falls, down to a floor
    Exact(e)     no discretisation      every error is below e

`test_orders.py` runs the catalogue in `studies.py`; `tools/make_orders.py` writes the same numbers into a page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch


def slope(errors: Sequence[float], hs: Sequence[float]) -> float:
    """Least-squares exponent p of error ~ h^p."""
    return float(np.polyfit(np.log(hs), np.log(errors), 1)[0])


def local_slopes(errors: Sequence[float], hs: Sequence[float]) -> list[float]:
    """Exponent between each refinement and the next."""
    pairs = zip(errors[:-1], errors[1:], hs[:-1], hs[1:], strict=True)
    return [math.log(coarse / fine) / math.log(h / h_fine) for coarse, fine, h, h_fine in pairs]


def assert_order(errors: Sequence[float], hs: Sequence[float], expected: float, tol: float = 0.2) -> None:
    """Four or more refinements whose slope is `expected`, neither less nor more."""
    assert len(errors) >= 4, f"{len(errors)} refinements do not measure an order; use four or more"
    assert all(math.isfinite(error) and error > 0 for error in errors), f"errors must be finite and positive: {errors}"
    measured = slope(errors, hs)
    assert abs(measured - expected) <= tol, (
        f"measured order {measured:.2f}, expected {expected:g} +- {tol:g}; errors {errors}"
    )


class Expectation(Protocol):
    """What theory says about a sequence of errors."""

    def check(self, errors: Sequence[float], hs: Sequence[float]) -> None: ...

    def measure(self, errors: Sequence[float], hs: Sequence[float]) -> str: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Order:
    value: float
    tol: float = 0.2

    def check(self, errors: Sequence[float], hs: Sequence[float]) -> None:
        assert_order(errors, hs, self.value, self.tol)

    def measure(self, errors: Sequence[float], hs: Sequence[float]) -> str:
        return f"{slope(errors, hs):.2f}" if all(map(math.isfinite, errors)) and min(errors) > 0 else "diverged"

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True)
class Spectral:
    """The finest error lies below `floor`, and the finer half of the refinements is steeper than the coarser half."""

    floor: float
    steepest: float = 10.0

    def check(self, errors: Sequence[float], hs: Sequence[float]) -> None:
        assert len(errors) >= 4, f"{len(errors)} refinements do not show spectral convergence; use four or more"
        assert errors[-1] < self.floor, f"the finest error {errors[-1]:.1e} is above {self.floor:.0e}; errors {errors}"
        coarse, fine = self._slopes(errors, hs)
        assert fine > self.steepest, (
            f"the slope {fine:.1f} of the finer half is below {self.steepest:g}; errors {errors}"
        )
        assert fine > coarse, f"slopes {coarse:.1f} and then {fine:.1f} do not grow; errors {errors}"

    def _slopes(self, errors: Sequence[float], hs: Sequence[float]) -> tuple[float, float]:
        half = len(errors) // 2
        return slope(errors[: half + 1], hs[: half + 1]), slope(errors[half:], hs[half:])

    def measure(self, errors: Sequence[float], hs: Sequence[float]) -> str:
        return "{:.1f} then {:.1f}".format(*self._slopes(errors, hs))

    def __str__(self) -> str:
        return "spectral"


@dataclass(frozen=True)
class Exact:
    """Errors are rounding at every refinement."""

    bound: float

    def check(self, errors: Sequence[float], hs: Sequence[float]) -> None:
        assert max(errors) < self.bound, (
            f"the largest error {max(errors):.1e} is above {self.bound:.0e}; errors {errors}"
        )

    def measure(self, errors: Sequence[float], hs: Sequence[float]) -> str:
        return f"error {max(errors):.1e}"

    def __str__(self) -> str:
        return f"exact (< {self.bound:.0e})"


@dataclass(frozen=True)
class Mutant:
    """A plausible mistake: `patch()` is a context manager inside which the solver makes it."""

    name: str
    patch: Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Study:
    """One claim, measured by `error(h)` for each h, with the mutant that must break it."""

    system: str
    what: str
    variable: str  # the letter of what is refined: "h" a time step, "dx" a spacing, "t" a time
    hs: tuple[float, ...]
    error: Callable[[float], float]
    expected: Expectation
    mutant: Mutant

    def __str__(self) -> str:
        return f"{self.system}-{self.what}".replace(" ", "_")

    def errors(self) -> list[float]:
        return [self.error(h) for h in self.hs]

    def broken_errors(self) -> list[float]:
        """The same measurement with the mutant in place of the solver's own operator."""
        with self.mutant.patch():
            return self.errors()


HEADER = ("system", "what", "refinements", "errors", "measured", "expected", "mutant", "measured with mutant")


def cells(study: Study, errors: Sequence[float], broken: Sequence[float] | None) -> tuple[str, ...]:
    """One row of the table of orders, as text."""
    coarse_to_fine = f"{study.variable} = {study.hs[0]:.3g} .. {study.hs[-1]:.3g} ({len(study.hs)})"
    return (
        study.system,
        study.what,
        coarse_to_fine,
        f"{errors[0]:.1e} .. {errors[-1]:.1e}",
        study.expected.measure(errors, study.hs),
        str(study.expected),
        study.mutant.name,
        study.expected.measure(broken, study.hs) if broken else "not run",
    )


def plain_table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows under their header, in columns of equal width."""
    widths = [max(len(row[j]) for row in (HEADER, *rows)) for j in range(len(HEADER))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (HEADER, *rows)
    ]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def markdown_table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    ruled = [HEADER, tuple("---" for _ in HEADER), *rows]
    return ["| " + " | ".join(row) + " |" for row in ruled]


def relative_error(u: torch.Tensor | np.ndarray, v: torch.Tensor | np.ndarray) -> float:
    """|u - v| / |v| in the Euclidean norm over everything."""
    difference, size = (
        np.linalg.norm(np.asarray(x, dtype=np.float64).ravel()) for x in (np.asarray(u) - np.asarray(v), v)
    )
    return float(difference / size)
