"""What a run is and did, in sentences for somebody who has never seen one."""

from __future__ import annotations

from typing import Any

from pdejepa.app.report.content import RunContent, StageContent, dig, number
from pdejepa.core.errors import PdejepaError
from pdejepa.core.text import percent
from pdejepa.method.model_card import VARIANTS

STAGE_WORDS = {
    "pretrain": "An encoder learns to describe fields by short lists of numbers, the latents: it sees part of a "
    "trajectory and must guess the latents of the hidden part. Nobody tells it the parameters.",
    "align": "A small correction bends the latents until their path through time turns as the physical one does, "
    "which makes them easier to forecast.",
    "dynamics": "A differential equation for the latents is learned: given the latents now and the parameters, "
    "it says how they change.",
    "decode": "A decoder learns to turn forecast latents back into fields, errors of the forecast included.",
    "polish": "Optional: the latent equation and the decoder are trained together on whole forecasts.",
    "reconstruct": "A measurement beside the model: how much of the field the latents hold before any forecast.",
}
LOOK_FOR = {
    "pretrain": "The loss may level off, or even rise, while features get better: its target moves. Trust the "
    "section on the encoder more than this curve.",
    "align": "Loss and score should fall together; a score that rises again is overfitting, and an earlier step is "
    "kept.",
    "dynamics": "The loss should fall by one or more powers of ten; the score, the error of whole forecasts, follows "
    "more slowly.",
    "decode": "Loss and score measure the same error, on train and on valid; a widening gap is overfitting.",
    "polish": "The loss rises whenever forecasts get longer; the score must fall.",
    "reconstruct": "The level where it ends bounds what any forecast with these latents can reach.",
}
SCORE_WORDS = {
    "pretrain": "error of guessed latents",
    "align": "total loss",
    "dynamics": "latent rollout error",
    "decode": "error of forecasts",
    "polish": "error of forecasts",
    "reconstruct": "error without forecast",
}
IN_PERCENT = ("dynamics", "decode", "polish", "reconstruct")


def duration(seconds: float | None) -> str:
    """`2.7 s`, `5 min 0 s`, `1 h 12 min`; `-` if it is not known."""
    if seconds is None:
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def value(x: Any, digits: int = 4) -> str:
    """A number for a table, `-` if it is none."""
    found = number(x)
    return "-" if found is None else f"{found:.{digits}g}"


def score_text(stage: StageContent) -> str:
    if stage.score is None:
        return "-"
    return percent(stage.score) if stage.name in IN_PERCENT else value(stage.score)


def title(content: RunContent) -> str:
    name = content.system.title if content.system else str(content.train.get("system") or "Unknown system")
    return f"{name}: report of a training run"


def summary(content: RunContent) -> list[str]:
    """The whole run in a few sentences."""
    return [*_what(content), *_data(content), _times(content), *_valid(content), *error_sentences(content)]


def _what(content: RunContent) -> list[str]:
    system, train = content.system, content.train
    if not train:
        return ["A surrogate was trained here, but the settings are lost."]
    name = system.title if system else train.get("system", "an unknown system")
    kind = VARIANTS.get(str(train.get("variant")), "")
    variant = f", variant {train.get('variant')} ({kind})" if kind else ""
    text = f"A surrogate, a fast learned stand-in for the solver, of {name} was trained with the recipe "
    text += f"{train.get('recipe', 'custom')}{variant}."
    if system is None:
        return [text]
    n_first = 2 if train.get("history") == 2 else 1
    first = "the first frame" if n_first == 1 else "the first two frames"
    grid = " x ".join(str(n) for n in system.grid)
    return [
        text,
        f"Given {first} of {' and '.join(system.fields)} on {grid} points and "
        f"{_parameters(system.parameter_names)}, it forecasts the next {len(system.times) - n_first} frames.",
    ]


def _parameters(names: tuple[str, ...]) -> str:
    if len(names) <= 4:
        return f"the parameter{'s' * (len(names) != 1)} {', '.join(names)}"
    return f"{len(names)} parameters ({', '.join(names[:2])}, ...)"


def _data(content: RunContent) -> list[str]:
    train = content.train
    if not train:
        return []
    where = f"read from {str(train['data'])[:200]}" if train.get("data") else "made in memory by the solver"
    counts = {split: _count(content, split) for split in ("train", "valid")}
    if counts["train"] is None or counts["valid"] is None:
        return [f"Its data were {where}."]
    return [
        f"It learned from {counts['train']:,} trajectories {where}; {counts['valid']:,} others, the split valid, "
        "judged it meanwhile."
    ]


def _count(content: RunContent, split: str) -> int | None:
    given = dig(content.train, "counts", split)
    if isinstance(given, int):
        return given
    if content.system is None or content.train.get("data"):
        return None
    try:
        return content.system.split(split).size(content.train.get("size", "paper"))
    except (PdejepaError, KeyError, TypeError):
        return None


def _times(content: RunContent) -> str:
    spent = {name: content.stages[name].seconds for name in content.asked}
    known = {name: seconds for name, seconds in spent.items() if seconds is not None}
    if not known:
        return "How long it took is not recorded."
    device = content.model.get("device")
    where = f" on {str(device)[:80]}" if device else ""
    parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in known.items())
    return f"The stages took {duration(sum(known.values()))} in all{where}: {parts}."


def _valid(content: RunContent) -> list[str]:
    if content.valid_error is None:
        return ["There is no error of forecasts on valid yet."]
    return [
        f"On valid, its forecasts are off by {percent(content.valid_error)} (relative L2 error: 100% would be an error "
        "as large as the field)."
    ]


def error_sentences(content: RunContent) -> list[str]:
    """One sentence for each split that was evaluated."""
    found = []
    for split, told in content.errors.items():
        error, still = number(told.get("rel_l2")), number(told.get("repeat_first"))
        if error is None:
            continue
        instead = f"; repeating the first frame would give {percent(still)}" if still is not None else ""
        found.append(f"On {split[:60]}{_outside(content, split)} the error is {percent(error)}{instead}.")
    return found


def _outside(content: RunContent, split: str) -> str:
    splits = content.system.splits if content.system else ()
    return ", outside the training ranges," if any(s.name == split and s.is_ood for s in splits) else ""


def state(content: RunContent) -> str:
    """What is unfinished, in one or two sentences; empty if nothing is."""
    parts = []
    for name in content.asked:
        stage = content.stages[name]
        if stage.is_begun and not stage.is_done:
            parts.append(f"{name} stopped at step {_steps(stage)}")
        elif not stage.is_begun:
            parts.append(f"{name} was not begun")
    if not parts:
        return ""
    return f"This run is not finished: {'; '.join(parts)}. The command that started it continues it where it stopped."


def _steps(stage: StageContent) -> str:
    return f"{stage.n_done or 0:,}" + (f" of {stage.n_planned:,}" if stage.n_planned else "")


def stage_state(content: RunContent, name: str) -> str:
    """Why a stage has nothing to show."""
    stage = content.stages[name]
    if name == "align" and content.train.get("variant") == "vanilla":
        return "The variant vanilla has no alignment."
    if not stage.is_begun:
        return f"The stage {name} was not begun."
    return f"The stage {name} left no measurements{'' if stage.is_done else ' yet'}."
