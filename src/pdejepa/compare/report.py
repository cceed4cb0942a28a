"""Tables and a picture from the records of comparisons.

One table: one system, size of data, budget and device, and one data set, or the report is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdejepa import systems
from pdejepa.compare.entries import CARDS
from pdejepa.compare.published import METHOD, published, reason
from pdejepa.compare.records import read_record
from pdejepa.core.documents import escaped, markdown_table
from pdejepa.core.errors import DataError
from pdejepa.core.files import write_aside
from pdejepa.evaluate.published import metric_of
from pdejepa.forecast.card import percent

Rows = list[tuple[str, ...]]
HEAD = (
    "solver",
    "test",
    "ood",
    "tail, test",
    "tail, ood",
    "true frames",
    "told",
    "parameters",
    "memory",
    "ms/forecast",
    "adaptation",
    "steps",
    "seconds",
    "learning rate",
)
# Who forecasts the first frame for ever; and a nearly best answer of who sees it, but knows nothing of the parameters.
REFERENCES = (("repeat_first", "(the first frame again)"), ("blind", "(one frame, parameters unknown: about the best)"))
TOLERANCE = 0.1  # of the seconds of a budget
LEDGER = ("solver", "paper, test", "here", "paper, ood", "here", "why it may differ")


def read_records(places: Sequence[Path]) -> list[dict[str, Any]]:
    """Records in files and folders, best first; DataError if there is none, one is damaged, or their data differ."""
    found = []
    for place in places:
        for path in sorted(place.glob("*.json")) if place.is_dir() else [place]:
            record = read_record(path)
            if record is not None:
                found.append({**record, "file": str(path)})
    if not found:
        raise DataError(f"No records of comparisons in {', '.join(map(str, places))}. Make some: pdejepa compare NAME")
    _check_data(found)
    return sorted(found, key=lambda r: (r["system"], r["budget_seconds"], error(r, "test") or 0.0))


def _check_data(records: list[dict[str, Any]]) -> None:
    """Refuse records of one system and size whose data differ; those of two devices may, in their last digits."""
    first: dict[tuple[str, ...], dict[str, Any]] = {}
    for record in records:
        known = first.setdefault((record["system"], record["size"], record["device"]), record)
        before, now = (str(one.get("data_hash") or "none") for one in (known, record))
        if before != now:
            raise DataError(
                f"{known['file']} and {record['file']} cannot be in one report: expected the same data of "
                f"{record['system']}, got data_hash {before[:12]} and {now[:12]}. Report them apart, or move the one "
                "with the old data away and run its comparison again."
            )


def error(record: dict[str, Any], split: str) -> float | None:
    """The headline error of a split; one norm over the channels where the published numbers have it so."""
    found = record["errors"].get(split)
    return None if found is None else float(found[metric_of(record["system"])])


def groups(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Records that belong into one table, by its title."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        how = f"{record['budget_seconds']:g} s each from {record['weights']}, recipe {record['recipe']}"
        title = f"{record['system']}, {how}, {record['size']} data, {record['device']}"
        tables.setdefault(title, []).append(record)
    return tables


def rows(records: list[dict[str, Any]]) -> Rows:
    """One line per record."""
    lines: Rows = []
    for r in records:
        test, ood = error(r, "test"), error(r, "ood")
        adaptation = f"{r['ms_per_adaptation']:.1f} ms" if r["adapts"] == "gradient" else ""
        lines.append(
            (
                _named(r, records),
                percent(test),
                percent(ood) if ood is not None else "",
                *(percent(r["errors"][split]["tail"]) if split in r["errors"] else "" for split in ("test", "ood")),
                str(r["true_frames"]),
                told(r["solver"]),
                f"{r['parameters'] / 1e6:.2f} M" if r["parameters"] >= 1e5 else f"{r['parameters'] / 1e3:.1f} k",
                f"{r['peak_memory_bytes'] / 1e9:.1f} GB",
                f"{r['ms_per_forecast']:.2f}",
                adaptation,
                f"{sum(r['steps'].values()):,}",
                f"{r['seconds']:.0f}",
                f"x {r['learning_rate_factor']:.2g}",
            )
        )
    return [*lines, *(line for key, title in REFERENCES for line in _reference(records, key, title))]


def _named(r: dict[str, Any], records: list[dict[str, Any]]) -> str:
    """The title of a record, with its seed where the table has several of that solver."""
    n = sum(other["solver"] == r["solver"] for other in records)
    return f"{r['title']}, seed {r['seed']}" if n > 1 else str(r["title"])


def _reference(records: list[dict[str, Any]], key: str, title: str) -> Rows:
    """What the competitors are to be seen against; nothing if it was not measured."""
    known = [_known(records, split, key) for split in ("test", "ood")]
    if known[0] is None or (key == "blind" and not _blind_is_best(records)):
        return []
    cells = [percent(value) if value is not None else "" for value in known]
    return [(title, *cells, "", "", "1", *[""] * (len(HEAD) - 6))]


def _known(records: list[dict[str, Any]], split: str, key: str) -> float | None:
    """What the first record that tells it has under `key`."""
    found = (r["errors"].get(split, {}).get(key) for r in records)
    return next((value for value in found if value is not None), None)


def _blind_is_best(records: list[dict[str, Any]]) -> bool:
    """A mean over parameters is the best guess in absolute terms; in relative ones the first frame may be better."""
    blind, first = (_known(records, "test", key) for key in ("blind", "repeat_first"))
    return blind is not None and (first is None or blind < first)


def told(solver: str) -> str:
    """What a solver learns of the equation, beside the frames that it continues."""
    card = CARDS[solver]
    words = ["parameters"] if "xi" in card.needs else []
    return ", ".join(words + (["a trajectory"] if "support" in card.needs or card.adapts == "gradient" else []))


def cautions(group: list[dict[str, Any]], records: Sequence[dict[str, Any]] = ()) -> list[str]:
    """What the table of a group does not show, where it shows less than it seems to; `records`: those of all tables."""
    found = [*_standing(group), *_overdrawn(group), *_commits(group), *_devices(group[0], records)]
    if any(r["recipe"] == "fast" and r["solver"] == METHOD for r in group):
        found.append(
            "Sizes, optimiser (Muon) and schedule of PDE-JEPA were developed on this package's systems; the other "
            "solvers have their published sizes and optimisers, and where minutes ask for more than a shorter schedule "
            "(windows, batches, rates of codes) `pdejepa baselines NAME` says so. By trials only the learning rate was "
            "chosen, for all of them. PDE-JEPA has to do without what its own recipes may add: trajectories rescaled "
            "to unit size, and finer steps outside the training range. Trained in bfloat16: PDE-JEPA, and the stages "
            "of others that are transformers, except MPP; else float32 (TF32)."
        )
    blind = [r["title"] for r in group if r.get("is_blind")]
    if blind:
        best = (
            "; the last row is about the best that can be done with it (the mean of the true solutions under "
            "parameters of train)"
        )
        found.append(
            f"{', '.join(dict.fromkeys(blind))}: told neither parameters nor another trajectory. One frame does not "
            f"say which equation it follows{best if _blind_is_best(group) else ''}. What they learnt shows in the "
            "tail, where they see more frames."
        )
    fitted = [r["title"] for r in group if r["adapts"] == "gradient"]
    if fitted:
        found.append(
            f"{', '.join(dict.fromkeys(fitted))}: before a forecast they fit a code to another whole trajectory under "
            "the same parameters, outside the budget; its milliseconds are those of 32 at once, divided by 32. Their "
            "rate and weights were chosen by the error on train, because codes of valid are not known."
        )
    if any(r["recipe"] == "tiny" for r in group):
        found.append(
            "Recipe tiny: the published solvers are shrunk to a few thousand parameters, for tests. This shows that "
            "they run, not how good they are."
        )
    return found


def _standing(group: list[dict[str, Any]]) -> list[str]:
    """Who is best and by how much, and who has not been measured; nothing where PDE-JEPA is not beside others.

    Nor of recipe tiny, where the others are shrunk further than PDE-JEPA.
    """
    own, present = [r for r in group if r["solver"] == METHOD], {r["solver"] for r in group}
    if not own or len(present) == 1 or group[0]["recipe"] == "tiny":
        return []
    words = []
    for split in ("test", "ood"):
        mine = error(own[0], split)
        if mine is not None:
            least, best = min((value, r["title"]) for r in group if (value := error(r, split)) is not None)
            ours = "" if best == own[0]["title"] else f", PDE-JEPA {mine / least:.1f} times as much"
            words.append(f"{split} {best} ({percent(least)}{ours})")
    missing = [card.title for name, card in CARDS.items() if card.is_forecaster and name not in present]
    rest = f" Not measured: {', '.join(missing)}." if missing else ""
    return [f"Smallest errors: {'; '.join(words)}.{rest}"]


def _overdrawn(group: list[dict[str, Any]]) -> list[str]:
    """Who trained for much more or less than the budget: steps are planned ahead, and timed before they are."""
    off = [r for r in group if abs(r["seconds"] / r["budget_seconds"] - 1) > TOLERANCE]
    words = ", ".join(f"{r['title']} {r['seconds']:.3g} s" for r in off)
    return [f"More than {TOLERANCE:.0%} beside the budget: {words}."] if off else []


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
    same = [r for r in records if all(r[key] == one[key] for key in ("system", "size", "budget_seconds"))]
    others = sorted({r["device"] for r in same} - {one["device"]})
    if not others:
        return []
    return [
        f"Also measured on {', '.join(others)}, in another table: the same seconds allow other numbers of steps there, "
        "so errors and times of the two do not compare."
    ]


def _why(r: dict[str, Any]) -> str:
    return reason(systems.get(r["system"]), r["solver"], bool(r.get("is_blind")), sum(r["steps"].values()))


def ledger(records: list[dict[str, Any]]) -> Rows:
    """What the paper says, what we get, and why it may differ."""
    lines: Rows = []
    for r in records:
        known = published(r["system"], r["solver"])
        if known is None:
            continue
        cells = [percent(value) if value is not None else "-" for value in known]
        here = [percent(error(r, split)) if split in r["errors"] else "-" for split in ("test", "ood")]
        lines.append((r["title"], cells[0], here[0], cells[1], here[1], _why(r)))
    return lines


def markdown(records: list[dict[str, Any]]) -> str:
    """All tables and ledgers."""
    parts = []
    for title, group in groups(records).items():
        parts += [f"**{title}**", markdown_table(HEAD, rows(group)), *map(escaped, cautions(group, records))]
        parts += [markdown_table(LEDGER, ledger(group))] if ledger(group) else []
    return "\n\n".join(parts) + "\n"


def plot(records: list[dict[str, Any]], path: Path) -> None:
    """Error against the cost of a forecast, one panel per table; filled: test, hollow: ood."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    tables = groups(records)
    figure, axes = plt.subplots(1, len(tables), figsize=(7 * len(tables), 5), squeeze=False, layout="constrained")
    for axis, (title, group) in zip(axes[0], tables.items(), strict=True):
        for r in group:
            colour = "#D55E00" if r["solver"] == METHOD else "#0072B2"
            cost = r["ms_per_forecast"] + (r["ms_per_adaptation"] if r["adapts"] == "gradient" else 0.0)
            test, ood = error(r, "test"), error(r, "ood")
            axis.loglog(cost, test, "o", color=colour)
            axis.annotate(r["title"], (cost, test), textcoords="offset points", xytext=(5, 4), fontsize=8)
            if ood is not None:
                axis.loglog([cost, cost], [test, ood], "-", color=colour, lw=0.7, alpha=0.5)
                axis.loglog(cost, ood, "o", color=colour, fillstyle="none")
        axis.set(title=title, xlabel="milliseconds per forecast, with adaptation", ylabel="relative L2 error")
        axis.grid(alpha=0.3, which="both", lw=0.4)
    with write_aside(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
    plt.close(figure)
