"""`pdejepa ablate`: does each part of the method help, at equal budgets?  Trainings, measurements, tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdejepa.app.commands.options import ConfigFile, Overrides, PrintConfig, configure

if TYPE_CHECKING:
    from pdejepa.method.run_config import RunConfig


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(ablate)


def ablate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A system; with --report, a folder or a record.")],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder of all the runs.")] = None,
    what: Annotated[
        str | None,
        typer.Option("--what", metavar="A,B", help="variants, geometry, integrators, anchor, reconstruct; or all."),
    ] = None,
    base: Annotated[
        Path | None, typer.Option("--base", metavar="RUN", help="A finished run to compare with, left as it is.")
    ] = None,
    recipe: Annotated[str | None, typer.Option("--recipe", help="tiny, fast (the default) or paper.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", help="Total for the four stages of the base; the others take its steps."),
    ] = None,
    n: Annotated[int | None, typer.Option("--n", min=1, help="Measure the first N trajectories of each split.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto (the default), cpu, cuda or cuda:N.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Print the tables of records; nothing is trained.")] = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="With --report: put them between marks in FILE.")
    ] = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
) -> None:
    """Train the method without one part after another, with equal numbers of steps, and compare.

    The runs share the stages that do not differ. The same command goes on where it was stopped; the record is
    DIR/ablate.json. `pdejepa ablate --report DIR ...` prints the tables of one or more records again, --write puts them
    into a document between <!-- ablate: NAME --> and <!-- end ablate: NAME -->.
    """
    from pdejepa.core.errors import UsageError
    from pdejepa.studies.ablate.ablation import ablate as run
    from pdejepa.studies.ablate.ablation_tables import as_text
    from pdejepa.studies.ablate.runs import parse_what

    if report:
        _report([Path(name), *map(Path, overrides or [])], write)
        return
    if write is not None:
        raise UsageError("--write puts records into a document; use it with --report DIR.")
    questions = parse_what(what)
    options = {"device": device}
    settings = _settings(name, recipe, base, seconds, overrides, options, config, print_config)
    if out is None:
        raise UsageError("Name a folder for the runs: --out DIR.")
    record = run(settings, out, questions, base, n, typer.echo)
    typer.echo(f"\n{as_text(record)}\n\nRecorded in {out / 'ablate.json'}")


def _settings(
    name: str,
    recipe: str | None,
    base: Path | None,
    seconds: float | None,
    overrides: list[str] | None,
    options: dict[str, Any],
    config: Path | None,
    print_config: bool,
) -> RunConfig:
    """The settings of the base: of a recipe, or of the run that is given."""
    import dataclasses

    from pdejepa.core.errors import UsageError
    from pdejepa.core.run_folder import METHOD_STAGES
    from pdejepa.method import recipes
    from pdejepa.method.chain import with_seconds
    from pdejepa.method.run_config import RunConfig
    from pdejepa.studies.ablate.reuse_stages import read_base

    if base is None:
        defaults = dataclasses.replace(recipes.get(name, recipe or "fast"), stages=METHOD_STAGES)
        if seconds is not None:
            defaults = with_seconds(configure(RunConfig, config, (), options, defaults), seconds)
        return configure(RunConfig, config, overrides, options, defaults, print_config)
    if seconds is not None:
        raise UsageError("--seconds is for a base that is trained; --base has had its training.")
    stored = read_base(base)
    for option, given, there in (("NAME", name, stored.get("system")), ("--recipe", recipe, stored.get("recipe"))):
        if given is not None and given != there:
            raise UsageError(f"{option} is {given}, but --base {base} is of {there}.")
    return configure(RunConfig, config, overrides, options, stored, print_config)


def _report(paths: list[Path], write: Path | None) -> None:
    from pdejepa.studies.ablate.ablation_record import read_record
    from pdejepa.studies.ablate.ablation_tables import as_text, mark_name, write_marked

    records = [read_record(path) for path in paths]
    typer.echo("\n\n\n".join(as_text(record) for record in records))
    if write is not None:
        write_marked(write, [mark_name(path, record) for path, record in zip(paths, records, strict=True)], records)
        typer.echo(f"\nWritten to {write}")
