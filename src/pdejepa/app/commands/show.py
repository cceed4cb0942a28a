"""`pdejepa show`: a picture or an animation of one stored trajectory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pdejepa.data.well.reader import Dataset

DEFAULT_SPLIT = "test"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(show)


def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Data set, ours or anybody's in The Well's layout.")],
    split: Annotated[
        str | None, typer.Option("--split", help="Which split; test, or the first there is, if not given.")
    ] = None,
    index: Annotated[int, typer.Option("--index", help="Which trajectory of the split, from 0.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Picture: png, pdf, svg, jpg or webp.")
    ] = None,
    animate: Annotated[Path | None, typer.Option("--animate", metavar="FILE", help="Animation: gif or webp.")] = None,
) -> None:
    """Draw a trajectory: space-time image and profiles in 1-D, frames in a row in 2-D.

    Without --out and --animate the picture is written to SYSTEM_SPLIT_INDEX.png in the present folder.
    """
    from pdejepa.data.well.inspector import refuse_unreadable
    from pdejepa.data.well.reader import Dataset
    from pdejepa.draw.pictures import animate_trajectory, draw_trajectory

    with Dataset.open(folder) as data:
        chosen = split or (DEFAULT_SPLIT if DEFAULT_SPLIT in data.splits else data.splits[0])
        refuse_unreadable(sorted({*data.shards(chosen), data.shards(data.splits[0])[0]}))
        trajectory = data.read(chosen, index)
        title = f"{_title(data)}, {chosen} {index}"
    if out is None and animate is None:
        out = Path(f"{_plain(trajectory.system_name) or 'trajectory'}_{_plain(chosen)}_{index}.png")
    if out is not None:
        draw_trajectory(trajectory, out, title)
    if animate is not None:
        animate_trajectory(trajectory, animate, title)
    shape = " x ".join(str(n) for n in trajectory.fields.shape[2:])
    what = f"{', '.join(trajectory.field_names)} on {shape} points, {len(trajectory.times)} frames"
    files = " and ".join(str(path) for path in (out, animate) if path is not None)
    typer.echo(f"{title} ({what}): drawn to {files}")


def _title(data: Dataset) -> str:
    """The system's own name for itself, or what a foreign file calls itself."""
    from pdejepa.systems import get, is_known

    name = data.system_name
    return get(name).title if is_known(name) and data.config is not None else name[:80]


def _plain(name: str) -> str:
    """A name from a file, fit for a file name: it may come from anywhere."""
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)[:60]
