"""`pdejepa generate`: make, continue, verify or repair a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pdejepa.app.commands.options import ConfigFile, Overrides, PrintConfig, configure

if TYPE_CHECKING:
    from pdejepa.data.generate.job import GenerateReport


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(generate)


def generate(
    system: Annotated[str, typer.Argument(metavar="NAME", help="One of the systems; `pdejepa systems` lists them.")],
    overrides: Overrides = None,
    out: Annotated[str | None, typer.Option("--out", metavar="DIR", help="Folder of the data set.")] = None,
    size: Annotated[
        str | None, typer.Option("--size", metavar="SIZE", help="tiny (the default), small, laptop or paper.")
    ] = None,
    splits: Annotated[
        str | None,
        typer.Option("--splits", metavar="A,B", help="Only these splits; if not given, those of the benchmark."),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto (the default), cpu, cuda or cuda:N.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of all random draws, 0 if not given.")] = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Only slice I of N of the work, I from 0; for job arrays."),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="Workers of this dask scheduler do it: tcp://HOST:PORT."),
    ] = None,
    raw_frames: Annotated[
        bool | None, typer.Option("--raw-frames", help="Keep all frames of the solver.", show_default=False)
    ] = None,
    no_wait: Annotated[
        bool | None,
        typer.Option("--no-wait", help="Leave if another process writes there.", show_default=False),
    ] = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
) -> None:
    """Generate a data set in The Well's layout; the same command continues, verifies and repairs it.

    Settings without an option are words: switches.flux="alpha u^2", counts.train=2000, rows_per_file=100,
    compression=gzip.
    """
    from pdejepa.data.generate.job import GenerateConfig
    from pdejepa.data.generate.job import generate as run

    options = {
        "system": system,
        "out": out,
        "size": size,
        "splits": None if splits is None else [name.strip() for name in splits.split(",") if name.strip()],
        "device": device,
        "seed": seed,
        "shard": shard,
        "scheduler": scheduler,
        "raw_frames": raw_frames,
        "wait": None if no_wait is None else not no_wait,
    }
    typer.echo(_summary(run(configure(GenerateConfig, config, overrides, options, print_config=print_config))))


def _summary(report: GenerateReport) -> str:
    """What there is now, and what to run next."""
    from pdejepa.core.text import human_bytes

    lines = [
        f"{report.n_trajectories:,} trajectories in {report.out}, {human_bytes(report.n_bytes)} "
        f"({report.n_generated:,} computed now, {report.seconds:.1f} s)."
    ]
    odd = {label: n for label, n in report.outcomes.items() if label != "ok"}
    if odd:
        lines.append("Marked: " + ", ".join(f"{n} {label}" for label, n in odd.items()) + "; see the card, README.md.")
    if report.n_redrawn:
        lines.append(f"{report.n_redrawn} solves failed and were drawn again; see generation.json.")
    if report.is_complete:
        lines.append(f"Next: pdejepa audit {report.out}; pdejepa show {report.out}")
    else:
        n = report.n_unfinished
        lines.append(
            f"{n} shard{'s' * (n != 1)} of other slices {'are' if n != 1 else 'is'} not finished yet; "
            "whoever finishes the last one writes the statistics, the card and the manifest."
        )
    return "\n".join(lines)
