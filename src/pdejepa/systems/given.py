"""A problem of which only data are known: fields on a grid under named parameters, without solver or equation.

    dq/dt = C(q) + sum_j r_j D_j(q)        r_j = (xi_j - middle) / half the width of the training range

Every parameter is a term of power one, centred on its training range, so that C is what happens in the middle of it and
D_j what a parameter changes.  Without parameters there is C alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdejepa.systems.problem import Axis, Parameter, Problem, Structure, Term, Uniform, power

LARGEST = 1e30  # of a parameter whose physical limits nobody told


def given_problem(
    name: str,
    fields: Sequence[str],
    axes: Sequence[Axis],
    times: Sequence[float],
    ranges: Mapping[str, tuple[float, float]],
    title: str = "",
    equation: str = "",
) -> Problem:
    """The problem of data with these parameters; `ranges`: lowest and highest value of each in the training data."""
    state = ", ".join(fields)
    terms = "".join(f" + r_{parameter} D_{parameter}({state})" for parameter in ranges)
    return Problem(
        name=name,
        fields=tuple(fields),
        axes=tuple(axes),
        times=tuple(times),
        parameters=tuple(
            Parameter(parameter, parameter, parameter, Uniform(low, high), (-LARGEST, LARGEST))
            for parameter, (low, high) in ranges.items()
        ),
        structure=Structure(
            terms=tuple(
                Term(parameter, parameter, power(parameter), "midrange", f"what {parameter} changes")
                for parameter in ranges
            ),
            has_shared=True,
        ),
        title=title or name.replace("_", " ").capitalize(),
        equation=equation or f"d({state})/dt = C({state}){terms}   (learned from data; the equation is not known)",
    )
