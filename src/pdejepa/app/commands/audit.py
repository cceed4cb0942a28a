"""`pdejepa audit`: does a data set hold what it claims?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdejepa.app.commands.options import ConfigFile, Overrides, PrintConfig, configure

if TYPE_CHECKING:
    from pdejepa.data.audit.findings import Report

COLOURS = {"ok": "green", "failed": "bold red", "reported": "yellow", "skipped": "dim"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(audit)


def audit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Data set, ours or anybody's in The Well's layout.")],
    overrides: Overrides = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples", help="Rows of each split to solve again; 3 if not given, fewer where a row takes minutes."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto (the default), cpu, cuda or cuda:N.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Which rows are picked, 0 if not given.")] = None,
    format_only: Annotated[
        bool | None,
        typer.Option("--format-only", help="Hashes and format only; no certificate is written.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
) -> None:
    """Check hashes, format, values, splits and physics of a data set, and write a certificate into it.

    Ends with 3 if files or values are at fault, with 5 if only the physics is.
    """
    from pdejepa.data.audit.auditor import AuditConfig
    from pdejepa.data.audit.auditor import audit as run

    options = {"samples": samples, "device": device, "seed": seed, "format_only": format_only}
    report = run(folder, configure(AuditConfig, config, overrides, options, print_config=print_config))
    if as_json:
        typer.echo(json.dumps(report.to_plain(), indent=2, ensure_ascii=False))
    elif sys.stdout.isatty():
        _print_table(report)
    else:
        typer.echo("\n".join((*report.lines(), report.summary())))
    error = report.error()
    if error is not None:
        raise error


def _print_table(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from pdejepa.data.audit.findings import show

    table = Table()
    for head in ("part", "result", "what was checked", "value", "bound"):
        table.add_column(head, overflow="fold")
    for finding in report.findings:
        state = Text(finding.state, COLOURS[finding.state])
        row = (Text(finding.sentence), show(finding.value), show(finding.bound))
        table.add_row(finding.part, state, *row)
    console = Console()
    console.print(table)
    console.print(report.summary(), highlight=False, markup=False)
