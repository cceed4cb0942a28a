"""The last section of the page: the command that repeats a run, its configuration, and where it comes from."""

from __future__ import annotations

import shlex
from typing import Any

from pdejepa.app.report.content import Plain, RunContent, dig, number
from pdejepa.app.report.markup import Html, details, note, paragraph, section, table, tag
from pdejepa.core import yaml_subset
from pdejepa.core.tables import Code, Table
from pdejepa.method.recipes import RECIPES
from pdejepa.training.settings import MEASURED

MAX_CONFIG = 60_000  # letters of the configuration that are shown


def command(content: RunContent) -> str:
    """The command that repeats this run, with run.yaml as its configuration; measured budgets as their steps."""
    train = content.train
    parts = ["pdejepa", "train", str(train.get("system", "NAME"))]
    for name in content.asked:
        plan = content.stages[name].n_planned
        for unit in MEASURED:
            if number(dig(train, name, "training", "budget", unit)) and plan:
                budget = f"{name}.training.budget"
                parts += [f"{budget}.{unit}=0", f"{budget}.steps={plan}"]
    if train.get("recipe") in RECIPES:
        parts += ["--recipe", str(train["recipe"])]
    return " ".join(shlex.quote(part) for part in (*parts, "--config", "run.yaml", "--out", "RUN"))


def reproduce(content: RunContent) -> Html:
    if not content.train:
        return section("reproduce", "How to repeat it", note("The configuration is lost.", "warn"), _facts(content))
    return section(
        "reproduce",
        "How to repeat it",
        paragraph("With the configuration below as run.yaml:"),
        tag("pre", command(content)),
        details("Configuration (run.yaml)", _config_text(content.train), MAX_CONFIG),
        _facts(content),
    )


def _config_text(train: Plain) -> str:
    try:
        return yaml_subset.dump(train)
    except RecursionError:
        return "nested too deeply to be shown"


def _facts(content: RunContent) -> Html:
    hashes = {f"weights of {name}": stage.sha256 for name, stage in content.stages.items() if stage.sha256}
    facts: dict[str, Any] = {
        "run folder": content.root.name,
        "pdejepa": content.versions.get("pdejepa") or content.model.get("pdejepa"),
        "PyTorch": content.versions.get("torch") or content.model.get("torch"),
        "device": content.model.get("device"),
        "commit": content.model.get("commit"),
        "seed": content.train.get("seed"),
        "hash of the data": content.data.get("hash"),
        **hashes,
        "weights of the model": content.model.get("weights_sha256"),
    }
    rows = [(name, Code(str(told)[:200])) for name, told in facts.items() if told not in (None, "")]
    return table(Table(("what", "value"), rows, ("Hashes are SHA-256.",)))
