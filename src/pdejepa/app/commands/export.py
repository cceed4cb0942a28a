"""`pdejepa export`: a model in a format that other programs run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdejepa.app.commands.output_paths import check_folder


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(export)


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Run folder, model folder, or a shipped model's name.")],
    onnx: Annotated[
        Path, typer.Option("--onnx", metavar="FOLDER", help="New folder, or an earlier export that may be replaced.")
    ],
) -> None:
    """Write a model as ONNX files, which forecast without Python, PyTorch or pdejepa.

    Encoder, vector field and decoder apart, and forecast.json, which says how to integrate and has all numbers that a
    forecast needs. Every network is run by onnxruntime and compared with PyTorch before it is written.
    examples/forecast_with_onnx.py forecasts with such a folder. A model folder for shipping is `pdejepa pack`.

      pdejepa export gray_scott --onnx gray_scott_onnx
    """
    from pdejepa.forecast.forecaster import load
    from pdejepa.forecast.onnx_export import export_onnx

    check_folder("--onnx", onnx)
    source = load(model, "cpu")
    written = export_onnx(source, onnx)
    title = source.problem.title or source.problem.name
    typer.echo(f"{title}: {len(written.n_bytes)} files, {sum(written.n_bytes.values()) / 1e6:.1f} MB, in {onnx}.")
    apart = ", ".join(f"{name} {value:.0e}" for name, value in written.apart.items())
    typer.echo(f"Checked: onnxruntime is off PyTorch by this much (relative L2): {apart}.")
