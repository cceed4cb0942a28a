"""`pdejepa results`: records of evaluations beside the published numbers, as a table, in a file, as a picture."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdejepa.core.errors import DataError, UsageError, did_you_mean

if TYPE_CHECKING:
    from pdejepa.evaluate.evaluations import Found

USUAL_FOLDER, USUAL_RECIPE = "results", "fast,laptop,long"
MARK, SHORT = "results", "results in short"
N_NAMED = 3  # files left out for the same reason


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(results)


def results(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER]",
            help="Records of `pdejepa evaluate`; ./results if not given, or what shipped models tell if there is none.",
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[str, typer.Option("--recipe", metavar="A,B", help="Which recipes.")] = USUAL_RECIPE,
    write: Annotated[
        list[Path] | None,
        typer.Option("--write", metavar="FILE", help="Put the table between the marks in FILE; may be repeated."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Picture of the error of every forecast frame.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON instead of a table.")] = False,
) -> None:
    """Print the errors of trained models beside the published ones, and say which of those are met.

    The marks of --write are the lines <!-- results --> and <!-- end results -->; what stands between is replaced. With
    <!-- results in short --> it is one row a system.
    """
    from pdejepa.core.documents import has_marks, write_between
    from pdejepa.evaluate.against_paper import make_rows, make_targets, row_to_plain
    from pdejepa.evaluate.result_tables import results_table, short_table

    _check_plot(plot)
    found = _find(folder)
    chosen_recipes = _recipes(recipe, found)
    rows = make_rows(found.records, chosen_recipes)
    table = results_table(rows, make_targets(rows))
    if found.skipped:
        typer.echo(f"Skipped: {_grouped(found.skipped)}.", err=True)
    if as_json:
        typer.echo(json.dumps([row_to_plain(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        typer.echo("\n".join((table.text(width), *_others(found, chosen_recipes))))
    for file in write or ():
        mark, chosen = (SHORT, short_table(rows)) if has_marks(file, SHORT) else (MARK, table)
        changed = write_between(file, mark, f"{chosen.markdown()}\n- Written by `{_command(recipe, write or ())}`.")
        typer.echo(f"Written to {file}" if changed else f"{file} is up to date.", err=as_json)
    if plot is not None:
        from pdejepa.draw.error_curves import draw_errors
        from pdejepa.evaluate.errors_over_time import error_panels

        draw_errors(error_panels(rows), plot)
        typer.echo(f"Drawn to {plot}", err=as_json)


def _grouped(skipped: Sequence[tuple[str, str]]) -> str:
    """`a.json, b.json, c.json and 10 more (no record of an evaluation); d.json (damaged: not JSON)`."""
    names: dict[str, list[str]] = {}
    for name, why in skipped:
        names.setdefault(why, []).append(name)
    return "; ".join(
        f"{', '.join(own[:N_NAMED])}{f' and {len(own) - N_NAMED} more' if len(own) > N_NAMED else ''} ({why})"
        for why, own in names.items()
    )


def _check_plot(plot: Path | None) -> None:
    from pdejepa.draw.pictures import FORMATS

    if plot is not None and plot.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot must be a picture ({', '.join(FORMATS)}); got {plot.name!r}.")


def _find(folder: Path | None) -> Found:
    """The records of the folder, or of the shipped models if none is given and the usual one is not there."""
    from pdejepa.evaluate.evaluations import read_evaluations, shipped_evaluations

    if folder is not None or Path(USUAL_FOLDER).is_dir():
        found = read_evaluations(folder or Path(USUAL_FOLDER))
        if folder is not None and not found.records:
            raise DataError(
                f"{folder} holds no record of an evaluation. "
                f"Make one with: pdejepa evaluate RUN --out {folder / 'NAME.json'}"
            )
        return found
    found = shipped_evaluations()
    if not found.records and not found.skipped:
        raise DataError(
            f"There is no folder {USUAL_FOLDER!r} here, and no model comes with this pdejepa; "
            "make a record with: pdejepa evaluate RUN --out results/NAME.json"
        )
    return found


def _recipes(text: str, found: Found) -> tuple[str, ...]:
    """The names in a list with commas; refused are those that are neither a recipe's nor a record's."""
    from pdejepa.method.recipes import RECIPES

    known = dict.fromkeys((*RECIPES, *(record.recipe for record in found.records)))
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or "."
            told = ", ".join(filter(None, known))
            raise UsageError(f"--recipe: unknown recipe {name[:80]!r}{hint} There are {told}.")
    return names


def _others(found: Found, recipes: Sequence[str]) -> list[str]:
    """Which other recipes there are records of."""
    counts = Counter(record.recipe for record in found.records if record.recipe not in recipes)
    told = ", ".join(f"{name or 'unnamed'} ({n})" for name, n in sorted(counts.items()))
    return [f"Records of other recipes, shown with --recipe: {told}."] if told else []


def _command(recipe: str, write: Sequence[Path]) -> str:
    option = "" if recipe == USUAL_RECIPE else f" --recipe {recipe}"
    files = "".join(f" --write {file.name if file.is_absolute() else file}" for file in write)
    return f"pdejepa results{option}{files}".replace("`", "'")
