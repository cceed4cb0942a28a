"""Measure every claim about accuracy and write the table to docs/verification.md.

    python tools/make_orders.py [--check]

The numbers come from the same studies as `pytest -m verification`; nothing in the table is typed.  `--check` writes
nothing and fails if a claim does not hold or a mutant survives.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.verification.orders import Study, cells, markdown_table  # noqa: E402
from tests.verification.studies import STUDIES  # noqa: E402

INTRODUCTION = """\
# Measured orders of accuracy

*This page is written by `python tools/make_orders.py`; `pytest -m verification -s` prints the same table.*

Every solver is measured in float64 against something independent of it: an exact solution, or SciPy's DOP853 at a
relative tolerance of 1e-12 on the same semi-discrete equations, written a second time in NumPy. "Measured" is the
least-squares slope of the logarithm of the error over four or more refinements, and must lie within 0.2 of the
expected order on *both* sides. For spectral methods two slopes are given, over the coarser and the finer half of the
refinements: an error that falls faster than every power has a slope that grows. The four systems with a closed form
have no step; there the errors must be rounding.

A test that cannot fail proves nothing. So each row names a *mutant*: a small, plausible mistake put into the solver for
the length of one measurement. The last column is what the same measurement then gives; the test demands that the
assertion fails.

Orders in space hold where solutions are smooth. Three systems are of low order by choice, because the discretisation
defines the benchmark: Vorticity (2: Arakawa's Jacobian and the 5-point Laplacian), Gray-Scott (2: the 9-point
Laplacian on a coarse grid), and the walls of Wave-2D (1: the field vanishes one spacing beyond the last node, not at
it; mirrors stand half a spacing beyond). Burgers is fifth order in transport (WENO5) and fourth in diffusion; a shock
is first order in any scheme.
"""

AFTER = """\

`h` is a time step, `dx` a spacing, `t` a time; the number of refinements stands in brackets.

Further checks without a slope (limits of one system in another, conservation, right-hand sides against finite
differences of solutions, SciPy and exponax as oracles) are in `tests/verification/`.
"""


def measure(study: Study) -> tuple[tuple[str, ...], str]:
    """The study's row, and what is wrong with it ("" if nothing)."""
    errors, broken = study.errors(), study.broken_errors()
    row, fault = cells(study, errors, broken), ""
    try:
        study.expected.check(errors, study.hs)
    except AssertionError as error:
        fault = f"{study}: {error}"
    try:
        study.expected.check(broken, study.hs)
        fault = fault or f"{study}: the mutant {study.mutant.name!r} survives"
    except AssertionError:
        pass
    return row, fault


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="measure and judge, write nothing")
    only_check = parser.parse_args().check
    rows, faults = [], []
    for study in STUDIES:
        row, fault = measure(study)
        rows.append(row)
        faults += [fault] if fault else []
        print("  ".join(row), flush=True)
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 1
    if not only_check:
        page = ROOT / "docs" / "verification.md"
        page.write_text("\n".join((INTRODUCTION, *markdown_table(rows), AFTER)), encoding="utf-8")
        print(f"Wrote {page.relative_to(ROOT)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
