"""Error against seconds: a surrogate and our own solver, on the same machine, from the same first frame.

    python benchmarks/forecast.py --models combined --device cpu --out results/forecast-cpu.json --plot forecast.png
    python benchmarks/forecast.py --models runs/vorticity --n 4 --batches 1 4

The reference is the solver as it makes the data.  Its rivals are the same solver on coarser grids, with larger steps
and in single precision (see `systems.coarser`), and the surrogate.  All start with the state at the first stored frame
on their own grid, in memory, and end with all frames on the stored grid.  Seconds are the median of repeats, each after
a warm-up call, so compilation and tables made once do not count; those that the verdict rests on are measured again, in
turn, so that other work on the machine slows all of them alike.  The error is the relative L2 of the forecast frames,
mean over n test trajectories; a row that failed counts as 100 %.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.ticker import NullFormatter
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from tables import finalists, forecast_table

from pdejepa.core.device import pick_device
from pdejepa.core.files import write_json
from pdejepa.draw import pictures
from pdejepa.draw.panels import NORMAL, SMALL, new_figure
from pdejepa.evaluate import metrics
from pdejepa.evaluate.protocol import UNSTABLE
from pdejepa.forecast.forecaster import Forecaster, load
from pdejepa.systems.base import SteppedSystem
from pdejepa.systems.coarser import Setting, first_state, settings

MIN_REPEATS, MAX_REPEATS = 3, 20
N_CANDIDATES, N_ROUNDS = 3, 7  # settings that may turn out to be the fastest, and how often they are measured again
HOPELESS = 3.0  # times the error of the surrogate: on such a grid larger steps are not tried
FLOOR = 1e-8  # smaller errors are drawn here
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # told apart by everybody
Row = dict[str, Any]
Run = Callable[[slice], Tensor]  # some of the rows -> frames (B,T,C,*grid)


class Question:
    """What all are asked: n test trajectories from their first frame on."""

    def __init__(self, model: Forecaster, n: int) -> None:
        self.model, self.system, self.device = model, model.system, model.device
        self.first = model.surrogate.history  # frames before it are given
        u0, xi = self.system.sample("test", range(n), device=self.device)
        solved = self.system.solve(u0, xi)
        good = [row for row in range(n) if row not in solved.failures()]
        if not good:
            raise SystemExit(f"{self.system.name}: the solver failed on all {n} trajectories")
        self.truth = solved.as_subclass(Tensor)[good]  # (B,T,C,*grid)
        self.xi, self.state = xi[good], first_state(self.system, u0[good], xi[good])

    def surrogate(self) -> Run:
        observed = self.truth[:, : self.first].float()
        return lambda rows: self.model.forecast(observed[rows], self.xi[rows]).fields

    def solver(self, setting: Setting) -> Run:
        start = setting.start(self.state)
        return lambda rows: setting.run(start[rows], self.xi[rows])

    def error(self, run: Run, batch: int) -> tuple[float, int]:
        """Mean relative L2, and how many rows failed."""
        n = len(self.truth)
        frames = torch.cat([run(slice(i, i + batch)) for i in range(0, n, batch)])
        errors = metrics.rel_l2(frames, self.truth, self.first).cpu()
        failed = ~torch.isfinite(errors)
        return float(errors.masked_fill(failed, UNSTABLE).mean()), int(failed.sum())

    def still(self) -> float:
        """The error of repeating the last frame that is given."""
        return float(metrics.rel_l2(metrics.repeat_first(self.truth, self.first), self.truth, self.first).mean())

    def seconds(self, run: Run, batch: int, patience: float) -> float:
        """Median for one batch; every repeat takes other rows, because some are harder than others."""
        used: list[float] = []
        for i in range(MAX_REPEATS):
            used.append(self.time(run, self.part(i, batch)))
            if sum(used) > patience * (1 if len(used) >= MIN_REPEATS else 10):
                break
        return statistics.median(used)

    def part(self, i: int, batch: int) -> slice:
        """The rows of repeat i."""
        begin = i % (len(self.truth) // batch) * batch
        return slice(begin, begin + batch)

    def time(self, run: Run, rows: slice) -> float:
        """Seconds of the second call in a row: what is compiled or tabulated once is there by then."""
        run(rows)
        self._wait()
        start = time.perf_counter()
        run(rows)
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def measure(
    question: Question, label: str, batches: Sequence[int], patience: float, limit: float = math.inf
) -> list[Row]:
    """Rows of the surrogate and of all settings of the solver, the cheapest grids first.

    After `limit` seconds no further grid is tried: the fine ones that are then left out are rarely the fastest.
    """
    began = time.perf_counter()
    told = {"model": label, "system": question.system.name, "n": len(question.truth)}
    told["has_closed_form"] = not isinstance(question.system, SteppedSystem)
    told["repeat_first"] = question.still()

    def rows(who: str, setting: str, run: Run) -> list[Row]:
        error, n_failed = question.error(run, max(batches))
        found = []
        for batch in batches:
            seconds = question.seconds(run, batch, patience) / batch
            own = {"who": who, "setting": setting, "batch": batch, "seconds": seconds}
            found.append({**told, **own, "rel_l2": error, "n_failed": n_failed, "in_turn": False})
            print(f"  {label}, {who} {setting}, batch {batch}: {error:.3g}, {seconds:.3g} s", flush=True)
        return found

    all_rows = rows("surrogate", question.model.details["weights_dtype"], question.surrogate())
    reference, *others = settings(question.system)
    all_rows += rows("reference", reference.label, question.solver(reference))
    for group in by_grid(others):
        if time.perf_counter() - began > limit:
            print(f"  {label}: {limit:g} s are over; left out: {group[0].n} points and more", flush=True)
            break
        best, n_worse = [math.inf] * len(batches), 0
        for setting in group:
            found = rows("solver", setting.label, question.solver(setting))
            all_rows += found
            is_faster = [row["seconds"] < 0.95 * before for row, before in zip(found, best, strict=True)]
            best = [min(row["seconds"], before) for row, before in zip(found, best, strict=True)]
            n_worse = 0 if any(is_faster) else n_worse + 1
            is_hopeless = found[0]["rel_l2"] > HOPELESS * all_rows[0]["rel_l2"]
            if n_worse == 2 or is_hopeless:  # two: the step is limited by stability by now
                break
    for batch in batches:
        measure_in_turn(question, contenders(all_rows, batch), 10 * patience)
    return all_rows


def by_grid(some: Sequence[Setting]) -> list[list[Setting]]:
    """Settings of one grid and precision together, from the coarsest grid to the finest, single precision first."""
    groups: dict[tuple[int, bool], list[Setting]] = {}
    for setting in some:
        groups.setdefault((setting.n, setting.dtype == torch.float64), []).append(setting)
    return [groups[key] for key in sorted(groups)]


def contenders(rows: Sequence[Row], batch: int) -> list[Row]:
    """The surrogate, the solver that makes the data, and the fastest settings that are at least as accurate."""
    here = [row for row in rows if row["batch"] == batch]
    ours = next(row for row in here if row["who"] == "surrogate")
    reference = next(row for row in here if row["who"] == "reference")
    as_good = [row for row in here if row["who"] == "solver" and row["rel_l2"] <= ours["rel_l2"]]
    return [ours, reference, *sorted(as_good, key=lambda row: row["seconds"])[:N_CANDIDATES]]


def measure_in_turn(question: Question, rows: Sequence[Row], patience: float) -> None:
    """Measure some rows again, round by round, and replace their seconds."""
    by_label = {setting.label: setting for setting in settings(question.system)}
    is_ours = [row["who"] == "surrogate" for row in rows]
    runs = [
        question.surrogate() if ours else question.solver(by_label[row["setting"]])
        for row, ours in zip(rows, is_ours, strict=True)
    ]
    batch = rows[0]["batch"]
    used: list[list[float]] = [[] for _ in rows]
    began = time.perf_counter()
    for i in range(N_ROUNDS):
        for seconds, run in zip(used, runs, strict=True):
            seconds.append(question.time(run, question.part(i, batch)))
        if time.perf_counter() - began > patience:
            break
    for row, seconds in zip(rows, used, strict=True):
        row.update(seconds=statistics.median(seconds) / batch, in_turn=True)


# ---- what the numbers say ----------------------------------------------------------------------------------------
def front(rows: Sequence[Row]) -> list[Row]:
    """The settings that no other one beats in both error and seconds, from slow to fast."""
    kept: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["seconds"], row["rel_l2"])):
        if not kept or row["rel_l2"] < kept[-1]["rel_l2"]:
            kept.append(row)
    return kept[::-1]


def verdict(rows: Sequence[Row], batch: int) -> str:
    """At equal error, who is faster and by how much: one sentence on one model and batch size."""
    ours, rival, reference = finalists(rows, batch)
    ratio = rival["seconds"] / ours["seconds"]
    if ours["rel_l2"] >= min(1.0, ours["repeat_first"]):
        still = f"all zeros have 100 %, and repeating the first frame {100 * ours['repeat_first']:.3g} %"
        return f"{ours['model']}, batch {batch}: the surrogate's error, {_percent(ours)}, makes it useless; {still}."
    start = f"{ours['model']}, batch {batch}: at an error of {_percent(ours)} the surrogate is "
    other = f"the fastest solver setting that is at least as accurate ({rival['setting']}: {_percent(rival)})"
    if ratio >= 1:
        end = f"{_times(ratio)} faster than {other}"
    else:
        end = f"{_times(1 / ratio)} slower than {other}: the solver dominates"
        if ours["has_closed_form"]:
            end += ", because its solution is a closed form"
    made = reference["seconds"] / ours["seconds"]
    compared = f"{_times(made)} faster" if made >= 1 else f"{_times(1 / made)} slower"
    return f"{start}{end}; it is {compared} than the solver that makes the data."


def _times(ratio: float) -> str:
    return f"{ratio:.0f} times" if ratio >= 10 else f"{ratio:.2g} times"


def _percent(row: Row) -> str:
    return f"{100 * row['rel_l2']:.3g} %"


def draw(rows: Sequence[Row], where: str) -> Any:
    """One panel per model: every setting a dot, the best of them joined, the surrogate a star."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    n_columns = min(3, len(models))
    n_rows = -(-len(models) // n_columns)
    figure = new_figure(4.6 * n_columns, 0.4 + 3.6 * n_rows, "constrained")
    figure.suptitle(f"Forecast of a trajectory: error against seconds, {where}", fontsize=NORMAL)
    panels = figure.subplots(n_rows, n_columns, squeeze=False).flat
    for panel, model in itertools.zip_longest(panels, models):
        if model is None:
            panel.set_visible(False)
            continue
        own = [row for row in rows if row["model"] == model]
        for colour, batch in zip(itertools.cycle(COLOURS), dict.fromkeys(row["batch"] for row in own), strict=False):
            here = [row for row in own if row["batch"] == batch]
            solver = [row for row in here if row["who"] != "surrogate"]
            panel.plot(*_points(solver), "o", color=colour, markersize=2.5, alpha=0.35)
            panel.plot(*_points(front(solver)), "-", color=colour, linewidth=1.4, label=f"solver, batch {batch}")
            surrogate = [row for row in here if row["who"] == "surrogate"]
            style: dict[str, Any] = {"markersize": 13, "markeredgecolor": "black", "markeredgewidth": 0.7}
            panel.plot(*_points(surrogate), "*", color=colour, label=f"surrogate, batch {batch}", **style)
        panel.set(xscale="log", yscale="log", title=model)
        panel.xaxis.set_minor_formatter(NullFormatter())  # its labels would overlap
        panel.set_xlabel("seconds per trajectory", fontsize=NORMAL)
        panel.set_ylabel("relative L2 error", fontsize=NORMAL)
        panel.title.set_fontsize(NORMAL)
        panel.tick_params(labelsize=SMALL)
        panel.grid(color="#dddddd", linewidth=0.5)
        panel.legend(fontsize=SMALL, frameon=False)
    return figure


def _points(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return [row["seconds"] for row in rows], [max(row["rel_l2"], FLOOR) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, help="run or model folders, or names of shipped models")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--n", type=int, default=32, help="test trajectories")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--patience", type=float, default=1.0, help="seconds for the repeats of one measurement")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds per model; then no finer grid is tried")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    if min(args.batches) < 1 or max(args.batches) > args.n:
        parser.error(f"batches must be from 1 to n = {args.n}, got {args.batches}")
    device = pick_device(args.device)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    load_average = round(os.getloadavg()[0], 1)  # more than the threads used: others were at work too
    report: dict[str, Any] = {"device": where, "torch": torch.__version__, "load": load_average}
    report |= {"weights_sha256": {}, "rows": [], "verdicts": []}
    for name in args.models:
        label = Path(name).name
        model = load(name, str(device))
        report["weights_sha256"][label] = model.details["weights_sha256"]
        rows = measure(Question(model, args.n), label, args.batches, args.patience, args.limit)
        report["rows"] += rows
        report["verdicts"] += [verdict(rows, batch) for batch in args.batches]
        if args.out:
            write_json(args.out, report)
        if args.plot:
            pictures.save(lambda: draw(report["rows"], where), args.plot)
    print(forecast_table(report))


if __name__ == "__main__":
    main()
