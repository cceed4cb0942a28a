"""Write docs/systems/<name>.md and docs/pictures/systems/<name>.png for every system, and docs/systems/README.md.

    python tools/make_systems.py [--check] [--no-pictures]

Nothing in the pages is typed by hand: equations, ranges, splits, structure and solver are what the systems declare (the
same that `pdejepa systems NAME` prints), sizes come from the recipes, claims of accuracy from the catalogue behind
`docs/verification.md`, errors from `results/*.json`.  `--check` writes nothing and fails if a page is out of date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from draw_systems import drawn, picture, shown  # noqa: E402

from pdejepa import systems  # noqa: E402
from pdejepa.app.describe import describe  # noqa: E402
from pdejepa.core.files import write_aside, write_text  # noqa: E402
from pdejepa.core.tables import Code, Table  # noqa: E402
from pdejepa.core.text import percent  # noqa: E402
from pdejepa.method import recipes  # noqa: E402
from pdejepa.method.run_config import RunConfig  # noqa: E402
from pdejepa.models.condition import Statistics  # noqa: E402
from pdejepa.models.surrogate import Surrogate  # noqa: E402
from pdejepa.systems import build_system  # noqa: E402
from pdejepa.training.settings import Budget  # noqa: E402
from tests.verification.studies import STUDIES  # noqa: E402

PAGES, PICTURES, RESULTS = ROOT / "docs" / "systems", ROOT / "docs" / "pictures" / "systems", ROOT / "results"
FORCING = {"none": "none", "constant": "a known field f(x)", "time": "a known field f(t,x)"}

One = dict[str, Any]


# ---- the index ---------------------------------------------------------------------------------------------------
def index() -> str:
    """One line for each system, under the picture of all nine (`tools/make_pictures.py`)."""
    rows = [
        (f"[{system.title}]({system.name}.md)", Code(system.equation), _grid_in_short(system), system.expect)
        for system in map(systems.get, systems.NAMES)
    ]
    return (
        "# The systems\n\n*This page is written by `python tools/make_systems.py`, the picture by "
        "`python tools/make_pictures.py`.*\n\n![One test trajectory of every system](../pictures/nine_systems.png)\n\n"
        "One dimension: space to the right, time upwards. Two dimensions: three frames of the first field; flows are "
        "simulated for the picture on coarser grids than the data.\n\n"
        f"{_table(('system', 'equation', 'grid', 'what one sees'), rows)}\n"
    )


def _grid_in_short(system: systems.System) -> str:
    return f"{' x '.join(map(str, system.grid))}, {len(system.times)} frames"


# ---- the page ----------------------------------------------------------------------------------------------------
def page(name: str) -> str:
    """The whole page of a system."""
    system = systems.get(name)
    one = describe(system)
    parts = (
        f"# {one['title']}\n\n*This page is written by `python tools/make_systems.py` from what the code declares.*",
        f"    {one['equation']}",
        one["docstring"],
        f"What one sees: {one['expect']}.",
        _picture(system),
        _commands(one),
        _parameters(one),
        _grid(one),
        _splits(one),
        _structure(one),
        _solver(one),
        *_error_in_space(one),
        _recipes(name),
        _results(name),
    )
    return "\n\n".join(parts) + "\n"


def _picture(system: systems.System) -> str:
    splits = " and ".join(dict.fromkeys(split for split, _ in shown(system)))
    way = "Space to the right, time upwards." if system.ndim == 1 else f"Frames of `{system.fields[0]}` over time."
    coarse = "" if drawn(system.name) == system else " Simulated for the picture on a coarser grid than the data."
    return f"![{system.title}: {splits}](../pictures/systems/{system.name}.png)\n\n{way}{coarse}"


def _commands(one: One) -> str:
    name, split = one["name"], next((s["name"] for s in one["splits"] if s["is_ood"]), "test")
    return (
        "## In three commands\n\n```bash\n"
        f"pdejepa generate {name} --size small --out data/{name}\n"
        f"pdejepa train {name} --recipe tiny --out runs/{name}        # --recipe fast on a GPU\n"
        f"pdejepa forecast runs/{name} --from {split}:0 --compare --out {name}.png\n```\n\n"
        "`train` makes its own data in memory; `--data DIR` takes a data set of the recipe's grid instead."
    )


def _parameters(one: One) -> str:
    head = ("name", "symbol", "unit", "meaning", "law", "training range", "out of distribution", "physical limits")
    families: dict[str, list[One]] = {}
    for parameter in one["parameters"]:
        stem, _, number = parameter["name"].rpartition("_")
        families.setdefault(stem if number.isdigit() else parameter["name"], []).append(parameter)
    rows = []
    for stem, members in families.items():
        p, n = members[0], len(members)
        label, symbol, meaning = (
            (Code(f"{stem}_1..{n}"), f"{p['symbol']}..{n}", p["meaning"].replace(" 1", f" 1..{n}"))
            if n > 1
            else (Code(p["name"]), p["symbol"], p["meaning"])
        )
        told = (p["law"], _range(p["train"]), p["ood"] or "-", _range(p["limits"]))
        rows.append((label, symbol, p["unit"], meaning, *told))
    constants = ", ".join(f"{name} = {value:g}" for name, value in one["constants"].items())
    return f"## Parameters\n\n{_table(head, rows)}" + (f"\n\nConstants: {constants}." if constants else "")


def _grid(one: One) -> str:
    lines = [
        f"- `{axis['name']}`: {axis['n']} points from {axis['first']:.6g} to {axis['last']:.6g}; {axis['ends']}"
        for axis in one["axes"]
    ]
    codes = one["structure"]["boundary_codes"]
    if codes:
        lines.append(f"- boundary pairs, left and right: {', '.join(codes)} (D Dirichlet, N Neumann)")
    lines += [
        f"- {one['n_frames']} frames from t = {one['first_time']:.6g} to {one['last_time']:.6g}; "
        f"`--raw-frames` stores all {one['n_raw_frames']} of the solver",
        f"- fields: {', '.join(f'`{name}`' for name in one['fields'])}, stored as float32",
        f"- switches: {', '.join(f'`{name}` = {_plain(value)}' for name, value in one['switches'].items())}",
    ]
    return "## Grid, frames and boundaries\n\n" + "\n".join(lines)


def _splits(one: One) -> str:
    sizes = ("tiny", "small", "laptop", "paper")
    head = ("split", *sizes, "environments", "kind", "meaning")
    rows = []
    for split in (*one["splits"], *one["extra_splits"]):
        numbers = (f"{split[key]:,}" for key in (*sizes, "n_environments"))
        kind = "out of distribution" if split["is_ood"] else "in distribution"
        rows.append((Code(split["name"]), *numbers, kind + (", ours" if split["is_ours"] else ""), split["meaning"]))
    extra = ", ".join(f"`{split['name']}`" for split in one["extra_splits"])
    told = f"Made and judged only where `--splits` names them, never part of the published tables: {extra}."
    return f"## Splits and sizes\n\n{_table(head, rows)}\n\n{told}{_broad(one)}"


def _broad(one: One) -> str:
    return f"\n\nInitial states of `broad_*`: {one['broad']}" if one["broad"] else ""


def _structure(one: One) -> str:
    structure = one["structure"]
    shared = "has a parameter-free part" if structure["has_shared"] else "is made of these terms alone"
    rows = [(Code(t["name"]), Code(t["expression"]), t["rule"]) for t in structure["terms"]]
    order = "second" if structure["time_order"] == 2 else "first"
    return (
        f"## Structure\n\nThe right-hand side {shared}; forcing: {FORCING[structure['forcing']]}; {order} order "
        f"in time; decoders pad with `{structure['padding']}`.\n\n"
        f"{_table(('term', 'sign c [operator]', 'normalised coefficient'), rows)}"
    )


def _solver(one: One) -> str:
    refined, bound = one["reference"]["refined"], one["reference"]["bound"]
    claims = [f"- {study.what}: {_claim(str(study.expected))}" for study in STUDIES if study.system == one["name"]]
    return (
        f"## Solver and its verification\n\nSolver: {one['solver']}. `pdejepa audit` compares stored trajectories "
        f"with: {refined}; the relative L2 difference of a row is at most {bound:g}.\n\n"
        "Claims that are measured, each beside a broken operator that must fail "
        f"([numbers](../verification.md)):\n\n" + "\n".join(claims)
    )


def _error_in_space(one: One) -> list[str]:
    """How far the benchmark is from a finer discretisation; nothing for a system that was not measured."""
    path = RESULTS / "refinement.json"
    measured = json.loads(path.read_text()).get(one["name"]) if path.exists() else None
    if measured is None:
        return []
    by_told: dict[str, list[float]] = {}
    for row in measured["rows"]:
        by_told.setdefault(row["told"], []).append(row["error"])
    head = ("compared with", "trajectories", "mean relative L2", "largest")
    lines = [
        (told, str(len(errors)), percent(sum(errors) / len(errors)), percent(max(errors)))
        for told, errors in sorted(by_told.items(), key=lambda item: _first_number(item[0]))
    ]
    return [
        "## Error in space\n\nThe solver's grid defines the benchmark: models are judged by the stored values, which "
        "differ from a finer discretisation, over the whole trajectory, by\n\n"
        f"{_table(head, lines)}\n\n"
        f"Measured by `python tools/measure_refinement.py {one['name']}` ({measured['seconds']} s on "
        f"{measured['device']}); `pdejepa audit` tells the same of the rows that it solves again, where they are cheap "
        "enough. It is never judged."
    ]


def _first_number(told: str) -> float:
    """The lower end of `..., WORD in [low, high)`."""
    return float(told.rpartition("[")[2].split(",")[0])


def _claim(expected: str) -> str:
    return f"order {expected}" if expected.isdigit() else expected


# ---- recipes and results -----------------------------------------------------------------------------------------
def _recipes(name: str) -> str:
    columns = [_recipe(recipes.get(name, recipe)) for recipe in recipes.RECIPES]
    rows = [(label, *(column[label] for column in columns)) for label in columns[0]]
    text = f"## Recipes\n\n{_table(('', *map(Code, recipes.RECIPES)), rows)}"
    return f"{text}\n\n`pdejepa train {name} --recipe R --print-config` shows every number."


def _recipe(config: RunConfig) -> dict[str, str]:
    system = build_system(config.system, config.size, dict(config.switches))
    model = _model(config, system)
    sizes, field = config.model, config.model.field
    n_train = config.counts.get("train", system.split("train").size(config.size))
    stages = {name: getattr(config, name).training for name in ("pretrain", "align", "dynamics", "decode", "polish")}
    return {
        "training trajectories": f"{n_train:,}",
        "grid": " x ".join(map(str, system.grid)),
        "observed frames": str(config.history),
        "tokens per frame": str(model.patches.n_tokens),
        "encoder, depth x width": f"{sizes.encoder.depth} x {sizes.encoder.width}",
        "masked predictor": f"{sizes.jepa_predictor.depth} x {sizes.jepa_predictor.width}",
        "causal predictor": f"{sizes.causal_predictor.depth} x {sizes.causal_predictor.width}",
        "vector field": f"{field.depth} x {field.width}",
        "integrator": f"{field.integrator}, {field.n_substeps} per frame",
        "decoder widths": ", ".join(map(str, sizes.decoder.widths)),
        "parameters in a forecast": f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M",
        "precision of training": config.precision,
        **{
            name: f"{_budget(training.budget)}, batch {training.batch}" if name in config.stages else "on request"
            for name, training in stages.items()
        },
    }


def _model(config: RunConfig, system: systems.System) -> Surrogate:
    """The network without memory for its weights."""
    ends = torch.tensor([p.train for p in system.parameters], dtype=torch.float64).T  # (2,P)
    fitted = system.coefficients(ends)
    pairs = zip(fitted.centre.tolist(), fitted.scale.tolist(), strict=True)
    ones = (1.0,) * len(system.fields)
    ranges = {p.name: p.train for p in system.parameters}
    statistics = Statistics(ones, ones, ranges, dict(zip(fitted.names, pairs, strict=True)))
    problem = system.problem  # its numbers are real ones
    with torch.device("meta"):
        return Surrogate(problem, config.model, config.variant, statistics, config.history)


def _budget(budget: Budget) -> str:
    told = {"steps": budget.steps, "epochs": budget.epochs, "s": budget.seconds, "flops": budget.flops}
    return next(f"{value:,g} {unit}" for unit, value in told.items() if value)


def _results(name: str) -> str:
    head = ("record", "split", "trajectories", "relative L2", "joint", "repeat first", "training, s", "on")
    rows = []
    for path, record in _records(name):
        judged = {split.name for split in systems.get(name).splits}
        for split, found in ((split, found) for split, found in record["errors"].items() if split in judged):
            errors = (percent(found.get(key)) for key in ("rel_l2", "rel_l2_joint", "repeat_first"))
            seconds = record["seconds"].get("total")
            total = f"{seconds:.0f}" if seconds else "-"
            rows.append((Code(path.stem), Code(split), f"{found['n']:,}", *errors, total, record["device"] or "-"))
    if not rows:
        return "## Results\n\nNo record yet."
    note = "On the grid of its recipe; a name is system, recipe, what was changed, `polish` if polished, and seed."
    return f"## Results\n\n{_table(head, rows)}\n\n{note}"


def _records(name: str) -> Iterable[tuple[Path, dict[str, Any]]]:
    """The records of our own recipes; other files in the folder are something else."""
    for path in sorted(RESULTS.glob("*.json")):
        record = json.loads(path.read_text())
        is_record = all(key in record for key in ("system", "recipe", "errors", "seconds", "device"))
        if is_record and record["system"] == name and record["recipe"] in recipes.RECIPES:
            yield path, record


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return Table(head, rows).markdown()


def _range(ends: Sequence[float]) -> str:
    return f"[{ends[0]:g}, {ends[1]:g}]"


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# ---- writing -----------------------------------------------------------------------------------------------------
def outdated() -> list[Path]:
    """The pages that differ from what would be written now."""
    return [path for path, text in written().items() if not path.exists() or path.read_text("utf-8") != text]


def written() -> dict[Path, str]:
    """What every page should say."""
    return {PAGES / "README.md": index(), **{PAGES / f"{name}.md": page(name) for name in systems.NAMES}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the pages, write nothing")
    parser.add_argument("--no-pictures", action="store_true", help="write the pages only")
    args = parser.parse_args()
    old = outdated()
    if args.check:
        for path in old:
            print(f"{path.relative_to(ROOT)} is out of date; run python tools/make_systems.py", file=sys.stderr)
        return int(bool(old))
    texts = written() if old else {}
    for path in old:
        write_text(path, texts[path])
        print(path.relative_to(ROOT))
    for name in () if args.no_pictures else systems.NAMES:
        path, content = PICTURES / f"{name}.png", picture(name)
        if not path.exists() or path.read_bytes() != content:
            with write_aside(path) as temporary:
                temporary.write_bytes(content)
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
