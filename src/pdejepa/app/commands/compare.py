"""`pdejepa compare`: every solver on the same data with the same budget; `--report` draws what was measured."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pdejepa.studies.compare.comparison_records import SolverRecord


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(compare)


def compare(
    context: typer.Context,
    systems: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Systems to compare on; with --report, folders or files.")
    ],
    solvers: Annotated[
        str, typer.Option("--solvers", metavar="A,B", help="Names (see `pdejepa baselines`), NAME@fast, or all.")
    ] = "all",
    budget: Annotated[
        str, typer.Option("--budget", help="Budget of each training: 20s, 3min; or 500steps, 1e15flops.")
    ] = "3min",
    size: Annotated[str, typer.Option("--size", help="Size of the data: tiny, small, laptop or paper.")] = "paper",
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="tiny, laptop, fast or paper; usual: laptop on a CPU, fast on a GPU.")
    ] = None,
    amplitude: Annotated[
        str, typer.Option("--amplitude", help="unit: rescale all data to rms 1, where the equation allows it.")
    ] = "as_is",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds.")] = 1,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where records and trainings go.")
    ] = Path("compare"),
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    report: Annotated[
        bool, typer.Option("--report", help="Train nothing: tables and pictures of existing records.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Put a summary between the marks in a document.")
    ] = None,
) -> None:
    """Train and judge solvers on the same data, the same budget and the same numbers.

    Every solver, PDE-JEPA too, gets three short trials for its learning rate and nothing else. Records that exist are
    kept, so an interrupted comparison goes on with the same command. By the recipe laptop all networks cost about the
    same, and on a CPU seconds count set-up and trials too; NAME@fast has its published size. DIR/compare.md,
    DIR/compare.png and DIR/compare-minutes.png show all records in DIR. The marks of --write are the lines
    <!-- compare --> and <!-- end compare -->.
    """
    from pdejepa.core.documents import find_marks, write_between
    from pdejepa.core.errors import DataError, UsageError
    from pdejepa.core.files import write_text
    from pdejepa.training.budget import parse_budget

    total = parse_budget(budget)
    if write is not None:
        find_marks(write, "compare")  # before hours of training
    if report and (given := _given(context)):
        raise UsageError(f"--report shows every record it is given; drop {', '.join(given)}.")
    from pdejepa.studies.compare import minutes_picture
    from pdejepa.studies.compare.comparison_records import read_records
    from pdejepa.studies.compare.comparison_tables import page, summary
    from pdejepa.studies.compare.cost_picture import plot  # after what can be refused without PyTorch

    places, missing = [Path(name) for name in systems], []
    if not report:
        if out.exists() and not out.is_dir():
            raise UsageError(f"--out must be a folder; {out} is a file.")
        read_records([out] if out.exists() else [])  # what is damaged there is told now, not after hours
        asked: dict[str, Any] = {"budget": total, "out": out, "size": size, "recipe": recipe, "seeds": seeds}
        missing = _run(systems, solvers, device=device, amplitude=amplitude, **asked)
        places = [out]
    records = read_records(places)
    if not records:
        raise DataError(f"No records of comparisons in {', '.join(map(str, places))}. Make some: pdejepa compare NAME")
    picture, minutes, tables = (_beside(places[0], ending) for ending in (".png", "-minutes.png", ".md"))
    plot(records, picture)
    minutes_picture.plot(records, minutes)
    write_text(tables, page(records, picture.name, minutes.name))
    if write is not None:
        write_between(write, "compare", summary(records, Path(os.path.relpath(tables, write.parent)).as_posix()))
    left_out = _show(records)  # last: a reader that goes away must not cost the files
    rest = f" (also {'; '.join(reversed(left_out))})" if left_out else ""
    typer.echo(f"Tables: {tables}{rest}\nPictures: {picture}, {minutes}")
    if missing:
        raise DataError(f"No record of {', '.join(missing)}: see above why. The same command tries again.")


def _beside(place: Path, ending: str) -> Path:
    """Where the tables or the picture of a report go: into its folder, or beside the single record."""
    return place / f"compare{ending}" if place.is_dir() else place.with_name(f"{place.stem}{ending}")


def _given(context: typer.Context) -> list[str]:
    """The options of a comparison that were given."""
    names = ("solvers", "budget", "size", "recipe", "amplitude", "seeds", "out", "device")
    sources = {name: context.get_parameter_source(name) for name in names}
    return [f"--{name}" for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def _run(names: list[str], solvers: str, device: str, size: str, recipe: str | None, **options: Any) -> list[str]:
    """Compare on each system; what was asked for and has no record in the end.  `options`: see `Comparison`."""
    from pdejepa import systems
    from pdejepa.core.device import pick_device
    from pdejepa.studies.compare.comparison import compare as run
    from pdejepa.studies.compare.turns import Comparison, chosen, forecasters, usual_recipe

    who = chosen([part.strip() for part in solvers.split(",") if part.strip()])
    place = pick_device(device)
    more = {**options, "size": size, "recipe": recipe or usual_recipe(size, place)}
    plans = [Comparison(systems.get(name).name, who, device=place, **more) for name in names]
    missing = []
    for plan in plans:
        done = {(record.competitor, record.seed) for record in run(plan, _say)}
        turns = [(name, seed) for name in forecasters(plan) for seed in range(plan.seeds)]
        missing += [f"{name} on {plan.system} (seed {seed})" for name, seed in turns if (name, seed) not in done]
    return missing


def _say(line: str) -> None:
    """A line of what goes on; a reader that has gone away must not cost the training."""
    with contextlib.suppress(BrokenPipeError):
        typer.echo(line)


def _show(records: list[SolverRecord]) -> list[str]:
    """Print all tables; the columns that a terminal was too narrow for."""
    from pdejepa.studies.compare.comparison_tables import LEGEND, group_tables, groups

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    left_out: list[str] = []
    for heading, group in groups(records).items():
        for table in group_tables(heading, group):
            shown = table.fitted(width)
            left_out = max(left_out, [name for name in table.spare if name not in shown.head], key=len)
            typer.echo(f"\n{shown.text()}")
    typer.echo(f"\n{LEGEND}")
    return left_out
