"""`pdejepa train`: data, four stages, a model that forecasts; the same command continues what was interrupted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pdejepa.app.commands.options import ConfigFile, Overrides, PrintConfig, configure

if TYPE_CHECKING:
    from pdejepa.data.source import Stored
    from pdejepa.method.chain import Trained
    from pdejepa.method.run_config import RunConfig


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(train)


def train(
    system: Annotated[
        str,
        typer.Argument(metavar="NAME", help="One of the systems; `pdejepa systems` lists them. Or a folder of data."),
    ],
    overrides: Overrides = None,
    out: Annotated[str | None, typer.Option("--out", metavar="RUN", help="Folder of the run.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            help="tiny (a first look), laptop (half an hour on two cores), long (an hour or two there), fast (minutes "
            "on a GPU) or paper. Default: that of the run if it exists, else fast with a CUDA device, laptop without.",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="A data set; generated in memory if not given.")
    ] = None,
    source_model: Annotated[
        str | None,
        typer.Option("--from", metavar="MODEL", help="Fine-tune a run, model folder or shipped model on these data."),
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option("--stages", metavar="A,B", help="Stages: pretrain, align, dynamics, decode, polish, reconstruct."),
    ] = None,
    variant: Annotated[
        str | None, typer.Option("--variant", help="physics (the default), geo, vanilla or direct.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Total for the stages, shared among them as in the recipe.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of weights, shuffles and masks.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto (the default), cpu, cuda or cuda:N.")] = None,
    resume: Annotated[str, typer.Option("--resume", help="auto: continue what is there; never: refuse to.")] = "auto",
    restart: Annotated[
        str, typer.Option("--restart", metavar="STAGE", help="Forget this stage and those after it first.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Train here even if it takes very long.")] = False,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
) -> None:
    """Train a surrogate of a system, or of data. The same command continues an interrupted training, exactly.

    pdejepa train DIR takes the data set in DIR, imported or generated; sizes and steps follow from it and are printed.
    Any field of the configuration can be set by a word, for example model.field.depth=4 or
    dynamics.training.optimiser.lr=1e-3; --print-config shows them all. Under torchrun, ranks share every batch.
    --from MODEL goes on from the weights of a trained model with the same fields, grid and parameters: its encoder and
    projector stay, and the stages dynamics, decode and polish train the rest further.
    """
    started = time.monotonic()
    from pdejepa.core.device import rank_and_world
    from pdejepa.core.errors import UsageError
    from pdejepa.method import recipes
    from pdejepa.method.chain import with_seconds
    from pdejepa.method.pipeline import train as run
    from pdejepa.method.recipes.derived import sizes_in_words
    from pdejepa.method.run_config import RunConfig
    from pdejepa.method.tuning import tuned_from

    options = {
        "data": data,
        "stages": None if stages is None else [name.strip() for name in stages.split(",") if name.strip()],
        "variant": variant,
        "seed": seed,
        "device": device,
    }
    source = _stored(system, data, overrides)
    usual = recipe or _usual_recipe(out, device)
    if source is None:
        defaults = recipes.get(system, usual)
    else:
        options["data"] = source.name
        defaults = recipes.for_data(source, usual)
    if source_model is not None:
        defaults = tuned_from(defaults, source_model)
    if seconds is not None:
        defaults = with_seconds(configure(RunConfig, config, (), options, defaults), seconds)
    settings = configure(RunConfig, config, overrides, options, defaults, print_config)
    if out is None:
        raise UsageError("Name a folder for the run: --out RUN.")
    _check_resume(resume, out)
    if source is not None and source.system is None:
        typer.echo(sizes_in_words(settings, source.problem, settings.counts["train"]))
    _tell_cost(settings, source, out, yes)
    trained = run(settings, out, typer.echo, restart, started)
    if rank_and_world()[0] == 0:
        typer.echo(_summary(trained, out))


def _usual_recipe(out: str | None, device: str | None) -> str:
    """The recipe of the run that is there, or the one for this machine."""
    from pathlib import Path

    from pdejepa.core.device import pick_device
    from pdejepa.method.recipes import RECIPES
    from pdejepa.method.run_settings import read_json

    if out is not None and (Path(out) / "config.json").exists():
        known = read_json(Path(out) / "config.json").get("train", {})
        if isinstance(known, dict) and known.get("recipe") in RECIPES:
            return str(known["recipe"])
    return "fast" if pick_device(device or "auto").type == "cuda" else "laptop"


def _stored(name: str, data: str | None, overrides: list[str] | None) -> Stored | None:
    """The data set that NAME, --data or data=DIR is; None where NAME is a system, which then reads --data by itself."""
    from pathlib import Path

    from pdejepa.core.errors import UsageError
    from pdejepa.data.source import Stored
    from pdejepa.systems import is_known

    if is_known(name.replace("-", "_").lower()):
        return None
    folder = name if Path(name).is_dir() else ""
    words = [word.removeprefix("data=") for word in overrides or [] if word.startswith("data=")]
    given = next((one for one in (*words, data) if one), "")
    if folder and given and Path(folder).resolve() != Path(given).resolve():
        raise UsageError(f"NAME is the data set {folder}, --data is {given}. Give one of them.")
    if not folder and not given:
        return None
    source = Stored.open(folder or given)
    if not folder and name != source.problem.name:
        raise UsageError(f"{given} holds {source.problem.name}, not {name}. Train it with: pdejepa train {given}")
    return source


def _tell_cost(settings: RunConfig, source: Stored | None, out: str, is_sure: bool) -> None:
    """On a CPU, before anything long starts: how long it will take here, or why it is not started."""
    from pathlib import Path

    from pdejepa.core.device import pick_device, rank_and_world
    from pdejepa.core.errors import UsageError
    from pdejepa.method.estimate import estimate, refusal

    is_begun = any((Path(out) / name).is_dir() for name in settings.stages)
    is_long = settings.recipe != "tiny"
    if is_begun or not is_long or pick_device(settings.device).type == "cuda" or rank_and_world()[1] > 1:
        return
    found = estimate(settings, source)
    refused = "" if is_sure or settings.recipe in ("laptop", "long") else refusal(settings, found)
    if refused:
        raise UsageError(refused)
    typer.echo(found.sentence)


def _check_resume(resume: str, out: str) -> None:
    from pathlib import Path

    from pdejepa.core.errors import UsageError

    if resume not in ("auto", "never"):
        raise UsageError(f"--resume must be auto or never, got {resume!r}.")
    if resume == "never" and (Path(out) / "config.json").exists():
        raise UsageError(f"{out} holds a run already. Use --resume auto to continue it, or another --out.")


def _summary(trained: Trained, out: str) -> str:
    """Seconds and scores of the stages, and what to do next."""
    lines = [f"data         {trained.seconds['data']:8.1f} s"]
    for name, report in trained.reports.items():
        score = "" if report.get("score") is None else f"   score on valid {report['score']:.4g}"
        flops = report.get("flops", 0.0)
        rate = f"   {flops:.2g} operations, {flops / report['seconds'] / 1e9:,.0f} GFLOP/s" if flops else ""
        lines.append(f"{name:<12} {report['seconds']:8.1f} s   {report['steps']:,} steps{rate}{score}")
    if "decode" in trained.reports:
        lines.append(f"Next: pdejepa evaluate {out} --splits test; pdejepa report {out}")
    return "\n".join(lines)
