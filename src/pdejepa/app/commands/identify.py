"""`pdejepa identify`: how well parameters are found from observed frames, by frames, noise and split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdejepa.app.commands.output_paths import check_file
from pdejepa.core.errors import UsageError

if TYPE_CHECKING:
    from pdejepa.draw.identified import Dots
    from pdejepa.studies.identify.identification import Identification, Plan

MARK = "identify"
USUAL = Path("results/identify")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(identify)


def identify(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="Run folders, model folders, or names of shipped models."),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Trajectories of every cell.")] = 24,
    splits: Annotated[str, typer.Option("--splits", metavar="A,B", help="Which splits.")] = "test,ood",
    noise: Annotated[str, typer.Option("--noise", metavar="A,B", help="Of every value, of the rms.")] = "0,1%,5%",
    frames: Annotated[
        str, typer.Option("--frames", metavar="A,B", help="After those that a forecast begins with.")
    ] = "1,3,all",
    limit: Annotated[
        float, typer.Option("--limit", min=0, metavar="SECONDS", help="Then no further case of a cell; 0: none.")
    ] = 0.0,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Records, one per system.")] = USUAL,
    write: Annotated[
        list[Path] | None,
        typer.Option("--write", metavar="FILE", help="Put the table between the marks in FILE; may be repeated."),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Picture of all errors.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    scheduler: Annotated[
        str, typer.Option("--scheduler", metavar="ADDRESS", help="Workers of this dask scheduler do it: tcp://HOST:PORT.")
    ] = "",
) -> None:
    """Find the parameters of trajectories whose parameters are known, and count how often the intervals hold them.

    Records are written after every case and kept: the same command continues, one with a larger --n adds cases.
    Without a MODEL the records in --out are shown. The marks of --write are the lines <!-- identify --> and
    <!-- end identify -->.

      pdejepa identify combined burgers --n 4
      pdejepa identify --write docs/results.md --plot docs/pictures/identify.png
    """
    from pdejepa.core.documents import find_marks, write_between
    from pdejepa.draw import pictures
    from pdejepa.studies.identify.identification import Plan, read_all
    from pdejepa.studies.identify.identification_tables import markdown, table

    check_file("--plot", plot, "Pictures", pictures.FORMATS)
    for file in write or ():
        find_marks(file, MARK)
    plan = Plan(tuple(_words(splits)), tuple(map(_share, _words(noise))), tuple(map(_count, _words(frames))), n, limit)
    if scheduler and limit:
        raise UsageError("--limit is of one machine; leave out either --limit or --scheduler.")
    if models:
        _measure(models, plan, out, device, scheduler)
    records = read_all(out)
    typer.echo(table(records).text())
    for file in write or ():
        told = "".join(f" --write {one}" for one in write or ()) + (f" --plot {plot}" if plot else "")
        changed = write_between(file, MARK, f"{markdown(records)}\n- Written by `pdejepa identify{told}`.")
        typer.echo(f"Written to {file}" if changed else f"{file} is up to date.")
    if plot is not None:
        from pdejepa.draw.identified import draw_identified

        draw_identified(_panels(records), plot)
        typer.echo(f"Drawn to {plot}")


def _measure(models: list[str], plan: Plan, out: Path, device: str, scheduler: str) -> None:
    from contextlib import ExitStack

    from pdejepa.core.locks import lock
    from pdejepa.core.progress import progress
    from pdejepa.forecast.forecaster import load
    from pdejepa.studies.identify.identification import identify as run
    from pdejepa.studies.identify.identification import n_cases

    # With a scheduler the device is that of the workers.
    solvers = [load(name, "cpu" if scheduler else device) for name in models]
    names = [solver.problem.name for solver in solvers]
    if len(set(names)) < len(names):
        raise UsageError(f"A record is of one model of a system; got two of the same: {', '.join(names)}.")
    with ExitStack() as stack:
        stack.enter_context(lock(out, option="--out"))
        bar = stack.enter_context(progress(n_cases(plan) * len(models), "identify", "cases"))
        if scheduler:
            from pdejepa.core.cluster import connected
            from pdejepa.studies.identify.case_task import identify_on

            cluster = stack.enter_context(connected(scheduler, say=bar.note))
        for model, solver, name in zip(models, solvers, names, strict=True):

            def report(line: str, n: int, name: str = name) -> None:
                if line:
                    bar.note(f"{name}, {line}")
                bar.advance(n)

            path = out / f"{name}.json"
            if scheduler:
                identify_on(cluster, solver, model, device, path, plan, report)
            else:
                run(solver, Path(model).name, path, plan, report)


def _panels(records: list[Identification]) -> dict[str, list[Dots]]:
    from pdejepa.draw.identified import Dots
    from pdejepa.studies.identify.identification import errors

    panels: dict[str, list[Dots]] = {}
    for record in records:
        for name, scale in record.ranges.items():
            cells = sorted((cell for cell in record.cells if cell.cases), key=lambda cell: cell.frames or 10**6)
            panels[f"{record.system}: {name}"] = [
                Dots(
                    cell.noise,
                    str(cell.frames or "all"),
                    cell.split != "test",
                    tuple(100 * error for error in errors(cell, name, scale)),
                )
                for cell in cells
            ]
    return panels


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _share(text: str) -> float:
    """1% or 0.01."""
    try:
        return float(text.rstrip("% ")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"--noise takes shares of the rms, for example 0,1%,5%; got {text[:60]!r}.") from None


def _count(text: str) -> int:
    """Numbers of frames; 0 for all."""
    if text != "all" and not (text.isdecimal() and int(text) > 0):
        raise UsageError(f"--frames takes numbers of frames, for example 1,3,all; got {text[:60]!r}.")
    return 0 if text == "all" else int(text)
