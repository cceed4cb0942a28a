"""`pdejepa import`: data of others, looked at, cut into splits, and written like data of our own."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pdejepa.data.importing.convert import ImportReport
    from pdejepa.data.importing.import_request import ImportRequest
    from pdejepa.data.importing.parts import Found

QUESTIONS = {
    "axes": "What are the axes (n trajectory, t time, c channel, x, y)?",
    "dt": "Time between two frames?",
    "box": "Ends of each spatial axis, LOW:HIGH?",
    "periodic": "Which axes are periodic (or none)?",
    "params": "Table of parameters, CSV or JSON (or none)?",
    "name": "A name for the data set?",
}

HINTS = {"dt": "STEP", "box": "LOW:HIGH", "params": "TABLE|none", "name": "NAME"}  # what the looks do not tell


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="import")(import_)


def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="npy, npz or HDF5 files with the fields.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the data set.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the data set, a word such as my_flow.")] = None,
    axes: Annotated[
        str | None,
        typer.Option("--axes", metavar="n,t,x", help="What each axis is: n trajectory, t time, c channel, x, y."),
    ] = None,
    paths: Annotated[
        str | None, typer.Option("--map", metavar="u=/PATH,...", help="Which arrays of HDF5 files are what.")
    ] = None,
    fields: Annotated[
        str | None, typer.Option("--fields", metavar="u,v", help="Names of the channels, or of the arrays in a file.")
    ] = None,
    params: Annotated[
        str | None, typer.Option("--params", metavar="TABLE", help="CSV or JSON, one row per trajectory; or none.")
    ] = None,
    dt: Annotated[float | None, typer.Option("--dt", help="Time between two frames.")] = None,
    box: Annotated[
        str | None, typer.Option("--box", metavar="LOW:HIGH,...", help="Ends of each spatial axis, e.g. 0:1 or 0:2pi.")
    ] = None,
    periodic: Annotated[
        str | None, typer.Option("--periodic", metavar="x,y", help="Axes that wrap around, or none.")
    ] = None,
    ends: Annotated[
        str, typer.Option("--ends", help="What happens at the other ends: open, dirichlet or neumann.")
    ] = "open",
    ood: Annotated[
        list[str] | None,
        typer.Option(
            "--ood", metavar="CONDITION", help='Which part is out of distribution, e.g. "nu<1e-3", or none; repeatable.'
        ),
    ] = None,
    lengths: Annotated[
        str, typer.Option("--lengths", help="Trajectories of different lengths: refuse them, or cut them.")
    ] = "refuse",
    title: Annotated[str, typer.Option("--title", help="A title for cards and pictures.")] = "",
    equation: Annotated[str, typer.Option("--equation", help="The equation, if it is known, as text.")] = "",
    seed: Annotated[int, typer.Option("--seed", help="Which trajectories go into which split.")] = 0,
    sure: Annotated[bool, typer.Option("--sure", help="The axes are right although they look otherwise.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Import without asking.")] = False,
) -> None:
    """Import fields and parameters of others as a data set that can be trained on.

    Shows first what each axis was taken for. Splits are cut by parameters, with an out-of-distribution split on
    purpose. The same command continues what was stopped. Nothing is ever unpickled.
    For example: pdejepa import fields.npz --axes n,t,x --fields u --params table.csv --dt 0.1 --box 0:1 --periodic x
    --name fisher --yes --out data
    """
    from pdejepa.data.importing.convert import SCRATCH, convert, discard, refuse_foreign_folder
    from pdejepa.data.importing.import_plan import make_plan
    from pdejepa.data.importing.import_request import ImportRequest, parse_box, parse_list, parse_map
    from pdejepa.data.importing.preview import preview_found, preview_plan
    from pdejepa.data.importing.sniff import sniff

    request = ImportRequest(
        files=tuple(files),
        out=out,
        name=name,
        axes=parse_list(axes),
        fields=parse_list(fields),
        params=params,
        dt=dt,
        box=parse_box(box),
        periodic=parse_list(periodic),
        ends=ends,  # type: ignore[arg-type]
        ood=None if ood is None else tuple(ood),
        lengths=lengths,  # type: ignore[arg-type]
        seed=seed,
        is_sure=sure,
        paths=parse_map(paths),
        title=title,
        equation=equation,
    )
    refuse_foreign_folder(out)
    is_new = not (out / "config.json").exists()
    try:
        found = sniff(request, out / SCRATCH, _tell)
        typer.echo(preview_found(found))
        request = _completed(request, found, yes)
        if request.axes is not None and request.axes != found.axes:
            found = sniff(request, out / SCRATCH, _tell)
        _check_axes(request, found)
        plan = make_plan(request, found)
        typer.echo(preview_plan(plan))
        _confirm(yes)
    except BaseException:
        shutil.rmtree(out / SCRATCH, ignore_errors=True)
        if is_new:
            discard(out)
        raise
    report = convert(plan, _tell)
    typer.echo(_summary(report))
    error = report.certificate.error()
    if error is not None:
        raise error


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _completed(request: ImportRequest, found: Found, yes: bool) -> ImportRequest:
    """The request with what was missing, asked for on a terminal; refused elsewhere."""
    from pdejepa.core.errors import UsageError
    from pdejepa.data.importing.import_plan import missing_options
    from pdejepa.data.importing.import_request import parse_box, parse_list

    missing = missing_options(request, found)
    if missing and not _can_ask():
        named = " ".join(f"--{option} {HINTS.get(option, guess)}" for option, guess in missing.items())
        raise UsageError(f"Not said, and not in the files: {named} (axes and periodic as the data look).")
    if not yes and not _can_ask():
        raise UsageError("Nothing was imported: there is no terminal to ask on. Add --yes if the above is right.")
    parse: dict[str, Any] = {"axes": parse_list, "periodic": parse_list, "box": parse_box, "dt": float}
    given = {}
    for option, guess in missing.items():
        answer = typer.prompt(QUESTIONS[option], default=guess)
        try:
            given[option] = parse.get(option, str)(answer)
        except ValueError:
            raise UsageError(f"--{option} cannot be {answer[:40]!r}.") from None
    return dataclasses.replace(request, **given)


def _check_axes(request: ImportRequest, found: Found) -> None:
    """Ask, or refuse, where the order of the axes looks wrong."""
    from pdejepa.core.errors import DataError
    from pdejepa.data.importing.sniff import doubt_about_axes

    doubt = "" if request.is_sure or found.is_recognised else doubt_about_axes(found)
    if doubt and not (_can_ask() and typer.confirm(f"{doubt} Import it as it is all the same?")):
        raise DataError(f"{doubt} If they are right as they are, add --sure.")


def _confirm(yes: bool) -> None:
    from pdejepa.core.errors import Interrupted

    if not yes and not typer.confirm("Import it like this?"):
        raise Interrupted("Nothing was imported.")


def _summary(report: ImportReport) -> str:
    from pdejepa.core.text import human_bytes

    counts = ", ".join(f"{split} {n:,}" for split, n in report.counts.items())
    return (
        f"{sum(report.counts.values()):,} trajectories in {report.out}, {human_bytes(report.n_bytes)} "
        f"({report.n_written:,} written now, {report.seconds:.1f} s): {counts}.\n"
        f"Certificate: {report.certificate.verdict}; see {report.out / 'CERTIFICATE.md'}\n"
        f"Next: pdejepa train {report.out} --recipe tiny --out RUN; pdejepa show {report.out}"
    )
