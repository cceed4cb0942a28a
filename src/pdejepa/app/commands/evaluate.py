"""`pdejepa evaluate`: errors of a model against the solver, as a table and a record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdejepa.app.commands.output_paths import check_file

if TYPE_CHECKING:
    from pdejepa.data.source import Trajectories
    from pdejepa.evaluate.evaluations import Evaluation
    from pdejepa.forecast.forecaster import Forecaster


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(evaluate)


def evaluate(
    model: Annotated[
        str, typer.Argument(metavar="RUN", help="Run folder, model folder, saved solver, or name of a shipped model.")
    ],
    splits: Annotated[
        str | None,
        typer.Option("--splits", metavar="A,B", help="Which splits; test and all out-of-distribution ones by default."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Data set; generated in memory if not given, or that of the training where no system is known.",
        ),
    ] = None,
    n: Annotated[int | None, typer.Option("--n", min=1, help="Only the first N trajectories of each split.")] = None,
    observed: Annotated[
        int | None, typer.Option("--observed", min=1, max=2, help="Frames given to the model, if not as trained.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Record; RUN/results/NAME.json if not given.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Measure the errors of a model on whole splits, print them, and record them.

    The record is a JSON file; the model's config.json and card are brought up to date as well. Errors on fewer
    trajectories than were recorded before do not replace those; --out names a file for them. Errors of published
    solvers are printed only: `pdejepa compare` records them, with their budget.
    """
    from contextlib import ExitStack

    from pdejepa import load
    from pdejepa.core.progress import progress
    from pdejepa.data.well.reader import Dataset
    from pdejepa.evaluate.evaluations import evaluation_table, make_record
    from pdejepa.evaluate.protocol import evaluate as run
    from pdejepa.evaluate.protocol import trajectory_counts
    from pdejepa.evaluate.record import Record
    from pdejepa.evaluate.truth import source_of
    from pdejepa.forecast.forecaster import Forecaster

    check_file("--out", out)
    forecaster = load(model, device)
    is_ours = isinstance(forecaster, Forecaster)
    if is_ours:
        _check_observed(forecaster, observed)
    else:
        _check_published(out, observed)
    with ExitStack() as stack:
        dataset = stack.enter_context(Dataset.open(data)) if data is not None else None
        source = source_of(forecaster, dataset)
        chosen = _splits(source, splits)
        counts = trajectory_counts(forecaster, chosen, source, n)
        if is_ours:
            _check_record(make_record(forecaster, {}, observed), out, counts)
        bar = stack.enter_context(progress(sum(counts.values()), f"evaluate {forecaster.problem.name}"))
        errors = run(forecaster, chosen, source, n, observed, bar.advance)
    if not is_ours:
        plain = Record(system=forecaster.problem.name, solver=forecaster.card.name, seed=0, errors=errors)
        typer.echo(evaluation_table(plain).text())
        return
    record = make_record(forecaster, errors, observed)
    typer.echo(evaluation_table(record).text())
    is_usual = observed in (None, forecaster.surrogate.history)
    _record(forecaster, record, out, is_usual, "" if data is None else data.resolve().name)


def _check_observed(forecaster: Forecaster, observed: int | None) -> None:
    from pdejepa.core.errors import DataError

    if (observed or 1) > forecaster.problem.structure.time_order:
        raise DataError(
            f"--observed {observed} is for second-order systems; {forecaster.problem.name} expects the observed state "
            "as one frame. Leave it out."
        )


def _check_published(out: Path | None, observed: int | None) -> None:
    from pdejepa.core.errors import UsageError

    if out is not None or observed is not None:
        raise UsageError("--out and --observed are for models of PDE-JEPA; errors of published solvers are printed.")


def _check_record(record: Evaluation, out: Path | None, counts: dict[str, int]) -> None:
    """Refuse to replace a record of more trajectories of the same forecasts."""
    from pdejepa.core.errors import UsageError
    from pdejepa.evaluate.evaluations import counted, earlier_errors, larger

    more = larger(counted(earlier_errors(record, out)), counts) if out is not None else ""
    if more:
        raise UsageError(f"--out: {out} has errors on {more}; fewer do not replace them. Name another file.")


def _splits(source: Trajectories, text: str | None) -> list[str]:
    from pdejepa.core.errors import DataError, UsageError, did_you_mean

    if text is None:
        usual = _usual_splits(source)
        return [name for name in usual if source.system is None or name in source.splits]
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--splits names no split; give for example --splits test,ood.")
    for name in names:
        if source.system is not None:
            source.system.split(name)  # refuses, with a hint
        elif name not in source.splits:
            hint = did_you_mean(name, source.splits) or f"; its splits: {', '.join(source.splits)}"
            raise DataError(f"{source.name} has no split {name!r}{hint}.")
    return list(dict.fromkeys(names))


def _usual_splits(source: Trajectories) -> list[str]:
    """test, and what is out of distribution."""
    if source.system is not None:
        return [split.name for split in source.system.splits if split.name == "test" or split.is_ood]
    return [name for name in source.splits if name == "test" or name.startswith("ood")]


def _record(forecaster: Forecaster, record: Evaluation, out: Path | None, is_usual: bool, source: str) -> None:
    """Write the record, and bring a model of our own up to date; one that came with the package stays as it is.

    The card tells errors on the model's own splits; those on a data set of another name stay in the record.
    """
    from pdejepa.evaluate.evaluations import brief_errors, counted, earlier_errors, larger, write_evaluation
    from pdejepa.forecast.locate import run_folder, shipped_models
    from pdejepa.method.save_model import record_errors

    folder = forecaster.folder
    assert folder is not None
    is_own = folder not in shipped_models().values()
    is_told = is_own and is_usual and not source
    counts = counted(record.errors)
    more = larger(counted(forecaster.details["errors"]), counts) if is_told else ""
    if out is None and is_own:
        name = record.file_name
        if not is_usual:
            name = name.replace(".json", f"-observed{record.observed_frames}.json")
        if source:
            name = name.replace(".json", f"-on-{source}.json")
        out = run_folder(folder) / "results" / name
        more = more or larger(counted(earlier_errors(record, out)), counts)
        if more:
            typer.echo(f"Not recorded: {folder} has errors on {more}; fewer do not replace them. Use --out FILE.")
            return
    if out is not None:
        write_evaluation(record, out)
        typer.echo(f"Recorded in {out}")
    if more:
        typer.echo(f"The card keeps the errors on {more}.")
    elif is_told:
        record_errors(forecaster.surrogate, folder, brief_errors(record.errors))
