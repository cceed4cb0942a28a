"""`pdejepa pack`: a model folder for shipping, and how much rounding its weights changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import Tensor

    from pdejepa.forecast.forecaster import Forecaster
    from pdejepa.method.pack import Packed

N_COMPARED = 8  # test trajectories


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(pack)


def pack(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Run folder, model folder, or a shipped model's name.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder, or a model that may be replaced.")],
    float32: Annotated[bool, typer.Option("--float32", help="Keep full precision; twice the size.")] = False,
    device: Annotated[str, typer.Option("--device", help="For the comparison: auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Write a model as a folder of its own: weights in float16, config.json and the model card.

    Says how large it is, and by how much forecasts of test trajectories move because of the rounding. Errors
    recorded for the unrounded weights are not kept; `pdejepa evaluate FOLDER` measures those of the new ones.
    """
    from pdejepa.forecast.forecaster import load
    from pdejepa.method.pack import pack_model

    source = load(model, device)
    written = pack_model(source, folder, "float32" if float32 else "float16")
    typer.echo(_size(source, written))
    typer.echo(_movement(rounding_errors(source, load(folder, device))))
    for sentence in _notes(source, written):
        typer.echo(sentence)


def rounding_errors(source: Forecaster, packed: Forecaster, n: int = N_COMPARED) -> Tensor:
    """Relative L2 between the forecasts of both models, (n,); NaN where one of them is unstable."""
    from torch import Tensor

    from pdejepa.evaluate import metrics

    system, history = source.system, source.surrogate.history
    state, xi = system.sample("test", range(n), device=source.device)
    u0 = system.solve(state, xi, times=system.times[:history]).as_subclass(Tensor)  # (n,H,C,*grid)
    before, after = (one.forecast(u0, xi).fields for one in (source, packed))
    return metrics.rel_l2(after, before, history).cpu()


def _size(source: Forecaster, written: Packed) -> str:
    kind, before = source.details["weights_dtype"], source.details["weights_bytes"]
    return (
        f"{source.system.title}: {written.n_bytes / 1e6:.2f} MB in {written.folder}, "
        f"{written.weights_bytes / 1e6:.2f} MB of it weights (before: {before / 1e6:.2f} MB, {kind})."
    )


def _movement(errors: Tensor) -> str:
    stable = errors[errors == errors]
    if not len(stable):
        return f"All forecasts of {len(errors)} test trajectories are unstable, so rounding cannot be judged."
    told = f", {len(errors) - len(stable)} unstable ones left out" if len(stable) < len(errors) else ""
    if float(stable.max()) == 0:
        return f"The forecasts of {len(stable)} test trajectories are the same to the last bit{told}."
    return (
        f"Rounding moves the forecasts of {len(stable)} test trajectories by {100 * float(stable.mean()):.2g}% "
        f"(relative L2, mean; largest {100 * float(stable.max()):.2g}%){told}."
    )


def _notes(source: Forecaster, written: Packed) -> list[str]:
    """What is not in the folder, and how to add it."""
    notes = []
    if written.lost_errors:
        error = source.details["errors"].get("test", {}).get("rel_l2")
        told = f" (test: {100 * error:.3g}%)" if isinstance(error, float) else ""
        notes.append(f"The errors recorded before rounding{told} are not claimed for the rounded weights.")
    if not written.has_errors:
        notes.append(f"Next: pdejepa evaluate {written.folder}")
    if not written.has_training:
        notes.append("The settings of the training are not recorded; the card gives those of the recipe instead.")
    return notes
