"""The sections of the page, one function each: from the content of a run to HTML."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from pdejepa.app.report import curves
from pdejepa.app.report.content import RunContent, StageContent, dig, number
from pdejepa.app.report.curves import Chart
from pdejepa.app.report.examples import Example
from pdejepa.app.report.markup import Html, figure, image, join, note, paragraph, section, table, tag, tiles
from pdejepa.core.errors import PdejepaError
from pdejepa.core.run_folder import METHOD_STAGES
from pdejepa.core.tables import Table
from pdejepa.core.text import duration, percent
from pdejepa.method.health import Verdict, judge, too_early

MAX_PARAMETERS = 12  # that are listed
# What each stage learns, and what its score is.
STAGE_WORDS = {
    "pretrain": ("encoder: fields to latents", "error of guessed latents"),
    "align": ("correction of the latents", "total loss"),
    "dynamics": ("differential equation of the latents", "latent rollout error"),
    "decode": ("decoder: latents to fields", "error of forecasts"),
    "polish": ("equation and decoder together", "error of forecasts"),
    "reconstruct": ("decoder of true latents, a measurement", "error without forecast"),
}
IN_PERCENT = ("dynamics", "decode", "polish", "reconstruct")  # the scores that are relative errors


def value(x: Any, digits: int = 4) -> str:
    """A number for a table, `-` if it is none."""
    found = number(x)
    return "-" if found is None else f"{found:.{digits}g}"


def charts(found: Sequence[Chart]) -> Html:
    """Charts side by side, or below each other where the screen is narrow."""
    pictures = [figure(image(curves.svg(chart.figure), "svg+xml", chart.alt), chart.caption) for chart in found]
    return tag("div", *pictures, class_="grid")


# ---- 1: what this is ---------------------------------------------------------------------------------------------
def title(content: RunContent) -> str:
    name = content.problem.title if content.problem else str(content.train.get("system") or "Unknown system")
    return f"{name}: report of a training run"


def head(content: RunContent) -> Html:
    parts: list[object] = [tag("h1", title(content))]
    if content.problem is not None:
        parts.append(tag("pre", content.problem.equation, class_="equation"))
    unfinished = _unfinished(content)
    if unfinished:
        parts.append(note(f"Not finished: {'; '.join(unfinished)}.", "warn"))
    if content.problems:
        parts.append(note(join(tag("div", problem) for problem in content.problems[:20]), "warn"))
    parts += [tiles(_tiles(content)), _settings(content)]
    if content.problem is not None and content.problem.parameters:
        parts.append(_parameters(content))
    return join(parts)


def _unfinished(content: RunContent) -> list[str]:
    """`align stopped at step 100 of 500`, `decode was not begun`."""
    parts = []
    for stage in (content.stages[name] for name in content.asked):
        if not stage.is_begun:
            parts.append(f"{stage.name} was not begun")
        elif not stage.is_done:
            parts.append(f"{stage.name} stopped at step {_steps(stage)}")
    return parts


def _steps(stage: StageContent) -> str:
    """`100 of 500`, or the steps of a finished stage alone."""
    of_all = f" of {stage.n_planned:,}" if stage.n_planned and not stage.is_done else ""
    return f"{stage.n_done or 0:,}{of_all}"


def _tiles(content: RunContent) -> list[tuple[str, str]]:
    found = []
    if content.valid_error is not None:
        found.append((percent(content.valid_error), "error of forecasts on valid"))
    for split, told in list(content.errors.items())[:3]:
        if number(told.get("rel_l2")) is not None:
            found.append((percent(number(told["rel_l2"])), f"error of forecasts on {split[:40]}"))
    seconds = [stage.seconds for stage in content.stages.values() if stage.seconds is not None]
    if seconds:
        found.append((duration(sum(seconds)), "of training"))
    verdict = _verdict(content)
    if verdict is not None:
        found.append((verdict.word, "encoder"))
    n_done = sum(content.stages[name].is_done for name in content.asked)
    found.append((f"{n_done} of {len(content.asked)}", "stages finished"))
    return found


def _settings(content: RunContent) -> Html:
    """What was trained, on which data."""
    train, problem = content.train, content.problem
    if not train:
        return note("The settings are lost.", "warn")
    facts = {
        "recipe": train.get("recipe"),
        "variant": train.get("variant"),
        "observed frames": train.get("history"),
        "fields": ", ".join(problem.fields) if problem else None,
        "grid": " x ".join(str(n) for n in problem.grid) if problem else None,
        "data": train.get("data") or "made in memory by the solver",
        **{f"trajectories of {split}": _count(content, split) for split in ("train", "valid")},
        "device": content.model.get("device"),
    }
    return table(Table(("setting", "value"), [(name, str(told)[:200]) for name, told in facts.items() if told]))


def _count(content: RunContent, split: str) -> int | None:
    """Trajectories of a split; None if the configuration does not tell."""
    given = dig(content.train, "counts", split)
    if isinstance(given, int):
        return given
    if content.system is None or content.train.get("data"):
        return None
    try:
        return content.system.split(split).size(content.train.get("size", "paper"))
    except (PdejepaError, KeyError, TypeError):
        return None


def _parameters(content: RunContent) -> Html:
    assert content.problem is not None
    rows = []
    for parameter in content.problem.parameters[:MAX_PARAMETERS]:
        ends = dig(content.data, "statistics", "ranges", parameter.name)
        low, high = ends if isinstance(ends, list) and len(ends) == 2 else parameter.train
        rows.append((parameter.name, parameter.symbol, parameter.meaning, f"{value(low)} to {value(high)}"))
    more = len(content.problem.parameters) - len(rows)
    notes = (f"{more} more are not listed.",) if more else ()
    return table(Table(("parameter", "symbol", "meaning", "range in train"), rows, notes))


# ---- 2 and 3: stages ---------------------------------------------------------------------------------------------
def stages(content: RunContent) -> Html:
    names = [*METHOD_STAGES, *(name for name in content.asked if name not in METHOD_STAGES)]
    columns = (
        "stage",
        "learns",
        "steps",
        "time",
        "operations",
        "GFLOP/s",
        "share",
        "kept step",
        "final loss",
        "score on valid",
        "what the score is",
    )
    notes = (
        "Lower scores are better. The next stage builds on the weights of the kept step. Operations are those of "
        "matrix products, convolutions and attention; the share is of all stages. Only polishing trains the forecast "
        "of fields that is judged.",
    )
    return section("stages", "The stages", table(Table(columns, [_stage_row(content, name) for name in names], notes)))


def _stage_row(content: RunContent, name: str) -> tuple[str, ...]:
    stage, (learns, score) = content.stages[name], STAGE_WORDS[name]
    if not stage.is_begun:
        told = "not part of this run" if name not in content.asked else "not begun"
        return name, learns, told, "-", "-", "-", "-", "-", "-", "-", score
    steps = _steps(stage) + ("" if stage.is_done else ", unfinished")
    kept = "-" if stage.selected is None else f"{stage.selected:,}"
    is_share = name in IN_PERCENT and stage.score is not None
    told = percent(stage.score) if is_share else value(stage.score)
    work = _work(stage, sum(other.flops or 0.0 for other in content.stages.values()))
    return name, learns, steps, duration(stage.seconds), *work, kept, value(stage.loss), told, score


def _work(stage: StageContent, total: float) -> tuple[str, str, str]:
    """Operations of a stage, their rate, and their share of those of all stages."""
    if not stage.flops:
        return "-", "-", "-"
    rate = f"{stage.flops / stage.seconds / 1e9:,.0f}" if stage.seconds else "-"
    return f"{stage.flops:.2g}", rate, percent(stage.flops / total)


def training(content: RunContent) -> Html:
    parts: list[object] = []
    for name in content.asked:
        chart = curves.loss_chart(content.stages[name], f"{STAGE_WORDS[name][1]}, valid")
        shown = charts([chart]) if chart else note(_nothing(content, name))
        parts.append(tag("div", tag("h3", name), shown))
    legend = "Line: loss on train. Dots: scores on valid. Ring: the kept step."
    return section("training", "Curves", paragraph(legend, class_="soft"), tag("div", *parts, class_="grid"))


def _nothing(content: RunContent, name: str) -> str:
    """Why a stage has nothing to show."""
    if name == "align" and content.train.get("variant") == "vanilla":
        return "The variant vanilla has no alignment."
    if not content.stages[name].is_begun:
        return f"The stage {name} was not begun."
    return f"The stage {name} left no measurements."


# ---- 4: encoder --------------------------------------------------------------------------------------------------
def _width(content: RunContent) -> int | None:
    width = dig(content.train, "model", "encoder", "width")
    return width if isinstance(width, int) and 0 < width < 1_000_000 else None


def _verdict(content: RunContent) -> Verdict | None:
    """The verdict on the encoder that the other stages use; None if it was not measured."""
    health = {key: found for key, x in content.stages["pretrain"].judged.items() if (found := number(x)) is not None}
    width = _width(content)
    try:
        return judge(health, width) if width else None
    except KeyError:
        return None


def _is_early(content: RunContent) -> bool:
    """Whether the last measurement is of a training that is too young for a verdict."""
    stage, warmup = content.stages["pretrain"], number(dig(content.train, "pretrain", "training", "schedule", "warmup"))
    step = number(stage.judged.get("step"))
    if stage.is_done or step is None or not stage.n_planned:
        return False
    return too_early(step / stage.n_planned, warmup or 0.0)


def encoder(content: RunContent) -> Html:
    found = curves.health_charts(content.stages["pretrain"].valid, _width(content))
    if not found:
        return section("encoder", "Health of the encoder", note(_nothing(content, "pretrain")))
    verdict = _verdict(content)
    kind = "good" if verdict is not None and verdict.word == "healthy" else "warn"
    told = note(f"Verdict: {verdict}" if verdict else "There is no verdict: measurements are missing.", kind)
    if _is_early(content):
        told = note("There is no verdict yet: features of the first half of a training are not judged.")
    return section("encoder", "Health of the encoder", told, charts(found))


# ---- 5 and 6: geometry, dynamics ---------------------------------------------------------------------------------
def geometry(content: RunContent) -> Html:
    stage = content.stages["align"]
    found = curves.angle_charts(stage.valid)
    if not found:
        return section("geometry", "Geometry of trajectories", note(_nothing(content, "align")))
    angle = lambda key: f"{value(stage.judged.get(key), 3)}°"  # noqa: E731
    rows = [
        ("physical u", angle("angle_u"), "-"),
        ("z, before alignment", angle("angle_z"), angle("angle_error_z")),
        ("q, after alignment", angle("angle_q"), angle("angle_error_q")),
    ]
    notes = ("0° runs straight on, 180° turns back.",)
    told = table(Table(("path", "turning angle", "mean difference to u"), rows, notes))
    return section("geometry", "Geometry of trajectories", told, charts(found))


def dynamics(content: RunContent) -> Html:
    stage = content.stages["dynamics"]
    chart = curves.error_chart(stage.valid)
    if chart is None:
        return section("dynamics", "Forecasts in the latent space", note(_nothing(content, "dynamics")))
    step, rollout = (percent(number(stage.judged.get(key))) for key in ("step_error", "rollout_error"))
    rows = [("one step from true latents", step), ("whole forecast from the first frame", rollout)]
    told = table(Table(("on valid", "relative error"), rows))
    return section("dynamics", "Forecasts in the latent space", told, charts([chart]))


# ---- errors and 7: examples --------------------------------------------------------------------------------------
def errors(content: RunContent) -> Html:
    if not content.errors:
        command = f"pdejepa evaluate {shlex.quote(str(content.root))}"
        return section("errors", "Errors on other splits", paragraph("Not measured yet:"), tag("pre", command))
    keys = ("rel_l2", "median", "last_frame", "repeat_first")
    rows = []
    for split, told in content.errors.items():
        numbers = [percent(number(told.get(key))) for key in keys]
        rows.append((_marked(content, split), value(told.get("n")), *numbers, value(told.get("n_unstable"))))
    columns = ("split", "trajectories", "relative L2", "median", "last frame", "repeating the first frame", "unstable")
    notes = ("Mean over trajectories, all forecast frames, physical units.", "*: outside the training ranges.")
    chart = curves.frame_chart(content.errors)
    shown = charts([chart]) if chart else ""
    return section("errors", "Errors on other splits", table(Table(columns, rows, notes)), shown)


def _marked(content: RunContent, split: str) -> str:
    if content.system is None:
        return f"{split[:60]}{'*' if split.startswith('ood') else ''}"
    is_outside = any(one.name == split and one.is_ood for one in content.system.all_splits)
    return f"{split[:60]}{'*' if is_outside else ''}"


def examples(found: Sequence[Example], reason: str) -> Html:
    parts: list[object] = []
    for example in found:
        picture = image(example.picture, "png", f"Truth, forecast and error: {example.title}")
        parts += [tag("h3", example.title), paragraph(*example.sentences), figure(picture, is_wide=True)]
    if reason:
        parts.append(note(reason))
    return section("examples", "Example forecasts", *parts)
