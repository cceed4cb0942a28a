"""What commands share: those that forecast, `--u0` and `--frames`; those with a configuration, what follows.

    def generate(
        system: Annotated[str, typer.Argument()],
        overrides: Overrides = None,
        seed: Annotated[int | None, typer.Option()] = None,
        config: ConfigFile = None,
        print_config: PrintConfig = False,
    ) -> None:
        from pdejepa.data.generate.job import GenerateConfig
        settings = configure(GenerateConfig, config, overrides, {"seed": seed}, print_config=print_config)

Which source wins, weakest first: defaults, YAML file, named options, `key=value` words. A `key=value` word is
the most deliberate of them (it names the exact field), so it has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from pdejepa.core.config import load_config, to_yaml
from pdejepa.core.errors import UsageError

T = TypeVar("T")

OwnState = Annotated[
    Path | None,
    typer.Option("--u0", metavar="FILE", help="Your own state instead, npy or npz; parameters by --set."),
]
NewFrames = Annotated[
    int | None, typer.Option("--frames", help="New frames; as many as the training data have if not given.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML file; it may set any field of the configuration."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Set single fields, dotted for nested ones; stronger than --config and options.",
        show_default=False,
    ),
]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print the resolved configuration as YAML and stop.")]


def configure(
    config_class: type[T],
    file: Path | None = None,
    overrides: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    defaults: T | Mapping[str, Any] | None = None,
    print_config: bool = False,
) -> T:
    """Resolve the configuration of a command; with `print_config`, print it and end with code 0.

    `options` maps dotted field names to the values of named options. An option must default to None, which
    means "not given", or it would always beat the file.
    """
    config = load_config(config_class, file, overrides or (), defaults, options)
    if print_config:
        typer.echo(to_yaml(config), nl=False)
        raise typer.Exit(0)
    return config


def assignments(option: str, texts: Sequence[str]) -> dict[str, float]:
    """Values of an option that takes NAME=VALUE and may be repeated."""
    values = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            values[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise UsageError(
                f"{option} takes NAME=VALUE with a number, for example viscosity=5e-5; got {text[:100]!r}."
            )
    return values
