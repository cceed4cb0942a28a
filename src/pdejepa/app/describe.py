"""Everything a system declares, as plain data: for the command line, JSON, and later the web page."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from typing import Any

from pdejepa.systems import System
from pdejepa.systems.base import SteppedSystem
from pdejepa.systems.problem import Parameter, Term
from pdejepa.systems.structure import SIZES, Split


def describe(system: System) -> dict[str, Any]:
    """A dictionary of strings, numbers, lists and dictionaries; it can be written as JSON."""
    times, raw = system.times, system.raw_times
    return {
        "name": system.name,
        "title": system.title,
        "equation": system.equation,
        "expect": system.expect,
        "docstring": inspect.cleandoc(sys.modules[type(system).__module__].__doc__ or ""),
        "fields": list(system.fields),
        "constants": dict(system.constants),
        "parameters": [_parameter(parameter) for parameter in system.parameters],
        "splits": [_split(split) for split in system.splits],
        "extra_splits": [_split(split) for split in system.extra_splits],
        "broad": _paragraph(type(system).broad) if any(split.is_broad for split in system.extra_splits) else "",
        "axes": _axes(system),
        "n_frames": len(times),
        "first_time": float(times[0]),
        "last_time": float(times[-1]),
        "n_raw_frames": len(raw),
        "solver": _solver(system),
        "precision": str(system.dtype).removeprefix("torch."),
        "reference": dataclasses.asdict(system.reference),
        "structure": _structure(system),
        "switches": {field.name: getattr(system, field.name) for field in dataclasses.fields(system)},
    }


def _paragraph(documented: Any) -> str:
    """A docstring as one line."""
    return " ".join((inspect.getdoc(documented) or "").split())


def _parameter(parameter: Parameter) -> dict[str, Any]:
    values = dataclasses.asdict(parameter)
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {**plain, "ood": parameter.ood_text}


def _split(split: Split) -> dict[str, Any]:
    plain = {name: value for name, value in dataclasses.asdict(split).items() if name != "n"}
    return {**plain, **{size: split.size(size) for size in SIZES}}


def _axes(system: System) -> list[dict[str, Any]]:
    found = []
    for (name, nodes), is_periodic in zip(system.axes.items(), system.problem.periodic_axes, strict=True):
        gaps = nodes.diff()
        is_uniform = bool(gaps.max() - gaps.min() < 1e-9 * gaps.max().abs())
        ends = "periodic" if is_periodic else "walls"
        found.append(
            {
                "name": name,
                "n": len(nodes),
                "first": float(nodes[0]),
                "last": float(nodes[-1]),
                "is_periodic": is_periodic,
                "is_uniform": is_uniform,
                "ends": ends if is_uniform else f"{ends}, not equally spaced",
            }
        )
    return found


def _solver(system: System) -> str:
    precision = str(system.dtype).removeprefix("torch.")
    if not isinstance(system, SteppedSystem):
        return f"closed form, {precision}"
    grid = getattr(system, "solver_grid", None)
    where = f" on {grid} x {grid} points" if grid else ""
    return f"stepped, dt <= {system.dt:.4g}{where}, {precision}"


def _structure(system: System) -> dict[str, Any]:
    structure = system.structure
    plain = {f.name: getattr(structure, f.name) for f in dataclasses.fields(structure) if f.name != "terms"}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
    return {**plain, "padding": system.problem.padding, "terms": [_term(term) for term in structure.terms]}


RULES = {
    "rms": "c / rms of c over train",
    "mean_abs": "c / mean |c| over train",
    "midrange": "(c - middle) / half width over train",
    "unit": "c itself",
}


def _term(term: Term) -> dict[str, Any]:
    sign = "-" if term.sign < 0 else "+"
    return {
        "name": term.name,
        "symbol": term.symbol,
        "sign": term.sign,
        "operator": term.operator,
        "rule": f"{term.rule}: {RULES[term.rule]}",
        "expression": f"{sign} {term.symbol} * [{term.operator}]",
    }
