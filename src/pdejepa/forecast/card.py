"""The model card, `README.md` of a model: what it forecasts, how it was made, how good it is, where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pdejepa.core.files import human_bytes
from pdejepa.systems import System

VARIANTS = {
    "physics": "latent ODE with one learned operator per physical term",
    "geo": "latent ODE, the parameters as a free token",
    "vanilla": "latent ODE on the unprojected latents, the parameters as a free token",
    "direct": "one network call per frame instead of an ODE",
}


def card_text(system: System, details: dict[str, Any]) -> str:
    """The card of the model that `details`, the content of config.json, describes."""
    parts = (
        _head(system, details),
        _use(system, details),
        _parameters(details),
        _training(details),
        _errors(system, details),
        _limits(system, details),
    )
    return "\n\n".join(parts) + "\n"


def _head(system: System, details: dict[str, Any]) -> str:
    grid = " x ".join(str(n) for n in details["grid"])
    times = details["times"]
    return (
        f"# {system.title}: learned surrogate\n\n"
        f"    {system.equation}\n\n"
        f"Given {_observed(details)} of {_listed(details['fields'])} on {grid} points and the parameters below, it "
        f"forecasts further frames {times[1] - times[0]:.6g} apart.\n\n"
        f"Made with pdejepa {details['pdejepa']}; model format {details['format_version']}; "
        f"weights {human_bytes(details['weights_bytes'])} ({details['weights_dtype']}, "
        f"sha256 {details['weights_sha256'][:16]}...)."
    )


def _use(system: System, details: dict[str, Any]) -> str:
    needed = [p for p in system.parameters if p.default is None]
    values = ", ".join(f"{p.name}={_middle(details['parameters'][p.name]['train']):.3g}" for p in needed)
    shape = ", ".join(str(n) for n in (len(details["fields"]), *details["grid"]))
    shape = f"2, {shape}" if details["history"] == 2 else shape
    return (
        "## Use\n\n```python\n"
        "import pdejepa\n\n"
        'model = pdejepa.load("DIR")                 # the folder of this file\n'
        f"result = model.forecast(u0, {values})   # u0 ({shape}), physical units\n"
        "result.new, result.times, result.support.sentences, result.outcome\n"
        "```"
    )


def _parameters(details: dict[str, Any]) -> str:
    rows = [
        (f"`{name}`", told["symbol"], told["unit"], told["meaning"], "[{:.6g}, {:.6g}]".format(*told["train"]))
        for name, told in details["parameters"].items()
    ]
    return f"## Parameters\n\n{_table(('name', 'symbol', 'unit', 'meaning', 'training range'), rows)}"


def _training(details: dict[str, Any]) -> str:
    seconds = {name: value for name, value in details["seconds"].items() if value}
    polish = "with" if details["polish"] else "without"
    text = (
        f"## Training\n\nRecipe `{details['recipe']}`, {polish} joint polishing at the end, seed {details['seed']}. "
        f"Variant `{details['variant']}`: {VARIANTS[details['variant']]}. Data size `{details['size']}`"
        f"{_hash(details['data_hash'])}. Device: {details['device'] or 'not recorded'}; PyTorch {details['torch']}"
        f"{'; commit ' + details['commit'][:12] if details['commit'] else ''}."
    )
    if seconds:
        table = _table(tuple(seconds), [tuple(f"{value:.1f}" for value in seconds.values())])
        text += f"\n\nSeconds of each part:\n\n{table}"
    return text


def _errors(system: System, details: dict[str, Any]) -> str:
    if not details["errors"]:
        return "## Errors\n\nNot measured yet. Measure them with: `pdejepa evaluate DIR`"
    kinds = {split.name: "out of distribution" if split.is_ood else "in distribution" for split in system.splits}
    head = ("split", "kind", "trajectories", "relative L2", "median", "last frame", "repeating the first frame")
    keys = ("rel_l2", "median", "last_frame", "repeat_first")
    rows = [
        (f"`{name}`", kinds.get(name, "-"), _count(found), *(percent(found.get(key)) for key in keys))
        for name, found in details["errors"].items()
    ]
    note = (
        "Relative L2 over all forecast frames and points in physical units, mean over channels, then over "
        "trajectories. An unstable forecast counts as an error of 100 %."
    )
    return f"## Errors\n\n{_table(head, rows)}\n\n{note}"


def _limits(system: System, details: dict[str, Any]) -> str:
    n_new = len(details["times"]) - details["history"]
    lines = [
        f"- Trained on {n_new} new frames; any number can be asked for, but errors grow with time.",
        "- Outside the training ranges it extrapolates; `result.support` says so, sentence by sentence.",
        "- A forecast that leaves every plausible bound is marked `unstable`, and is NaN from there on.",
        f"- One grid ({' x '.join(str(n) for n in details['grid'])}) and one frame distance only.",
    ]
    if system.structure.forcing != "none":
        lines.append("- Any forcing may be given (`forcing=`); only the kind in the training data was learned.")
    return "## Limits\n\n" + "\n".join(lines)


def percent(value: float | None) -> str:
    """An error for people: `3.42%`; `-` if it is not known."""
    if value is None:
        return "-"
    return f"{100 * value:.3g}%" if value < 9.99 else f"{100 * value:,.0f}%"


def _count(found: dict[str, Any]) -> str:
    n, unstable = found.get("n", 0), found.get("n_unstable", 0)
    return f"{n:,} ({unstable} unstable)" if unstable else f"{n:,}"


def _observed(details: dict[str, Any]) -> str:
    return "one frame" if details["history"] == 1 else f"{details['history']} frames"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _middle(ends: Sequence[float]) -> float:
    low, high = ends
    return (low * high) ** 0.5 if low > 0 else (low + high) / 2


def _hash(digest: str) -> str:
    return f" (hash {digest[:16]}...)" if digest else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
