"""How large should the networks be?  Error against seconds of training, for several sizes of the same recipe.

    python lab/scripts/sizes.py combined --seconds 110 45 --device cuda --out results/sizes-h200.json --plot sizes.png
    python lab/scripts/sizes.py combined --recipe tiny --factors 0.5 1 --seconds 20 --device cpu --set counts.train=2000

A size is a factor of all widths; depths, heads, data, rates and the share of every stage in the seconds stay.  Seconds
are those of training steps: compiling and recording, which take about as long for every size, are given beside them.
Every training is judged twice: after its four stages, and, where the recipe polishes, at its end.  What the file holds
already is kept, so the same command goes on with what is missing.

    python lab/scripts/sizes.py combined --redraw results/sizes-h200.json --plot docs/pictures/sizes_h200.png
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from tables import size_table

from pdejepa import systems
from pdejepa.core.config import load_config
from pdejepa.core.device import device_name, free_memory, pick_device, without_new_code
from pdejepa.core.files import write_json
from pdejepa.core.provenance import commit
from pdejepa.draw import pictures
from pdejepa.draw.panels import NORMAL, SMALL, new_figure
from pdejepa.evaluate.protocol import evaluate
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.method import recipes
from pdejepa.method.chain import Trained, train_stages, with_seconds
from pdejepa.method.load_data import load_data
from pdejepa.method.run_config import RunConfig
from pdejepa.models.surrogate import ModelConfig
from pdejepa.training.training_data import TrainingData

SPLITS = ("valid", "test", "ood")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9")  # told apart by everybody
Row = dict[str, Any]


def scaled(model: ModelConfig, factor: float) -> ModelConfig:
    """The same networks with all widths multiplied; refused by the configuration where heads no longer fit."""
    wide = lambda part: dataclasses.replace(part, width=round(factor * part.width))  # noqa: E731
    return dataclasses.replace(
        model,
        encoder=wide(model.encoder),
        jepa_predictor=wide(model.jepa_predictor),
        projector=dataclasses.replace(model.projector, hidden=round(factor * model.projector.hidden)),
        causal_predictor=wide(model.causal_predictor),
        field=wide(model.field),
        decoder=dataclasses.replace(model.decoder, widths=tuple(round(factor * w) for w in model.decoder.widths)),
    )


def judge(trained: Trained, n: int | None) -> dict[str, float | None]:
    """Errors of whole forecasts on every split that the system has."""
    device = pick_device(trained.config.device)
    forecaster = Forecaster(trained.model, {"size": trained.config.size}, device)
    splits = [split.name for split in trained.model.system.splits if split.name in SPLITS]
    with without_new_code(device):
        found = evaluate(forecaster, splits, n=n)
    return {split: errors.rel_l2 for split, errors in found.items()}


def study(config: RunConfig, data: TrainingData, factor: float, seconds: float, n: int | None) -> Iterator[Row]:
    """Train one size for some seconds; a row after four stages and one after polishing."""
    config = with_seconds(dataclasses.replace(config, model=scaled(config.model, factor)), seconds)
    spent = {"judging": 0.0}
    rows = []

    def after_stage(name: str, trained: Trained) -> None:
        if name not in ("decode", "polish"):
            return
        now = time.monotonic()
        errors = judge(trained, n)
        spent["judging"] += time.monotonic() - now
        shares = {stage: getattr(config, stage).training.budget.seconds for stage in trained.reports}
        rows.append(
            {
                "factor": factor,
                "parameters": sum(p.numel() for p in trained.model.parameters()),
                "polished": name == "polish",
                "budget": seconds,
                "seconds": sum(shares.values()),
                "steps": {stage: report["steps"] for stage, report in trained.reports.items()},
                "commit": commit(),
                **errors,
            }
        )

    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        train_stages(config, folder, print, after_stage, data=data, keep="trial")
    whole = time.monotonic() - begun - spent["judging"]
    for row in rows:
        yield {**row, "set_up": max(0.0, whole - seconds)}


def begun_report(path: Path | None, about: Row) -> Row:
    """What a file holds, if it is about the same; else a report without rows."""
    if path is None or not path.exists():
        return {**about, "sizes": []}
    found: Row = json.loads(path.read_text())
    differing = [name for name, value in about.items() if found.get(name) != value]
    if differing:
        raise SystemExit(f"{path} is about another {', '.join(differing)}; use another --out, or remove it.")
    return found


def draw(rows: Sequence[Row], title: str) -> Any:
    """Error against seconds, inside and outside: a line for every training, from its four stages to its end."""
    splits = [split for split in SPLITS[1:] if split in rows[0]]
    figure = new_figure(4.4 * len(splits), 3.4, "constrained")
    figure.suptitle(title, fontsize=NORMAL)
    sizes = sorted({(row["parameters"], row["factor"]) for row in rows})
    for panel, split in zip(figure.subplots(1, len(splits), squeeze=False)[0], splits, strict=True):
        for colour, (parameters, factor) in zip(COLOURS, sizes, strict=False):
            label = f"{parameters / 1e6:.2f} million parameters"
            for budget in sorted({row["budget"] for row in rows if row["factor"] == factor}):
                some = [row for row in rows if (row["factor"], row["budget"]) == (factor, budget)]
                panel.plot([r["seconds"] for r in some], [100 * r[split] for r in some], color=colour, label=label)
                label = ""
                for row in some:
                    fill = colour if row["polished"] else "white"
                    panel.plot(row["seconds"], 100 * row[split], "o", color=colour, markerfacecolor=fill)
        panel.set(yscale="log")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("{x:g}")
        panel.set_title(f"{split} (open: four stages, filled: polished)", fontsize=NORMAL)
        panel.set_xlabel("seconds of training steps", fontsize=NORMAL)
        panel.set_ylabel("relative L2 error, %", fontsize=NORMAL)
        panel.tick_params(labelsize=SMALL, which="both")
        panel.grid(color="#dddddd", linewidth=0.5, which="both")
        panel.legend(fontsize=SMALL, frameon=False)
    return figure


def measure(args: argparse.Namespace) -> Row:
    """The report with all sizes and budgets asked for; written after every training."""
    device = pick_device(args.device)
    options = {"seed": args.seed, "device": str(device)}
    config = load_config(RunConfig, None, args.set, recipes.get(args.system, args.recipe), options)
    data = load_data(config, device)
    about = {"device": device_name(device), "torch": torch.__version__, "system": args.system, "recipe": args.recipe}
    about |= {"seed": args.seed, "set": args.set, "data_hash": data.hash}
    report = begun_report(args.out, about)
    for seconds, factor in itertools.product(args.seconds, args.factors):
        if any((row["budget"], row["factor"]) == (seconds, factor) for row in report["sizes"]):
            continue
        print(f"{args.system}: {factor:g} times the widths of {args.recipe}, {seconds:g} s", flush=True)
        report["sizes"] += study(config, data, factor, seconds, args.n)
        if args.out:
            write_json(args.out, report)
        torch._dynamo.reset()  # there is a limit to what one process keeps compiled
        free_memory()
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=systems.NAMES)
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("--factors", type=float, nargs="+", default=[1.0, 0.75, 0.5], help="of all widths")
    parser.add_argument("--seconds", type=float, nargs="+", default=[110.0], help="of training steps, for each size")
    parser.add_argument("--n", type=int, help="judge the first n trajectories of every split")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="other settings than the recipe's")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--redraw", type=Path, metavar="FILE", help="train nothing; table and picture of this report")
    args = parser.parse_args()
    report = json.loads(args.redraw.read_text()) if args.redraw else measure(args)
    if args.plot:
        title = f"{systems.get(report['system']).title}, recipe {report['recipe']}, {report['device']}"
        pictures.save(lambda: draw(report["sizes"], title), args.plot)
    print(size_table(report))


if __name__ == "__main__":
    main()
