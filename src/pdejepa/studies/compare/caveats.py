"""What the tables of a comparison do not show, in sentences below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pdejepa.core.text import percent
from pdejepa.studies.compare.comparison_records import budget_of, error, named
from pdejepa.studies.compare.competitors import CARDS
from pdejepa.studies.compare.judgement import BLOCK
from pdejepa.studies.compare.paper_claims import METHOD

TOLERANCE = 0.1  # of the seconds of a budget


def cautions(group: list[dict[str, Any]], records: Sequence[dict[str, Any]] = ()) -> list[str]:
    """What the table of a group does not show, where it shows less than it seems to; `records`: those of all tables."""
    about = (standing, _over_seeds, _diverged, _overdrawn, _starved, _tails, _commits)
    found = [sentence for sentences in about for sentence in sentences(group)]
    found += _devices(group[0], records)
    return found + [sentence for sentences in (_method, _blind, _fitted, _tiny) for sentence in sentences(group)]


def _method(group: list[dict[str, Any]]) -> list[str]:
    """What PDE-JEPA was given that the others were not, and the other way round."""
    if not any(r["recipe"] == "fast" and r["solver"] == METHOD for r in group):
        return []
    words = (
        "Sizes, optimiser (Muon) and schedule of PDE-JEPA were developed on this package's systems; the other solvers "
        "have their published sizes and optimisers, and where `fast` differs from the paper in more than the length "
        "of its schedule (windows, batches, rates of codes) `pdejepa baselines NAME` says so. By trials only the "
        "learning rate was chosen, for all of them. PDE-JEPA has to do without what its own recipes may add: "
        "trajectories rescaled to unit size, and finer steps outside the training range."
    )
    on_gpu = (
        " Trained in bfloat16: PDE-JEPA, and the stages of others that are transformers, except MPP; else float32 "
        "(TF32)."
    )
    return [words if group[0]["device"] == "cpu" else words + on_gpu]


def _blind(group: list[dict[str, Any]]) -> list[str]:
    """Who cannot know which equation it is asked about."""
    blind = [r["title"] for r in group if r.get("is_blind")]
    if not blind:
        return []
    best = (
        "; the last row is about the best that can be done with it (the mean of the true solutions under parameters of "
        "train)"
    )
    return [
        f"{', '.join(dict.fromkeys(blind))}: told neither parameters nor another trajectory. One frame does not say "
        f"which equation it follows{best if blind_is_best(group) else ''}. What they learnt shows in the tail, where "
        "they see more frames."
    ]


def _fitted(group: list[dict[str, Any]]) -> list[str]:
    """Who is trained a little more before each forecast."""
    fitted = [r["title"] for r in group if r["adapts"] == "gradient"]
    if not fitted:
        return []
    n = min(BLOCK, *(r["errors"]["test"].get("n", BLOCK) for r in group))
    return [
        f"{', '.join(dict.fromkeys(fitted))}: before a forecast they fit a code to another whole trajectory under the "
        f"same parameters, outside the budget; its milliseconds are those of {n} at once, divided by {n}. Their rate "
        "and weights were chosen by the error on train, because codes of valid are not known."
    ]


def _tiny(group: list[dict[str, Any]]) -> list[str]:
    """What recipe tiny is for."""
    if not any(r["recipe"] == "tiny" for r in group):
        return []
    return [
        "Recipe tiny: the published solvers are shrunk to a few thousand parameters, for tests. This shows that they "
        "run, not how good they are."
    ]


def _starved(group: list[dict[str, Any]]) -> list[str]:
    """Who had a stage with a single step, because the budget holds no more, or seconds went into preparing."""
    found = [(r, [stage for stage, n in r["steps"].items() if n <= 1]) for r in group]
    words = "; ".join(f"{named(r, group)} ({', '.join(stages)})" for r, stages in found if stages)
    return [f"One step only, so hardly trained: {words}. The budget is too short for them."] if words else []


def standing(group: list[dict[str, Any]]) -> list[str]:
    """Who is best (of several seeds: its best) and who has not been measured; nothing without PDE-JEPA and others.

    Nor of recipe tiny, where the others are shrunk further than PDE-JEPA.
    """
    own, present = [r for r in group if r["solver"] == METHOD], {r["solver"] for r in group}
    if not own or len(present) == 1 or group[0]["recipe"] == "tiny":
        return []
    words = []
    for split in ("test", "ood"):
        mine = [value for r in own if (value := error(r, split)) is not None]
        if mine:
            least, best = min((value, r["title"]) for r in group if (value := error(r, split)) is not None)
            is_told = best != own[0]["title"] and least > 0
            ours = f", PDE-JEPA {min(mine) / least:.1f} times as much" if is_told else ""
            words.append(f"{split} {best} ({percent(least)}{ours})")
    missing = [card.title for name, card in CARDS.items() if card.is_forecaster and name not in present]
    rest = f" Not measured: {', '.join(missing)}." if missing else ""
    return [f"Smallest errors: {'; '.join(words)}.{rest}"]


def _over_seeds(group: list[dict[str, Any]]) -> list[str]:
    """Mean and range of solvers with several seeds."""
    words = []
    for solver in dict.fromkeys(r["solver"] for r in group):
        own = [r for r in group if r["solver"] == solver]
        found = {split: [error(r, split) for r in own] for split in ("test", "ood") if split in own[0]["errors"]}
        parts = [f"{split} {_range(values)}" for split, values in found.items()]
        words += [f"{own[0]['title']} {', '.join(parts)}"] if len(own) > 1 else []
    return [f"Mean (least - most) over seeds: {'; '.join(words)}."] if words else []


def _range(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{percent(sum(known) / len(known))} ({percent(min(known))} - {percent(max(known))})"


def _overdrawn(group: list[dict[str, Any]]) -> list[str]:
    """Who trained for much more or less than the budget: a single step, or what comes before it, may be too long."""
    timed = [r for r in group if budget_of(r).unit == "seconds"]
    off = [r for r in timed if abs(r["seconds"] / budget_of(r).amount - 1) > TOLERANCE]
    words = ", ".join(f"{named(r, group)} {r['seconds']:.3g} s" for r in off)
    return [f"More than {TOLERANCE:.0%} beside the budget: {words}."] if off else []


def _diverged(group: list[dict[str, Any]]) -> list[str]:
    """Whose forecasts did not stay finite: an error of 100 % may be better than what others have."""
    words = []
    for r in group:
        parts = {split: part for split, part in r["errors"].items() if part.get("n_diverged")}
        told = ", ".join(f"{part['n_diverged']} of {part.get('n', '?')} on {split}" for split, part in parts.items())
        words += [f"{named(r, group)} {told}"] if parts else []
    return [f"Forecasts that diverged count as 100%: {'; '.join(words)}."] if words else []


def _tails(group: list[dict[str, Any]]) -> list[str]:
    """Whether tails begin at one frame: it depends on the longest history of all solvers, which may change."""
    first: dict[int, list[str]] = {}
    for r in group:
        if (frame := r["errors"]["test"].get("tail_from")) is not None:
            first.setdefault(frame, []).append(named(r, group))
    words = "; ".join(f"frame {frame}: {', '.join(first[frame])}" for frame in sorted(first))
    return [f"Tails begin at different frames, so they do not compare. {words}."] if len(first) > 1 else []


def _commits(group: list[dict[str, Any]]) -> list[str]:
    """Which rows were measured with which code, if not all with the same."""
    titles: dict[str, list[str]] = {}
    for r in group:
        commit, _, changed = (r.get("commit") or "unknown").partition("-")
        titles.setdefault(f"{commit[:7]}-{changed}" if changed else commit[:7], []).append(r["title"])
    if len(titles) < 2:
        return []
    words = "; ".join(f"{name}: {', '.join(dict.fromkeys(titles[name]))}" for name in titles)
    return [f"Measured at different commits, so the code may differ. {words}."]


def _devices(one: dict[str, Any], records: Sequence[dict[str, Any]]) -> list[str]:
    """Where else the same was measured: another table, because the same seconds are another number of steps there."""
    alike = lambda r: (r["system"], r["size"], r["recipe"], budget_of(r))  # noqa: E731
    same = [r for r in records if alike(r) == alike(one)]
    others = sorted({r["device"] for r in same} - {one["device"]})
    if not others or budget_of(one).unit != "seconds":
        return []
    return [
        f"Also measured on {', '.join(others)}, in another table: the same seconds allow other numbers of steps there, "
        "so errors and times of the two do not compare."
    ]


def known(records: list[dict[str, Any]], split: str, key: str) -> float | None:
    """What the first record that tells it has under `key`."""
    found = (r["errors"].get(split, {}).get(key) for r in records)
    return next((value for value in found if value is not None), None)


def blind_is_best(records: list[dict[str, Any]]) -> bool:
    """A mean over parameters is the best guess in absolute terms; in relative ones the first frame may be better."""
    blind, first = (known(records, "test", key) for key in ("blind", "repeat_first"))
    return blind is not None and (first is None or blind < first)
