"""Records of comparisons from anywhere: what is damaged is named, and nothing is believed by its name alone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pdejepa import systems
from pdejepa.app.cli import main
from pdejepa.baselines.pool import build_pool
from pdejepa.core.errors import ConfigError, DataError, Interrupted
from pdejepa.core.files import lock
from pdejepa.forecast.interface import Forecast
from pdejepa.studies.compare import comparison, judgement
from pdejepa.studies.compare.comparison import compare
from pdejepa.studies.compare.comparison_records import SolverRecord, read_record, read_records
from pdejepa.studies.compare.comparison_tables import caveats, groups, rows
from pdejepa.studies.compare.competitors import MethodEntry, longest_history
from pdejepa.studies.compare.turns import Comparison, Turn, chosen
from pdejepa.training.budget import TotalBudget, Unit
from tests.unit.studies.compare.records_made import answer, made, read, record

CPU = torch.device("cpu")
GOOD = {"rel_l2": 0.1, "rel_l2_joint": 0.1, "tail": 0.1, "n": 3}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cannot be read (damaged: not JSON)"),
        (b'{"solver": "fno", ', "cannot be read (damaged: not JSON)"),
        (b"\xff\xfe\x00", "cannot be read (damaged: not JSON)"),
        (record("nobody", 0.1), "unknown solver 'nobody'"),
        (record("fno", 0.1, "burger"), "unknown system 'burger'"),
        (record("fno", 0.1, errors={}), "no errors of test"),
        (record("fno", float("nan")), "rel_l2 must be a finite number"),
        (record("fno", -0.1), "rel_l2 must be 0 or more"),
        (record("fno", 0.1, errors={"test": 3}), "errors: key 'test' must be a group of keys"),
        (record("fno", 0.1, errors={"test": {**GOOD, "tail": None}}), "test lacks tail"),
        (record("fno", 0.1, steps={"fit": "many"}), "steps: key 'fit' must be an integer"),
        (record("fno", 0.1, title=None), "title: must be text"),
        (record("fno", 0.1, title="FNO\n|x"), "title has letters that do not print"),
        (record("fno", 0.1, seed="0"), "seed: must be an integer"),
        (record("fno", 0.1, seed=True), "seed: must be an integer"),
        (record("fno", 0.1, seconds=10**400), "seconds: must be a finite number"),
        (record("fno", 0.1, seconds="x", steps={"seconds": 1}), "seconds: must be a finite number"),
        (record("fno", 0.1, errors={"test": {**GOOD, "n": "x"}}), "n must be an integer"),
        (record("fno", 0.1, errors={"test": GOOD, "a\n<b>": GOOD}), "errors has letters that do not print"),
        (record("fno", 0.1, errors={"test": GOOD, "a <b>": GOOD}), "'a <b>' is not the name of a split"),
        (record("fno", 0.1, budget_seconds=0), "budget_seconds must be above 0"),
        (record("fno", 0.1, commit=3), "commit: must be text"),
        (record("fno", 0.1, data_hash=[1]), "data_hash: must be text"),
        (record("fno", 0.1, errors={"test": {**GOOD, "repeat_first": "x"}}), "repeat_first must be a finite number"),
    ],
)
def test_damaged_records_are_named(content: Any, why: str, tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(DataError) as caught:
        read_records([tmp_path])
    assert str(path) in str(caught.value)
    assert why in str(caught.value)
    assert "Remove it" in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "null", "{}", '{"solver": "fno"}'])
def test_other_files_are_left_out(content: str, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text(content)
    assert read_record(tmp_path / "notes.json") is None


@pytest.mark.parametrize(
    "changes", [{"solver": "cape"}, {"seed": 7}, {"budget_seconds": 90.0}, {"size": "tiny"}, {"recipe": "tiny"}]
)
def test_a_record_is_what_its_name_promises(changes: dict[str, Any], tmp_path: Path) -> None:
    plan = Comparison("combined", ("fno",), TotalBudget("seconds", 180.0), tmp_path)
    path = tmp_path / f"{plan.name('fno', 0)}.json"
    path.write_text(json.dumps(record("fno", 0.1)))
    assert [one.solver for one in compare(plan, str)] == ["fno"]
    path.write_text(json.dumps({**record("fno", 0.1), **changes}))
    with pytest.raises(ConfigError, match="is not the record that its name promises"):
        compare(plan, str)


# ---- what is asked -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--recipe", "tinny"], "unknown recipe 'tinny', did you mean 'tiny'?"),
        (["--size", "tinyy"], "unknown size 'tinyy', did you mean 'tiny'?"),
        (["--size", "medium"], "unknown size 'medium'. Sizes: tiny, small, laptop, paper."),
        (["--solvers", ","], "Expected names of solvers, or all; got none."),
        (["--budget", "100stops"], "--budget must be a time"),
        (["--budget", "9" * 400], "--budget must be a time"),
        (["--out", __file__], "--out must be a folder"),
        (["nosuch"], "nosuch"),
        (["--write", "README-without-marks.md"], "does not exist"),
    ],
)
def test_requests_are_refused_before_anything_is_made(
    words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(comparison, "_pool", lambda *_: pytest.fail("made data"))
    assert main(["compare", "combined", "--solvers", "fno", "--out", "out", *words]) in (2, 3)
    assert why in " ".join(capsys.readouterr().err.split())


def test_what_is_damaged_in_the_folder_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(comparison, "_pool", lambda *_: pytest.fail("made data"))
    (tmp_path / "notes.json").write_text("{bad")
    assert main(["compare", "combined", "--solvers", "fno", "--out", str(tmp_path)]) == DataError.exit_code
    assert "notes.json cannot be read" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("unit", "amount"), [("steps", "5000"), ("flops", "5e3")])
def test_records_of_other_budgets(unit: Unit, amount: str, tmp_path: Path) -> None:
    """They have names and tables of their own, and their seconds are no budget; one with two budgets is damaged."""
    timed = record("fno", 0.1)
    counted = {f"budget_{unit}": 5e3, **{key: value for key, value in timed.items() if key != "budget_seconds"}}
    plan = Comparison("combined", ("fno",), TotalBudget(unit, 5000), tmp_path)
    path = tmp_path / f"combined-fno-fast-paper-{amount}{unit}-s0.json"
    assert path.name == f"{plan.name('fno', 0)}.json"
    path.write_text(json.dumps(counted))
    (tmp_path / "timed.json").write_text(json.dumps(timed))
    assert [one.file for one in read_records([path])] == [str(path)]
    assert [one.seconds for one in compare(plan, str)] == [timed["seconds"]]
    tables = groups(read_records([tmp_path]))
    assert {title.partition(" each")[0] for title in tables} == {f"combined, {amount} {unit}", "combined, 180 s"}
    for title, group in tables.items():
        late = [replace(group[0], seconds=300.0)]
        assert any("beside the budget" in line for line in caveats(late)) == title.startswith("combined, 180 s")
    path.write_text(json.dumps({**counted, **timed}))
    with pytest.raises(DataError, match=f"it tells budget_seconds and budget_{unit}"):
        read_records([path])


def test_solvers_are_named_once() -> None:
    assert chosen(["fno", "cape", "fno"]) == ("fno", "cape")
    assert chosen(["fno", "all"]) == chosen(["all"])


def test_who_failed_is_told_by_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one(turn: Turn) -> SolverRecord:
        if turn.solver == "cape":
            raise RuntimeError("a mistake")
        return made(turn.solver, 0.1)

    monkeypatch.setattr(comparison, "_pool", lambda *_: object())
    monkeypatch.setattr(comparison, "_one", one)
    words = ["compare", "combined", "--solvers", "fno,cape", "--budget", "3min", "--recipe", "fast", "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path)]) == DataError.exit_code
    told = capsys.readouterr()
    assert "No record of cape on combined (seed 0): see above why." in told.err
    assert "FNO" in told.out
    assert (tmp_path / "combined-fno-fast-paper-180s-s0.json").exists()


def test_a_package_that_is_missing_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def stop(*_: Any) -> None:
        raise Interrupted("here data would be made")

    monkeypatch.setattr(comparison, "_pool", stop)
    monkeypatch.setattr(comparison.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Interrupted):
        compare(Comparison("combined", ("fno", "zebra"), TotalBudget("seconds", 180.0), tmp_path), said.append)
    assert said == ['Zebra will be left out, unless you stop and say: pip install "pdejepa[zebra]"']


def test_one_comparison_at_a_time_in_a_folder(tmp_path: Path) -> None:
    """Another one would remove what this one trains."""
    plan = Comparison("combined", ("fno",), TotalBudget("seconds", 180.0), tmp_path)
    (tmp_path / f"{plan.name('fno', 0)}.json").write_text(json.dumps(record("fno", 0.1)))
    code = (
        "import sys; from pathlib import Path\n"
        "from pdejepa.studies.compare.turns import Comparison; from pdejepa.studies.compare.comparison import compare\n"
        "from pdejepa.training.budget import TotalBudget\n"
        "plan = Comparison('combined', ('fno',), TotalBudget('seconds', 180.0), Path(sys.argv[1]))\n"
        "compare(plan, lambda line: print(line, flush=True))"
    )
    with lock(tmp_path):
        other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert "Another process" in other.stdout.readline()
        assert other.poll() is None
    assert other.wait(60) == 0


# ---- what a table says -------------------------------------------------------------------------------------------
def test_recipes_do_not_share_a_table() -> None:
    both = [made("fno", 0.1), made("fno", 0.2, recipe="tiny")]
    assert [len(group) for group in groups(both).values()] == [1, 1]


def test_seeds_are_told_apart() -> None:
    both = [made("fno", 0.1), made("fno", 0.2, seed=1), made("cape", 0.3)]
    assert [row[0] for row in rows(both)] == ["FNO, seed 0", "FNO, seed 1", "CAPE"]


def test_who_kept_no_budget_is_named() -> None:
    assert caveats([made("fno", 0.1, seconds=195.0)]) == []
    assert caveats([made("fno", 0.1, seconds=205.0)]) == ["More than 10% beside the budget: FNO 205 s."]


def test_a_mean_over_parameters_may_be_worse_than_the_first_frame() -> None:
    """Then it is about the best of nothing."""
    one = record("fno", 0.5, is_blind=True)
    one["errors"]["test"] |= {"repeat_first": 0.8, "blind": 0.9}
    assert [row[0] for row in rows([read(one)])] == ["FNO", "(the first frame again)"]
    one["errors"]["test"]["blind"] = 0.4
    assert "about the best" in rows([read(one)])[2][0]


def test_what_can_be_known_is_solved_for_only_where_somebody_is_blind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(comparison, "blind_error", lambda pool, split: asked.append(split))
    plan = Comparison("advection", ("cape", "fno"), TotalBudget("seconds", 1.0), tmp_path, size="tiny")
    for waiting in (("cape",), ("cape", "fno")):
        pool = comparison._pool(plan, waiting, str)
    assert asked == ["test", "ood"]
    assert pool.tail_from == longest_history(pool.task, "fast") == 5
    monkeypatch.setattr(comparison, "longest_history", lambda task, recipe: 10)  # as on HeterNS
    assert comparison._pool(plan, ("cape",), str).tail_from == 10
    known = record("fno", 0.1, "advection", data_hash=pool.data.hash)
    for split, value in (("test", 0.5), ("ood", 0.6)):
        known["errors"][split]["blind"] = value
    (tmp_path / "advection-fno.json").write_text(json.dumps(known))
    (tmp_path / "advection-damaged.json").write_text("{")
    assert comparison._pool(plan, ("fno",), str).floors == {"test": 0.5, "ood": 0.6}
    assert asked == ["test", "ood"]  # nor where a record tells it


def test_the_method_is_judged_from_one_frame_as_well() -> None:
    """Though its models of Wave-B observe two."""
    pool = build_pool(systems.get("wave_b"), {"train": 6, "valid": 2, "test": 2}, CPU)
    entry = MethodEntry("wave_b", "tiny", 0)
    assert entry.history == 2
    seen: list[int] = []

    def forecast(u: torch.Tensor, xi: torch.Tensor, n_frames: int, support: Any) -> Forecast:
        seen.append(u.shape[1])
        fields = torch.cat((u, u[:, :1].expand(-1, n_frames, -1, -1)), 1)
        return answer(fields)

    entry.forecast = forecast  # type: ignore[method-assign, assignment]
    pool.tail_from = 5
    found = judgement.judge(entry, pool, "test")
    assert seen == [1, 2]
    assert found["rel_l2"] == pytest.approx(found["repeat_first"])
