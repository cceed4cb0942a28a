"""The model card, `README.md` of a model: what it forecasts, how it was made, how good it is, where it ends."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pdejepa.core import yaml_subset
from pdejepa.core.config import to_dict
from pdejepa.core.errors import ConfigError
from pdejepa.core.run_folder import STAGES
from pdejepa.core.tables import Code, Table
from pdejepa.core.text import human_bytes, percent
from pdejepa.method import recipes
from pdejepa.method.run_config import load_stored
from pdejepa.systems import is_known
from pdejepa.systems.problem import Parameter, Problem
from pdejepa.training.settings import MEASURED, Budget

VARIANTS = {
    "physics": "latent ODE with one learned operator per physical term",
    "geo": "latent ODE, the parameters as a free token",
    "vanilla": "latent ODE on the unprojected latents, the parameters as a free token",
    "direct": "one network call per frame instead of an ODE",
}
LINE = 100  # letters of a command before it is continued on the next line
KNOWN = ("variant", "history", "size", "model")  # of the training, what every checkpoint tells
OPTIONS = ("system", "stages", "seed", "variant", "data", "tuned_from")  # told by options of the command
FREE = ("device",)  # where, not what
INSIDE = ("train", "valid", "test")  # splits with parameters of the training range


def card_text(problem: Problem, details: dict[str, Any], rounded: Sequence[str]) -> str:
    """The card of the model that `details`, the content of config.json, describes.

    rounded: of field and decoder, those whose layers hold values of bfloat16.
    """
    details = {"training": {}, "steps": {}, **details}  # older files lack them
    parts = (
        _head(problem, details),
        _use(problem, details),
        _parameters(details),
        _training(details, rounded),
        _repeat(details),
        _errors(problem, details),
        _limits(problem, details),
    )
    return "\n\n".join(parts) + "\n"


def _head(problem: Problem, details: dict[str, Any]) -> str:
    grid = " x ".join(str(n) for n in details["grid"])
    times = details["times"]
    return (
        f"# {problem.title}: learned surrogate\n\n"
        f"    {problem.equation}\n\n"
        f"Given {_observed(details)} of {_listed(details['fields'])} on {grid} points and the parameters below, it "
        f"forecasts further frames {times[1] - times[0]:.6g} apart.\n\n"
        f"Made with pdejepa {details['pdejepa']}; model format {details['format_version']}; "
        f"weights {human_bytes(details['weights_bytes'])} ({details['weights_dtype']}, "
        f"sha256 {details['weights_sha256'][:16]}...)."
    )


def _use(problem: Problem, details: dict[str, Any]) -> str:
    needed = [p for p in problem.parameters if p.default is None]
    values = "".join(f", {p.name}={_typical(p, details['parameters'][p.name]['train']):.3g}" for p in needed)
    shape = ", ".join(str(n) for n in (len(details["fields"]), *details["grid"]))
    shape = f"2, {shape}" if details["history"] == 2 else shape
    return (
        "## Use\n\n```python\n"
        "import pdejepa\n\n"
        'model = pdejepa.load("DIR")                 # the folder of this file\n'
        f"result = model.forecast(u0{values})   # u0 ({shape}), physical units\n"
        "result.new, result.times, result.support.sentences, result.outcome\n"
        "```"
    )


def _parameters(details: dict[str, Any]) -> str:
    if not details["parameters"]:
        return "## Parameters\n\nNone."
    rows = [
        (Code(name), told["symbol"], told["unit"], told["meaning"], "[{:.6g}, {:.6g}]".format(*told["train"]))
        for name, told in details["parameters"].items()
    ]
    return f"## Parameters\n\n{Table(('name', 'symbol', 'unit', 'meaning', 'training range'), rows).markdown()}"


def _training(details: dict[str, Any], rounded: Sequence[str]) -> str:
    total_last = sorted(details["seconds"].items(), key=lambda part: part[0] == "total")
    seconds = {name: value for name, value in total_last if value}
    polish = "with" if details["polish"] else "without"
    text = (
        f"## Training\n\nRecipe `{details['recipe']}`, {polish} joint polishing at the end, seed {details['seed']}. "
        f"Variant `{details['variant']}`: {VARIANTS[details['variant']]}. {_data(details)}"
        f"{_hash(details['data_hash'])}. Device: {details['device'] or 'not recorded'}; PyTorch {details['torch']}"
        f"{_commit(details['commit'])}."
    )
    if details["statistics"].get("unit_ranges"):
        text += (
            " Fields are rescaled to rms 1 and back, and the parameters with them, which this equation allows: how "
            "large a state is makes no difference by itself."
        )
    if details["training"].get("tuned_from"):
        text += (
            f" Fine-tuned from the model `{details['training']['tuned_from']}`, whose encoder, projector and "
            "normalisation it has; the other parts went on from its weights."
        )
    if rounded:
        told = " and ".join(rounded)
        text += f" Weights of {told} are stored rounded to bfloat16, as the products of training saw them."
    if seconds:
        table = Table(tuple(seconds), [tuple(f"{value:.1f}" for value in seconds.values())])
        text += f"\n\nSeconds of each part:\n\n{table.markdown()}"
    return text


def _data(details: dict[str, Any]) -> str:
    """What it was trained on: a data set, or data of a size that its system makes."""
    name = str(details["training"].get("data") or "")
    is_given = name and not is_known(details["system"])
    return f"Data set `{name}`" if is_given else f"Data size `{details['size']}`"


def _repeat(details: dict[str, Any]) -> str:
    if not is_known(details["system"]) and details["training"].get("data"):
        command = f"pdejepa train DIR --recipe {details['recipe']} --seed {details['seed']} --out RUN"
        source = details["training"].get("tuned_from")
        command += f" --from {shlex.quote(source)}" if source else ""
        return (
            f"## How to repeat it\n\n```bash\n{command}\n```\n\nDIR is the data set "
            f"`{details['training']['data']}`, whose `manifest.json` has the SHA-256 `{details['data_hash']}`. "
            "Settings that differ from the recipe's are in `config.json`."
        )
    if not is_known(details["system"]):
        return (
            "## How to repeat it\n\nThe equation of these data has no class where this card was written, so there is "
            "no command; the settings of the training are in `config.json`."
        )
    words, is_whole = train_words(details)
    lines = [words[0]]
    for word in words[1:]:
        fits = len(lines[-1]) + len(word) < LINE
        lines[-1:] = [f"{lines[-1]} {word}"] if fits else [lines[-1], f"  {word}"]
    command = " \\\n".join(lines)
    text = f"## How to repeat it\n\n```bash\n{command}\n```"
    measured = {_measured(details["training"], name) for name, n in details["steps"].items() if n} - {""}
    if measured:
        text += f"\n\nStages that were given {' or '.join(sorted(measured))} are given the steps which that became."
    if not is_whole:
        text += (
            "\n\nThe settings of the stages were not recorded: the command has the recipe's, of the pdejepa that wrote "
            "this card."
        )
    return text


def train_words(details: dict[str, Any]) -> tuple[list[str], bool]:
    """The words of the command that trains this model again, quoted for a shell, and whether nothing is missing.

    Every setting that differs from the recipe's is a word key=value; budgets that were measured become the steps they
    led to, which is what decides the result.
    """
    recipe = details["recipe"] if details["recipe"] in recipes.RECIPES else "fast"
    usual = to_dict(recipes.get(details["system"], recipe))
    told, is_whole = _settings(details, usual)
    stages = [name for name in STAGES if name in details["lineage"]] or told["stages"]
    words = ["pdejepa", "train", details["system"], "--recipe", recipe, "--seed", str(details["seed"])]
    words += ["--stages", ",".join(stages), "--out", "RUN"]
    if told["variant"] != usual["variant"]:
        words += ["--variant", told["variant"]]
    if told["data"]:
        words += ["--data", "DIR"]
    if told["tuned_from"]:
        words += ["--from", told["tuned_from"]]
    unused = (*OPTIONS, *FREE, *(name for name in STAGES if name not in stages))
    usual, told = ({k: v for k, v in settings.items() if k not in unused} for settings in (usual, told))
    return [shlex.quote(word) for word in (*words, *_changes(usual, told))], is_whole


def kept_training(training: dict[str, Any], lineage: Collection[str]) -> dict[str, Any]:
    """What a checkpoint keeps of a configuration: no path of this machine, no stages that it has not been through."""
    kept = {key: value for key, value in training.items() if key not in STAGES or key in lineage}
    names = {key: Path(str(training.get(key, ""))).name for key in ("data", "tuned_from")}
    return {**kept, **names}


def _settings(details: dict[str, Any], usual: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The configuration as plain data, and whether it was recorded; if not, the recipe's with what is known."""
    try:
        done = details["lineage"] or STAGES  # of stages that were not run nothing is kept: take the recipe's
        training = {name: usual[name] for name in STAGES if name not in done} | details["training"]
        told = to_dict(load_stored(training)) if details["training"] else {}
    except ConfigError:  # of another version, or of somebody's own making
        told = {}
    if told.get("system") != details["system"]:
        return {**usual, **{key: details[key] for key in KNOWN}}, False
    for name, n_steps in details["steps"].items():
        if _measured(told, name):
            told[name]["training"]["budget"] = to_dict(Budget(steps=n_steps))
    return told, True


