"""`pdejepa breakeven`: after how many forecasts a surrogate is cheaper than a solver that is as accurate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pdejepa.app.commands.output_paths import check_file


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(breakeven)


def breakeven(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Run folders, model folders, or names of shipped models.")
    ],
    batch: Annotated[int, typer.Option("--batch", min=1, help="Trajectories forecast and solved together.")] = 16,
    n: Annotated[int, typer.Option("--n", min=1, help="Test trajectories that errors are measured on.")] = 16,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a list for several models.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="All numbers, as JSON.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Compare a forecast with our own solver, coarsened until its error is the forecast's, on this device and batch.

    Seconds of data and training are those that the model was trained with. They are added only to seconds of the same
    machine; else both stand side by side and n_star is null.

      pdejepa breakeven gray_scott --json
    """
    import json
    from dataclasses import asdict

    import pdejepa
    from pdejepa.core.atomic import write_json
    from pdejepa.studies.breakeven import breakeven as measure

    check_file("--out", out)
    found: list[dict[str, Any]] = []
    for name in models:
        result = measure(
            pdejepa.load(name, device), Path(name).name, max(n, batch), batch, lambda line: typer.echo(line, err=True)
        )
        found.append(asdict(result))
        if not as_json:
            typer.echo(_told(found[-1]))
        if out is not None:
            write_json(out, {"breakeven": found})
    if as_json:
        typer.echo(json.dumps(found[0] if len(found) == 1 else found, indent=2))


def _told(r: dict[str, Any]) -> str:
    """The result in lines."""
    spent = "not told by the model"
    if r["data_seconds"] is not None:
        spent = f"data {r['data_seconds']:.0f} s, training {r['training_seconds']:.0f} s"
        spent += f" on {r['trained_on'] or 'a machine that is not named'}"
    return "\n".join(
        (
            f"{r['model']} ({r['system']}): {r['reason']}.",
            f"  forecast   {1e3 * r['forecast_seconds']:.3g} ms, {r['error']:.3%} off",
            f"  solver     {1e3 * r['solver_seconds']:.3g} ms, {r['solver_error']:.3%} off ({r['solver_setting']})",
            f"  full grid  {1e3 * r['full_solver_seconds']:.3g} ms",
            f"  before     {spent}",
            f"  measured on {r['measured_on']}, batch {r['batch']}, {r['n']} test trajectories; ms per trajectory",
        )
    )
