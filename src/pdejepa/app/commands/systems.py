"""`pdejepa systems`: what the nine systems declare about themselves, as a list or one in full."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(systems)


def systems(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One system in full.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List the systems, or print everything that one of them declares."""
    from pdejepa.app.describe import describe
    from pdejepa.systems import get, names

    if name is not None:
        described = describe(get(name))
        typer.echo(json.dumps(described, indent=2, ensure_ascii=False) if as_json else full_text(described))
        return
    all_of_them = [describe(get(one)) for one in names()]
    if as_json:
        typer.echo(json.dumps(all_of_them, indent=2, ensure_ascii=False))
    elif sys.stdout.isatty():
        _print_table(all_of_them)
    else:
        typer.echo("\n\n".join(short_text(one) for one in all_of_them))
        typer.echo("\n`pdejepa systems NAME` prints everything about one of them.")


def short_text(one: dict[str, Any]) -> str:
    """One system in a few lines; nothing is cut, however wide."""
    cells = [f"  {label:<12}{text}" for label, text in _cells(one).items()]
    return "\n".join((f"{one['name']}: {one['equation']}", *cells))


def _cells(one: dict[str, Any]) -> dict[str, str]:
    return {
        "parameters": parameters_in_short(one),
        "grid": f"{_grid(one)}, {one['n_frames']} frames",
        "splits": ", ".join(split["name"] for split in one["splits"]),
        "solver": one["solver"],
    }


def _print_table(all_of_them: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=True)
    for head in ("name", "equation", "parameters (training range)", "grid", "frames", "splits", "solver"):
        table.add_column(head, overflow="fold")
    for one in all_of_them:
        cells = _cells(one)
        row = (one["name"], one["equation"], cells["parameters"], _grid(one), str(one["n_frames"]))
        table.add_row(*(Text(cell) for cell in (*row, cells["splits"], one["solver"])))
    Console().print(table)
    Console().print("`pdejepa systems NAME` prints everything about one of them.", highlight=False)


def parameters_in_short(one: dict[str, Any]) -> str:
    """`diffusivity [0.001, 5], forcing_amplitude_1..5 [-0.5, 0.5], ...`: numbered families in one word."""
    families: dict[str, list[dict[str, Any]]] = {}
    for parameter in one["parameters"]:
        stem, _, number = parameter["name"].rpartition("_")
        families.setdefault(stem if number.isdigit() else parameter["name"], []).append(parameter)
    told = []
    for stem, members in families.items():
        word = f"{stem}_1..{len(members)}" if len(members) > 1 else members[0]["name"]
        told.append(f"{word} {_range(members[0]['train'])}")
    return ", ".join(told)


def full_text(one: dict[str, Any]) -> str:
    """Everything about one system as plain text."""
    from pdejepa.core.tables import Table

    ranges = [(_range(p["train"]), _range(p["limits"]), p["ood"] or "-") for p in one["parameters"]]
    parameters = [
        [p["name"], p["symbol"], p["unit"], p["law"], *told, p["meaning"]]
        for p, told in zip(one["parameters"], ranges, strict=True)
    ]
    sizes = ("tiny", "small", "laptop", "paper", "n_environments")
    splits = [[s["name"], *(f"{s[size]:,}" for size in sizes), _kind(s), s["meaning"]] for s in one["splits"]]
    terms = [[t["name"], t["expression"], t["rule"]] for t in one["structure"]["terms"]]
    switches = [[name, str(value)] for name, value in one["switches"].items()]
    blocks = (
        f"{one['title']} ({one['name']})",
        one["docstring"],
        _facts(one),
        Table(
            ("parameter", "symbol", "unit", "law", "training range", "limits", "out of distribution", "meaning"),
            parameters,
        ).text(),
        Table(("split", *sizes[:-1], "environments", "kind", "meaning"), splits).text(),
        f"Only where --splits names them: {', '.join(split['name'] for split in one['extra_splits']) or 'none'}.",
        Table(("term", "sign c operator", "normalisation of c"), terms).text(),
        Table(("switch", "default"), switches).text(),
    )
    return "\n\n".join(blocks)


def _facts(one: dict[str, Any]) -> str:
    structure = one["structure"]
    pairs = {
        "equation": one["equation"],
        "one sees": one["expect"],
        "fields": ", ".join(one["fields"]),
        "constants": ", ".join(f"{name} = {value:g}" for name, value in one["constants"].items()) or "none",
        "grid": "; ".join(
            f"{a['name']}: {a['n']} points, {a['first']:.6g} to {a['last']:.6g}, {a['ends']}" for a in one["axes"]
        ),
        "frames": f"{one['n_frames']} from t = {one['first_time']:.6g} to {one['last_time']:.6g} "
        f"(--raw-frames: {one['n_raw_frames']})",
        "solver": one["solver"],
        "checked by": f"{one['reference']['refined']}; relative L2 at most {one['reference']['bound']:g}",
        "shared part": "yes" if structure["has_shared"] else "none: the terms are the whole right-hand side",
        "forcing": {"none": "none", "constant": "a field f(x)", "time": "a field f(t,x)"}[structure["forcing"]],
        "boundary codes": ", ".join(structure["boundary_codes"]) or "none",
        "time order": str(structure["time_order"]),
        "padding": structure["padding"],
        "rescaling": _rescaling(structure["scaling"]),
    }
    return "\n".join(f"{label:<16}{text}" for label, text in pairs.items())


def _rescaling(powers: dict[str, int] | None) -> str:
    if powers is None:
        return "none"
    changes = [f"{name} times s" + (f"^{power}" if power != 1 else "") for name, power in powers.items()]
    return f"s u is a solution too, with {' and '.join(changes) or 'the same parameters'}"


def _range(ends: list[float]) -> str:
    return f"[{ends[0]:g}, {ends[1]:g}]"


def _grid(one: dict[str, Any]) -> str:
    return " x ".join(str(axis["n"]) for axis in one["axes"])


def _kind(split: dict[str, Any]) -> str:
    return ("ood" if split["is_ood"] else "id") + (", ours" if split["is_ours"] else "")