def _measured(training: dict[str, Any], stage: str) -> str:
    """The unit of a budget that became steps on the machine that trained the stage; empty if it is none of those."""
    try:
        budget = training[stage]["training"]["budget"]
        return next((unit for unit in MEASURED if float(budget.get(unit, 0.0)) > 0), "")
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""


def _changes(before: Any, now: Any, path: str = "") -> list[str]:
    """What differs between two nested settings, as words `path=value`."""
    if isinstance(before, dict) and isinstance(now, dict) and (not path or set(before) == set(now)):
        keys = [key for key in now if before.get(key) != now[key]]
        return [word for key in keys for word in _changes(before.get(key), now[key], f"{path}.{key}".lstrip("."))]
    is_plain = isinstance(now, str) and re.fullmatch(r"[\w./-]+", now) and yaml_subset.parse(now) == now
    return [f"{path}={now if is_plain else json.dumps(now)}"]


def _errors(problem: Problem, details: dict[str, Any]) -> str:
    if not details["errors"]:
        return "## Errors\n\nNot measured yet. Measure them with: `pdejepa evaluate DIR`"
    heads = {"rel_l2": "relative L2", "median": "median", "last_frame": "last frame"}
    if len(problem.fields) > 1:
        heads["rel_l2_joint"] = "one norm over all channels"
    heads["repeat_first"] = "repeating the first frame"
    head, keys = ("split", "kind", "trajectories", *heads.values()), tuple(heads)
    rows = [
        (Code(name), _kind(name), _count(found), *(percent(found.get(key)) for key in keys))
        for name, found in details["errors"].items()
    ]
    note = (
        "Relative L2 over all forecast frames and points in physical units, mean over channels, then over "
        "trajectories. An unstable forecast counts as an error of 100 %."
    )
    return f"## Errors\n\n{Table(head, rows).markdown()}\n\n{note}"


