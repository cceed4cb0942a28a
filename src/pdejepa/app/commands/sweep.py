"""`pdejepa sweep`: one initial state under many parameters, as a table, a picture and files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdejepa.app.commands.options import NewFrames, OwnState, assignments
from pdejepa.app.commands.output_paths import check_file, check_folder
from pdejepa.core.errors import NumericalError, UsageError

if TYPE_CHECKING:
    from pdejepa.forecast.forecaster import Forecaster
    from pdejepa.forecast.sweep import Sweep

MAX_VALUES = 10_000  # of one parameter
MAX_SHOWN = 60  # rows of the table on the terminal


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(sweep)


def sweep(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Run folder, model folder, or a shipped model's name.")],
    vary: Annotated[
        list[str],
        typer.Option("--vary", metavar="NAME=LOW:HIGH:N[:log]", help="A parameter and its values; once or twice."),
    ],
    source: Annotated[
        str, typer.Option("--from", metavar="[DIR:]SPLIT:INDEX", help="Whose first frame and parameters to take.")
    ] = "test:0",
    u0: OwnState = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A fixed parameter; may be repeated.")
    ] = None,
    frames: NewFrames = None,
    sensitivities: Annotated[
        bool, typer.Option(help="Derivatives with respect to the varied parameters; each costs about four forecasts.")
    ] = True,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="For sweep.npz, sweep.csv and sweep.png.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="The table, as JSON.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Forecast one state under a grid of one or two parameters: what changes, by how much, where it extrapolates.

    Per row: rms of the last frame, smallest and largest value, distance from the forecast of the first row (relative
    L2), and how much the forecast changes per unit of each varied parameter (relative, to first order).
    Files are written to SYSTEM_sweep if --out does not name a folder.
    Ends with 5 if a forecast became unstable; all others are kept.

      pdejepa sweep combined --vary diffusivity=0.01:0.4:20
      pdejepa sweep burgers --vary diffusivity=0.01:1:10:log --from test:3 --out burgers_sweep
      pdejepa sweep gray_scott --vary feed=0.03:0.045:8 --vary kill=0.059:0.064:8 --no-sensitivities
    """
    from pdejepa.core.atomic import write_json
    from pdejepa.core.progress import progress
    from pdejepa.forecast.forecaster import load
    from pdejepa.forecast.sweep import sweep as run
    from pdejepa.forecast.sweep_output import json_of, write_sweep

    varied, given = _varied(vary), assignments("--set", changes or [])
    solver = load(model, device)
    folder = out or Path(f"{solver.problem.name}_sweep")
    check_folder("--out", folder)
    check_file("--json", json_file)
    state, fixed, title = _start(solver, source, u0, given, varied)
    n_rows = math.prod(len(values) for values in varied.values())
    with progress(n_rows, f"sweep {solver.problem.name}", "forecasts") as bar:
        options: dict[str, Any] = {"n_frames": frames, "sensitivities": sensitivities, "report": bar.advance}
        found = run(solver, state, varied, fixed, **options)
    typer.echo(_table(found, title))
    written = write_sweep(found, folder)
    if json_file is not None:
        write_json(json_file, json_of(found))
        written.append(json_file)
    typer.echo(f"Written to {' and '.join(map(str, written))}")
    n_bad = sum(outcome.label != "ok" for outcome in found.outcome)
    if n_bad:
        raise NumericalError(f"{n_bad} of {len(found.outcome)} forecasts became unstable; their later frames are NaN.")


def _varied(texts: list[str]) -> dict[str, list[float]]:
    """{name: values} of --vary NAME=LOW:HIGH:N[:log]."""
    found = {}
    for text in texts:
        name, values = _values(text)
        if name in found:
            raise UsageError(f"--vary names {name} twice; give each parameter once.")
        found[name] = values
    return found


def _values(text: str) -> tuple[str, list[float]]:
    name, _, spec = (part.strip() for part in text.partition("="))
    parts = spec.split(":")
    is_log = parts[3:] == ["log"]
    try:
        low, high, n = float(parts[0]), float(parts[1]), int(parts[2])
        if not name or len(parts) - is_log != 3 or not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError
    except (ValueError, IndexError):
        raise UsageError(
            f"--vary takes NAME=LOW:HIGH:N, for example viscosity=1e-4:1e-2:20 or viscosity=1e-4:1e-2:20:log; "
            f"got {text[:100]!r}."
        ) from None
    if not 1 <= n <= MAX_VALUES:
        raise UsageError(f"--vary {name}: 1 to {MAX_VALUES:,} values; got {n:,}.")
    if is_log and min(low, high) <= 0:
        raise UsageError(f"--vary {name}: values on a logarithmic scale are positive; got {low:g} to {high:g}.")
    ends = (math.log(low), math.log(high)) if is_log else (low, high)
    inner = [ends[0] + (ends[1] - ends[0]) * i / max(1, n - 1) for i in range(n)]
    found = [math.exp(value) for value in inner] if is_log else inner
    return name, [low, *found[1:-1], high][:n] if n > 1 else [low]


def _start(
    solver: Forecaster, source: str, path: Path | None, given: dict[str, float], varied: dict[str, list[float]]
) -> tuple[Any, dict[str, float], str]:
    """The observed frames, the parameters that stay, and where both come from."""
    problem = solver.problem
    title = problem.title or problem.name
    if path is not None:
        from pdejepa.core.arrays import read_array

        return read_array(path), given, f"{title}, {path.name}"
    from pdejepa.evaluate.truth import case_of

    case = case_of(solver, source, given)
    own = {name: float(values[0]) for name, values in problem.named(case.xi).items() if name not in varied}
    return case.observed(solver.card.history), own | given, f"{title}, {case.split} {case.index}"


def _table(found: Sweep, title: str) -> str:
    """The rows, or the first and last of many, with what is said of all of them."""
    from pdejepa.core.tables import Table
    from pdejepa.core.text import percent

    def cell(name: str, value: float | str | bool) -> str:
        if isinstance(value, bool):
            return "extrapolates" if value else ""
        if isinstance(value, str):
            return "" if value == "ok" else value
        return percent(value) if name == "distance" else f"{value:.4g}"

    rows = found.rows()
    n_left_out = max(0, len(rows) - MAX_SHOWN)
    shown = rows if not n_left_out else rows[: MAX_SHOWN // 2] + rows[-MAX_SHOWN // 2 :]
    notes = [f"{n_left_out:,} rows in the middle are left out here."] if n_left_out else []
    notes += [found.outside[row][0] for row in _ends_outside(found)] + list(found.remarks)
    cells = [[cell(name, value) for name, value in row.items()] for row in shown]
    return Table([name.replace("_", " ") for name in rows[0]], cells, notes, title).text()


def _ends_outside(found: Sweep) -> list[int]:
    """The first and the last row that extrapolate."""
    rows = [row for row, sentences in enumerate(found.outside) if sentences]
    return sorted({rows[0], rows[-1]}) if rows else []
