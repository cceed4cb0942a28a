"""Write result files into documents, between a pair of marks that names the file.

    python benchmarks/tables.py lab/*.md

A document holds `<!-- table: FILE -->` ... `<!-- end table: FILE -->`; what stands between is replaced.  FILE may be
one or more patterns (`results/*-tiny-s0.json`): all files that fit make one table, in the order of the patterns and by
name within a pattern.  Records in `lab/data/levers` and `lab/data/levers-...` are of one study, whose
trainings are told apart by the names of their files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pdejepa.core.config import load_config
from pdejepa.core.documents import marked_names, write_between
from pdejepa.core.tables import Table
from pdejepa.forecast.bands import Bands, Coverage

PREFIX = "table: "  # of the marks


def generation_table(report: dict[str, Any]) -> str:
    """One row per system: what was made, how long it took, and what share of the copy bandwidth was used."""
    where = f"{report['device']}, torch {report['torch']}{_bandwidth(report)}."
    head: tuple[str, ...]
    if "trajectories" in report["rows"][0]:
        head = ("system", "trajectories", "seconds", "µs per trajectory and step", "share of copy bandwidth")
        cells = [
            (
                row["system"],
                f"{row['trajectories']:,}",
                f"{row['seconds']:.1f}",
                row.get("us_per_trajectory_step", ""),
                f"{row['share_of_copy_bandwidth']:.0%}" if "share_of_copy_bandwidth" in row else "",
            )
            for row in report["rows"]
        ]
    else:
        head = (
            "system",
            "trajectories/s",
            "compiled",
            "SciPy, fastest as accurate as ours",
            "its seconds",
            "ratio",
            "compiled",
        )
        cells = [
            (row["system"], row["trajectories_per_s"], row.get("compiled_per_s", ""), *_peer(row))
            for row in report["rows"]
        ]
    return _laid_out(head, cells, where)


def _bandwidth(report: dict[str, Any]) -> str:
    value = report.get("copy_bandwidth")
    return f", copy bandwidth {value / 1e12:.2f} TB/s" if value else ""


def _peer(row: dict[str, Any]) -> tuple[str, ...]:
    if "scipy" not in row:
        return "", "", "", ""
    peer = row["scipy"]
    told = (
        f"{peer['method']} rtol {peer['rtol']:g}, error <= {peer['accuracy']:.0e}, {peer['finished']}/{peer['of']} rows"
    )
    ratios = (f"{row[key]:.0f}x" for key in ("ratio_trajectories_per_s", "ratio_compiled_per_s") if key in row)
    return told, f"{peer['seconds_per_trajectory']:.2f}", *ratios


def _laid_out(head: Sequence[str], rows: Iterable[Sequence[Any]], where: str = "") -> str:
    """A table below a line that tells where it was measured."""
    table = Table(head, [[str(cell) for cell in row] for row in rows]).markdown()
    return f"{where}\n\n{table}" if where else table


def error_table(results: list[dict[str, Any]]) -> str:
    """One row per model and split: the error, that of repeating the first frame, and how long the training took."""
    head = ("system", "recipe", "split", "trajectories", "relative L2", "joint", "repeat first", "seconds", "on")
    rows = []
    for result in results:
        for split, found in result["errors"].items():
            errors = (_percent(found[key]) for key in ("rel_l2", "rel_l2_joint", "repeat_first"))
            seconds = f"{result['seconds']['total']:.0f}"
            recipe = result["recipe"] + (", polished" if result["polish"] else "")
            where = _where(split, found)
            rows.append((result["system"], recipe, where, found["n"], *errors, seconds, result["device"]))
    return _laid_out(head, rows)


def change_table(results: dict[str, dict[str, Any]]) -> str:
    """One row per training of a study, under the name of its file: errors of every split, and the seconds."""
    splits = list(next(iter(results.values()))["errors"])
    rows = []
    for name, result in results.items():
        errors = (_percent(result["errors"][split]["rel_l2"]) for split in splits)
        rows.append((name, *errors, f"{result['seconds']['total']:.0f}"))
    return _laid_out(("training", *splits, "seconds"), rows)


def _where(split: str, found: dict[str, Any]) -> str:
    """The split, and the data set that the truth was read from, if it was not generated."""
    source = found.get("source", "generated")
    return split if source == "generated" else f"{split} of {Path(source).name}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.3g} %"


def training_table(report: dict[str, Any]) -> str:
    """One row per system and stage: speed, use of the machine, ratio to running plainly."""
    kinds = ", ".join(f"{kind} {value:g}" for kind, value in report["peak_tflops"].items())
    head = ("system", "stage", "batch", "ms per step", "samples/s", "TFLOP/s", "of peak", "ratio to plain", "time in")
    where = f"{report['device']}, torch {report['torch']}, recipe {report['recipe']}"
    rows = []
    for row in report["rows"]:
        shares = ", ".join(f"{kind} {share:.0%}" for kind, share in row["time"].items() if share)
        numbers = [row[key] for key in ("system", "stage", "batch", "ms_per_step", "samples_per_s", "tflops")]
        rows.append((*numbers, f"{row['share_of_peak']:.1%}", f"{row['ratio_to_plain']:g}x", shares))
    return _laid_out(head, rows, f"{where}; matrix products reach {kinds} TFLOP/s.")


def finalists(rows: Sequence[dict[str, Any]], batch: int) -> tuple[dict[str, Any], ...]:
    """The surrogate, the fastest solver setting at least as accurate, and the solver of the data, measured in turn."""
    here = [row for row in rows if row["batch"] == batch and row["in_turn"]]
    ours = next(row for row in here if row["who"] == "surrogate")
    as_good = [row for row in here if row["who"] != "surrogate" and row["rel_l2"] <= ours["rel_l2"]]
    reference = next(row for row in here if row["who"] == "reference")
    return ours, min(as_good, key=lambda row: row["seconds"]), reference


def forecast_table(report: dict[str, Any]) -> str:
    """Of every model and batch size: error and seconds of the finalists, and what they say."""
    head = ("model", "trajectories", "batch", "who", "setting", "relative L2", "ms per trajectory")
    where = f"{report['device']}, torch {report['torch']}, load average before the start {report['load']:g}."
    rows = []
    for model, batch in dict.fromkeys((row["model"], row["batch"]) for row in report["rows"]):
        ours, rival, reference = finalists([row for row in report["rows"] if row["model"] == model], batch)
        for row in (ours, rival, reference) if rival is not reference else (ours, reference):
            who = {"reference": "solver of the data"}.get(row["who"], row["who"])
            error = f"{100 * row['rel_l2']:.3g} %" + (f" ({row['n_failed']} failed)" if row["n_failed"] else "")
            rows.append((model, row["n"], batch, who, row["setting"], error, f"{1e3 * row['seconds']:.3g}"))
    return _laid_out(head, rows, where) + "\n\n" + "\n".join(f"- {sentence}" for sentence in report["verdicts"])


def size_table(report: dict[str, Any]) -> str:
    """One row per size, seconds and polished or not: errors, and the steps of the stages."""
    splits = [split for split in ("valid", "test", "ood") if split in report["sizes"][0]]
    head = ("parameters", "what", "seconds of steps", *splits, "steps", "set-up of the whole training, s")
    where = f"{report['device']}, torch {report['torch']}, {report['system']}, recipe {report['recipe']}"
    told = ", ".join(("", *report["set"]))
    rows = []
    for row in sorted(report["sizes"], key=lambda row: (row["polished"], row["seconds"], -row["parameters"])):
        what = "polished" if row["polished"] else "four stages"
        steps = " / ".join(f"{n:,}" for n in row["steps"].values())
        errors = (_percent(row[split]) for split in splits)
        rows.append((f"{row['parameters']:,}", what, f"{row['seconds']:.0f}", *errors, steps, f"{row['set_up']:.0f}"))
    return _laid_out(head, rows, f"{where}, seed {report['seed']}{told}.")


def limit_table(report: dict[str, Any]) -> str:
    """One row per model and split: errors of parts of a forecast, in fields and in latents."""
    names = ("direct", "one_step", "forecast", "latent_one_step", "latent_forecast")
    head = ("system", "what", "split", "direct", "one step", "forecast", "latent, one step", "latent, rollout")
    rows = []
    for row in report["limits"]:
        what = f"{row['recipe']}, {'polished' if row['polish'] else 'four stages'}, seed {row['seed']}"
        rows.append((row["system"], what, row["split"], *(_percent(row[name]) for name in names)))
    return _laid_out(head, rows)


def breakeven_table(reports: list[dict[str, Any]]) -> str:
    """One row per model: errors and milliseconds of forecast and solver, what was spent before, and the verdict."""
    head = ("model", "batch", "forecast", "ms", "solver as accurate", "its error", "ms", "data + training", "pays")
    found = [row for report in reports for row in report["breakeven"]]
    rows = []
    for row in found:
        spent = "not told"
        if row["data_seconds"] is not None:
            spent = f"{row['data_seconds']:.0f} + {row['training_seconds']:.0f} s, {row['trained_on'] or 'not named'}"
        times = [f"{1e3 * row[key]:.3g}" for key in ("forecast_seconds", "solver_seconds")]
        errors = [_percent(row[key]) for key in ("error", "solver_error")]
        rival = (row["solver_setting"], errors[1], times[1])
        rows.append((row["model"], row["batch"], errors[0], times[0], *rival, spent, row["reason"]))
    where = ", ".join(dict.fromkeys(row["measured_on"] for row in found))
    return _laid_out(head, rows, f"{where}; ms per trajectory.")


def solver_table(records: list[dict[str, Any]]) -> str:
    """One row per record of a comparison: mean and median of test and ood, rows that blew up, seconds."""
    head = ("system", "solver", "test", "median", "blew up", "ood", "median", "blew up", "fit, s", "ms")
    rows = []
    for record in sorted(records, key=lambda record: record["system"]):
        key = "rel_l2_joint" if record["system"] == "gray_scott" else "rel_l2"
        cells: list[str] = []
        for split in ("test", "ood"):
            found = record["errors"].get(split)
            lost = "-" if found is None else f"{found['n_diverged']} of {found['n']}"
            cells += ["-", "-", "-"] if found is None else [_percent(found[key]), _percent(found["median"]), lost]
        costs = (f"{record['seconds']:.0f}", f"{record['ms_per_forecast']:.3g}")
        rows.append((record["system"], record["title"], *cells, *costs))
    return _laid_out(head, rows)


def coverage_table(reports: dict[str, dict[str, Any]]) -> str:
    """One row per model: how often its bands held on test, and on splits of which they promise nothing."""
    levels = (0.5, 0.9)
    told = [f"{100 * level:.0f} %" for level in levels]
    head = ("model", "calibrated on", "test", *(f"{one} promised" for one in told), "holds", "other split")
    rows = []
    for name, report in reports.items():
        bands = load_config(Bands, defaults=report)
        places = [bands.levels.index(level) for level in levels]
        for part in (part for part in bands.coverage if part.split == "test"):
            halves = [part.half(bands.levels[i], i) for i in places]
            shares = [part.shares[i] for i in places]
            holds = all(abs(s - p) <= h for s, p, h in zip(shares, levels, halves, strict=True))
            cells = [f"{100 * s:.1f} % ± {100 * h:.1f} %" for s, h in zip(shares, halves, strict=True)]
            others = [_unpromised(one, places) for one in bands.coverage if one is not part]
            known = f"{part.n} cases, {part.n_environments} environments"
            verdict = ("yes" if holds else "no", "; ".join(others) or "-")
            rows.append((name, f"{bands.n} cases", known, *cells, *verdict))
    return _laid_out(head, rows)


def _unpromised(part: Coverage, places: Sequence[int]) -> str:
    shares = " and ".join(f"{100 * part.shares[i]:.0f} %" for i in places)
    return f"{part.split}, no promise: {shares} of {part.n}"


def table(pattern: str) -> str:
    """The table of the file, or of all files, that a mark names."""
    paths = list(dict.fromkeys(path for part in pattern.split() for path in sorted(Path().glob(part))))
    reports = [json.loads(path.read_text()) for path in paths]
    if not reports:
        raise SystemExit(f"no file fits {pattern}; run from the top folder of the repository")
    if paths[0].parent.name.startswith("levers"):
        return change_table({path.stem: report for path, report in zip(paths, reports, strict=True)})
    if "breakeven" in reports[0]:
        return breakeven_table(reports)
    if "true_frames" in reports[0]:
        return solver_table(reports)
    if "widths" in reports[0]:
        return coverage_table({path.parent.name: report for path, report in zip(paths, reports, strict=True)})
    if "errors" in reports[0]:
        return error_table(reports)
    if "verdicts" in reports[0]:
        return forecast_table(reports[0])
    if "limits" in reports[0]:
        return limit_table(reports[0])
    if "sizes" in reports[0]:
        return size_table(reports[0])
    return training_table(reports[0]) if "peak_tflops" in reports[0] else generation_table(reports[0])


def main() -> None:
    for name in sys.argv[1:]:
        for mark in marked_names(Path(name)):
            if mark.startswith(PREFIX):
                write_between(Path(name), mark, table(mark.removeprefix(PREFIX)))


if __name__ == "__main__":
    main()