def _limits(problem: Problem, details: dict[str, Any]) -> str:
    n_new = len(details["times"]) - details["history"]
    lines = [
        f"- Trained on {n_new} new frames; any number can be asked for, but errors grow with time.",
        f"- It knows initial states like those of {problem.name}'s training data; of others `result.support` says "
        "whether the model sees them as they are.",
        "- Outside the training ranges it extrapolates; `result.support` says so, sentence by sentence.",
        "- A forecast that leaves every plausible bound is marked `unstable`, and is NaN from there on.",
        f"- One grid ({' x '.join(str(n) for n in details['grid'])}) and one frame distance only.",
    ]
    if problem.structure.forcing != "none":
        lines.append("- Any forcing may be given (`forcing=`); only the kind in the training data was learned.")
    return "## Limits\n\n" + "\n".join(lines)


def _kind(split: str) -> str:
    return "in distribution" if split in INSIDE else "out of distribution"


def _count(found: dict[str, Any]) -> str:
    n, unstable = found.get("n", 0), found.get("n_unstable", 0)
    return f"{n:,} ({unstable} unstable)" if unstable else f"{n:,}"


def _observed(details: dict[str, Any]) -> str:
    return "one frame" if details["history"] == 1 else f"{details['history']} frames"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _typical(parameter: Parameter, ends: Sequence[float]) -> float:
    """A value from the middle of the training range, one of the allowed ones."""
    low, high = ends
    if parameter.choices:
        return min(parameter.choices, key=lambda choice: abs(choice - (low + high) / 2))
    return (low * high) ** 0.5 if low > 0 else (low + high) / 2


def _commit(name: str) -> str:
    changed = " with changes" if name.endswith("-changed") else ""
    return f"; commit {name.removesuffix('-changed')[:12]}{changed}" if name else ""


def _hash(digest: str) -> str:
    return f" (hash {digest[:16]}...)" if digest else ""
