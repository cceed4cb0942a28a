"""The sections of the page, one function each: from the content of a run to HTML."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from pdejepa.app.report import curves, sentences
from pdejepa.app.report.content import Plain, RunContent, dig, number
from pdejepa.app.report.curves import Chart
from pdejepa.app.report.examples import Example
from pdejepa.app.report.markup import Html, details, figure, image, join, note, paragraph, section, table, tag, tiles
from pdejepa.core import yaml_subset
from pdejepa.core.run_folder import FOUR
from pdejepa.core.text import percent
from pdejepa.method.health import Verdict, judge, too_early
from pdejepa.training.settings import MEASURED

MAX_CONFIG = 60_000  # letters of the configuration that are shown


def charts(found: Sequence[Chart]) -> Html:
    """Charts side by side, or below each other where the screen is narrow."""
    pictures = [figure(image(curves.svg(chart.figure), "svg+xml", chart.alt), chart.caption) for chart in found]
    return tag("div", *pictures, class_="grid")


# ---- 1: what this is ---------------------------------------------------------------------------------------------
def head(content: RunContent) -> Html:
    parts: list[object] = [tag("h1", sentences.title(content))]
    system = content.system
    if system is not None:
        parts += [tag("pre", system.equation, class_="equation"), paragraph("In words:", f"{system.expect}.")]
    unfinished = sentences.state(content)
    if unfinished:
        parts.append(note(unfinished, "warn"))
    if content.problems:
        parts.append(note(join(tag("div", problem) for problem in content.problems[:20]), "warn"))
    parts.append(tiles(_tiles(content)))
    parts.append(paragraph(*sentences.summary(content), class_="lead"))
    if system is not None:
        parts.append(_parameters(content))
    return join(parts)


def _tiles(content: RunContent) -> list[tuple[str, str]]:
    found = []
    if content.valid_error is not None:
        found.append((percent(content.valid_error), "error of forecasts on valid"))
    for split, told in list(content.errors.items())[:3]:
        if number(told.get("rel_l2")) is not None:
            found.append((percent(number(told["rel_l2"])), f"error of forecasts on {split[:40]}"))
    seconds = [stage.seconds for stage in content.stages.values() if stage.seconds is not None]
    if seconds:
        found.append((sentences.duration(sum(seconds)), "of training"))
    verdict = _verdict(content)
    if verdict is not None:
        found.append((verdict.word, "encoder"))
    n_done = sum(content.stages[name].is_done for name in content.asked)
    found.append((f"{n_done} of {len(content.asked)}", "stages finished"))
    return found


def _parameters(content: RunContent) -> Html:
    assert content.system is not None
    rows = []
    for parameter in content.system.parameters[:12]:
        ends = dig(content.data, "statistics", "ranges", parameter.name)
        low, high = ends if isinstance(ends, list) and len(ends) == 2 else parameter.train
        ends_told = f"{sentences.value(low)} to {sentences.value(high)}"
        rows.append((parameter.name, parameter.symbol, parameter.meaning, ends_told))
    more = len(content.system.parameters) - len(rows)
    caption = f"Parameters the model was trained for{f'; {more} more are not listed' if more else ''}."
    return table(("parameter", "symbol", "meaning", "range in train"), rows, caption, "words")


# ---- 2 and 3: stages ---------------------------------------------------------------------------------------------
def stages(content: RunContent) -> Html:
    names = [*FOUR, *(name for name in content.asked if name not in FOUR)]
    listed = [tag("li", tag("b", name), ": ", sentences.STAGE_WORDS[name]) for name in names]
    rows = [_stage_row(content, name) for name in names]
    header = ("stage", "steps", "time", "kept step", "final loss", "score on valid", "what the score is")
    caption = "Lower scores are better. The kept step is the one whose weights the next stage builds on."
    return section(
        "stages",
        "The stages",
        paragraph("The model is built in stages, each on the frozen result of those before it."),
        tag("ul", *listed),
        table(header, rows, caption),
    )


def _stage_row(content: RunContent, name: str) -> tuple[object, ...]:
    stage = content.stages[name]
    if not stage.is_begun:
        told = "not part of this run" if name not in content.asked else "not begun"
        return name, told, "-", "-", "-", "-", sentences.SCORE_WORDS[name]
    steps = f"{stage.n_done or 0:,}"
    if not stage.is_done:
        steps += f" of {stage.n_planned:,}, unfinished" if stage.n_planned else ", unfinished"
    kept = "-" if stage.selected is None else f"{stage.selected:,}"
    numbers = (sentences.value(stage.loss), sentences.score_text(stage), sentences.SCORE_WORDS[name])
    return name, steps, sentences.duration(stage.seconds), kept, *numbers


def training(content: RunContent) -> Html:
    parts: list[object] = []
    for name in content.asked:
        chart = curves.loss_chart(content.stages[name], f"{sentences.SCORE_WORDS[name]}, valid")
        parts.append(
            tag(
                "div",
                tag("h3", name),
                charts([chart]) if chart else note(sentences.stage_state(content, name)),
                paragraph(sentences.LOOK_FOR[name], class_="soft") if chart else "",
            )
        )
    intro = "Line: loss on train, on a logarithmic axis. Dots: scores on valid. Ring: the step whose weights were kept."
    return section("training", "Curves", paragraph(intro), tag("div", *parts, class_="grid"))


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
    valid, width = content.stages["pretrain"].valid, _width(content)
    found = curves.health_charts(valid, width)
    if not found:
        return section("encoder", "Health of the encoder", note(sentences.stage_state(content, "pretrain")))
    intro = (
        "An encoder can cheat: describe everything alike (a collapse), or tell only where a patch lies. The loss does "
        "not show it, so its features are measured directly, on valid."
    )
    verdict = _verdict(content)
    told = note("There is no verdict: some of the measurements are missing.", "warn")
    if _is_early(content):
        told = note("There is no verdict yet: features of the first half of a training are not judged.")
    elif verdict is not None:
        said = f"Verdict: {verdict.word}. {verdict.reason[:1].upper()}{verdict.reason[1:]}. {verdict.advice}"
        told = note(said.strip(), "good" if verdict.word == "healthy" else "warn")
    rough = "The read-out of the parameters is fitted on half of at most 64 trajectories, so it is a rough number."
    last = paragraph(rough, class_="soft")
    return section("encoder", "Health of the encoder", paragraph(intro), told, charts(found), last)


# ---- 5 and 6: geometry, dynamics ---------------------------------------------------------------------------------
def geometry(content: RunContent) -> Html:
    found = curves.angle_charts(content.stages["align"].valid)
    if not found:
        return section("geometry", "Geometry of trajectories", note(sentences.stage_state(content, "align")))
    intro = (
        "Think of a trajectory as a path: the turning angle is how much it bends from one step to the next, 0° if it "
        "runs straight, 180° if it turns back. Alignment should make the latent path bend as the physical one does."
    )
    last = content.stages["align"].judged
    angle = lambda key: f"{sentences.value(last.get(key), 3)}°"  # noqa: E731
    rows = [
        ("physical u", angle("angle_u"), "-"),
        ("z, before alignment", angle("angle_z"), angle("angle_error_z")),
        ("q, after alignment", angle("angle_q"), angle("angle_error_q")),
    ]
    told = table(("path", "turning angle", "mean difference to u"), rows)
    return section("geometry", "Geometry of trajectories", paragraph(intro), told, _gain(last), charts(found))


def _gain(last: Plain) -> Html:
    before, after = number(last.get("angle_error_z")), number(last.get("angle_error_q"))
    if before is None or after is None:
        return Html("")
    text = f"Alignment changed the difference from {before:.3g}° to {after:.3g}°."
    if after > 0.9 * before:
        return paragraph(text, "That is little: more steps or a larger align.geo_weight may help.")
    return paragraph(text)


def dynamics(content: RunContent) -> Html:
    stage = content.stages["dynamics"]
    chart = curves.error_chart(stage.valid)
    if chart is None:
        return section("dynamics", "Forecasts in the latent space", note(sentences.stage_state(content, "dynamics")))
    step, rollout = (number(stage.judged.get(key)) for key in ("step_error", "rollout_error"))
    text = (
        f"On valid, one step from true latents is off by {percent(step)} of their size, a whole forecast from the "
        f"first frame by {percent(rollout)}: errors pile up, because every step starts from the result of the last."
    )
    return section("dynamics", "Forecasts in the latent space", paragraph(text), charts([chart]))


# ---- errors and 7: examples --------------------------------------------------------------------------------------
def errors(content: RunContent) -> Html:
    if not content.errors:
        command = f"pdejepa evaluate {shlex.quote(str(content.root))}"
        hint = paragraph("Errors on test and outside the training ranges were not measured yet. Measure them with:")
        return section("errors", "Errors on other splits", hint, tag("pre", command))
    keys = ("rel_l2", "median", "last_frame", "repeat_first")
    rows = []
    for split, told in content.errors.items():
        numbers = [percent(number(told.get(key))) for key in keys]
        rows.append((split[:60], sentences.value(told.get("n")), *numbers, sentences.value(told.get("n_unstable"))))
    head = ("split", "trajectories", "relative L2", "median", "last frame", "repeating the first frame", "unstable")
    caption = "Mean over trajectories of the relative L2 error of all forecast frames, in physical units."
    chart = curves.frame_chart(content.errors)
    return section("errors", "Errors on other splits", table(head, rows, caption), charts([chart]) if chart else "")


def examples(found: Sequence[Example], reason: str) -> Html:
    parts: list[object] = []
    for example in found:
        picture = image(example.picture, "png", f"Truth, forecast and error: {example.title}")
        parts += [tag("h3", example.title), paragraph(*example.sentences), figure(picture, is_wide=True)]
    if found:
        intro = "Truth (the solver), forecast (the model) and their difference. The model sees the start and no more."
        parts.insert(0, paragraph(intro))
    if reason:
        parts.append(note(reason))
    return section("examples", "Example forecasts", *parts)


# ---- 8: reproduce ------------------------------------------------------------------------------------------------
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
    if train.get("recipe") in ("paper", "fast", "tiny"):
        parts += ["--recipe", str(train["recipe"])]
    return " ".join(shlex.quote(part) for part in (*parts, "--config", "run.yaml", "--out", "RUN"))


def reproduce(content: RunContent) -> Html:
    if not content.train:
        return section("reproduce", "How to repeat it", note("The configuration is lost.", "warn"), _facts(content))
    return section(
        "reproduce",
        "How to repeat it",
        paragraph("Save the configuration below as run.yaml, then run:"),
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
    rows = [(name, tag("code", str(told)[:200])) for name, told in facts.items() if told not in (None, "")]
    return table(("what", "value"), rows, "Hashes are SHA-256.", "words")
