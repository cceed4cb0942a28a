"""The record that all results share: committed files are read whole, and what is wrong with one is said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pdejepa.evaluate.evaluations import Evaluation
from pdejepa.evaluate.record import METHOD, Record, SplitErrors, parse, to_plain
from pdejepa.studies.ablate.ablation_record import Ablation
from pdejepa.studies.compare.comparison_records import SolverRecord

ROOT = Path(__file__).parents[3]
KINDS: dict[str, type] = {
    **dict.fromkeys(map(str, ROOT.glob("results/*-s[0-9]*.json")), Evaluation),
    **dict.fromkeys(map(str, ROOT.glob("lab/data/*/*.json")), Evaluation),
    **dict.fromkeys(map(str, ROOT.glob("results/compare/*.json")), SolverRecord),
    **dict.fromkeys(map(str, ROOT.glob("lab/data/classical/*.json")), SolverRecord),
    **dict.fromkeys(map(str, ROOT.glob("results/ablate-*.json")), Ablation),
}
OTHERS = ("train-h200", "lab/data/laptop/")  # of other commands
KINDS = {path: kind for path, kind in sorted(KINDS.items()) if not any(other in path for other in OTHERS)}


def filled(plain: Any) -> Any:
    """Plain data without keys that have nothing to tell, and with the solver that older evaluations do not name."""
    if isinstance(plain, list):
        return [filled(value) for value in plain]
    if not isinstance(plain, dict):
        return plain
    found = {key: filled(value) for key, value in plain.items() if value not in (None, {}, [])}
    return {"solver": METHOD, **found} if "observed_frames" in found else found


@pytest.mark.parametrize("path", KINDS, ids=lambda path: str(Path(path).relative_to(ROOT)))
def test_committed_records_are_read_and_written_whole(path: str) -> None:
    plain = json.loads(Path(path).read_text())
    added = {"variant": "", "source": "generated"}  # keys of the newer files
    written = filled(to_plain(parse(KINDS[path], plain)))
    if KINDS[path] is SolverRecord and "variant" not in plain:
        written.pop("variant")
        for errors in written["errors"].values():
            assert errors.pop("source") == added["source"]
    assert written == filled(plain)


def test_there_are_committed_records() -> None:
    if (ROOT / "results").is_dir():
        assert {kind.__name__ for kind in KINDS.values()} == {"Evaluation", "SolverRecord", "Ablation"}


ERRORS = {"rel_l2": 0.1, "rel_l2_joint": None, "n": 3}


def test_a_record() -> None:
    record = parse(Record, {"system": "heat", "seed": 3, "errors": {"test": ERRORS}})
    assert record == Record(system="heat", seed=3, errors={"test": SplitErrors(0.1, None, 3)})
    assert record.solver == METHOD
    plain = to_plain(record)
    assert plain["errors"] == {"test": {"rel_l2": 0.1, "rel_l2_joint": None, "n": 3, "source": "generated"}}
    assert "file" not in plain


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"system": "tokamak"}, "unknown system 'tokamak'"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"seed": 1.0}, "seed: must be an integer"),
        ({"sead": 1}, "sead: unknown key, did you mean 'seed'?"),
        ({"commit": "a\nb"}, "commit has letters that do not print"),
        ({"errors": {"test": {**ERRORS, "n": -1}}}, "n must be 0 or more"),
        ({"errors": {"test": {**ERRORS, "rel_l2": float("inf")}}}, "rel_l2 must be a finite number or null"),
        ({"errors": {"test": {**ERRORS, "per_frame": [0.1, -0.1]}}}, "per_frame must be 0 or more"),
        ({"errors": {"test": {**ERRORS, "per_frame": 3}}}, "per_frame must be a list"),
        ({"errors": {"test": {**ERRORS, "per_channel": {"u": "x"}}}}, "per_channel key 'u' must be a finite number"),
        ({"errors": {"test": {**ERRORS, "per_frame": [0.1] * 100_001}}}, "per_frame must have at most 100,000 numbers"),
        ({"errors": {"a b": ERRORS}}, "'a b' is not the name of a split"),
        ({"errors": []}, "errors: must be a group of keys"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"^[^\n]*{re.escape(why)}[^\n]*$"):
        parse(Record, {"system": "heat", "seed": 3, "errors": {"test": ERRORS}, **changes})
