"""Example forecasts of the finished model beside the solver: one inside the training ranges, one outside.

The trajectories are the first of `test` and the first of the out-of-distribution splits that lies outside the
measured training ranges (some of those splits begin at the border, or between values that were trained on).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from pdejepa.core.text import percent
from pdejepa.data.well.reader import Dataset
from pdejepa.evaluate.cases import Case, find_case, forecast_errors
from pdejepa.evaluate.truth import case_of, has_system, trained_on
from pdejepa.forecast.forecaster import Forecaster, load
from pdejepa.forecast.support import judge

N_TRIED = 6  # environments of a split, when looking for one outside
MAX_BYTES = 400_000  # of one picture
RESOLUTIONS = (130, 100, 80, 60)  # dots per inch, tried until the picture is small enough


@dataclass(frozen=True)
class Example:
    """A forecast in words and as a PNG picture."""

    title: str
    sentences: tuple[str, ...]
    picture: bytes


def make_examples(folder: Path, say: Callable[[str], object]) -> Iterator[Example]:
    """Forecasts with the model in `folder`; PdejepaError if it cannot be used."""
    forecaster = load(folder)
    for case in _stored(forecaster) if not has_system(forecaster) else _solvable(forecaster):
        say(f"Forecasting {'and solving ' * (case.state is not None)}{case.split} {case.index} for the page ...")
        yield _example(forecaster, case)


def _stored(forecaster: Forecaster) -> list[Case]:
    """The first trajectories of test and ood in the data of the training."""
    with Dataset.open(trained_on(forecaster)) as data:
        names = [name for name in data.splits if name == "test" or name.startswith("ood")]
    return [case_of(forecaster, f"{name}:0", {}) for name in names[:2]]


def _solvable(forecaster: Forecaster) -> list[Case]:
    system = forecaster.system
    names = [split.name for split in system.splits if split.name == "test"]
    inside = [find_case(f"{name}:0", system, {}, forecaster.device) for name in names]
    return [*inside, *_outside(forecaster)]


def _outside(forecaster: Forecaster) -> list[Case]:
    """The first case outside the training ranges; if none is found, the first out of distribution; none if none is."""
    system, ranges = forecaster.system, forecaster.surrogate.statistics.ranges
    first: list[Case] = []
    for split in system.splits:
        for index in range(min(N_TRIED, split.n_environments) if split.is_ood else 0):
            case = find_case(f"{split.name}:{index}", system, {}, forecaster.device)
            first = first or [case]
            if not judge(system.named(case.xi), ranges, 1, 1).is_inside:
                return [case]
    return first


def _example(forecaster: Forecaster, case: Case) -> Example:
    problem, n_observed = forecaster.problem, forecaster.surrogate.history
    truth = case.truth(problem.times)
    fields = truth.fields[None]  # (1,T,C,*grid)
    result = forecaster.forecast(fields[:, :n_observed], case.xi.cpu())
    figure = result.plot(truth=truth.fields, title=f"{problem.title}, {case.split} {case.index}")
    errors = forecast_errors(result, truth)
    told = [
        f"Relative error {percent(errors.forecast)}; repeating the first frame {percent(errors.repeat)}.",
        *(result.support.sentences or ("Inside the training ranges.",)),
    ]
    if truth.outcome != "ok":
        told.append(f"The solve was {truth.outcome}.")
    if not result.is_stable:
        told.append(f"The forecast is {result.outcome[0].sentence}.")
    meaning = forecaster.system.split(case.split).meaning if has_system(forecaster) else "as stored"
    title = f"{case.split}, trajectory {case.index}: {meaning}"
    return Example(title, tuple(told), png(figure))


def png(figure: Figure) -> bytes:
    """The figure as PNG, as fine as MAX_BYTES allow."""
    encoded = b""
    for dpi in RESOLUTIONS:
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=dpi, metadata={"Software": None}, bbox_inches="tight", pad_inches=0.06)
        encoded = stream.getvalue()
        if len(encoded) <= MAX_BYTES:
            break
    return encoded
