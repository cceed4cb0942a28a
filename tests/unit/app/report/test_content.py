"""Run folders in every state are read; only folders that are not a run are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdejepa.app.report.content import LARGEST, number, read_run, series
from pdejepa.core.errors import CheckpointError
from tests.unit.app.report import folder


def test_a_finished_run(tmp_path: Path) -> None:
    content = read_run(folder.write_run(tmp_path / "run"))
    assert content.problems == ()
    assert content.is_done
    assert content.asked == ("pretrain", "align", "dynamics", "decode")
    assert content.system is not None
    assert content.system.name == "advection"
    decode = content.stages["decode"]
    assert (decode.n_planned, decode.n_done, decode.selected, decode.seconds) == (100, 100, 100, 70.0)
    assert content.valid_error == decode.score == pytest.approx(0.08)
    assert decode.loss == pytest.approx(0.04)
    assert series(decode.valid, "score") == ([40, 100], pytest.approx([0.2, 0.08]))
    assert content.stages["pretrain"].judged["rank"] == 20.0
    assert not content.stages["polish"].is_begun


def test_an_unfinished_run(tmp_path: Path) -> None:
    root = folder.write_run(tmp_path / "run", ("pretrain",))
    stage = folder.write_stage(root / "align", is_done=False, planned=500)
    with (stage / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 120, "train": {"lo')  # what a killed writer leaves is no damage
    content = read_run(root)
    assert content.problems == ()
    assert not content.is_done
    align = content.stages["align"]
    assert align.is_begun
    assert not align.is_done
    assert (align.n_done, align.n_planned, align.seconds) == (100, 500, 70.0)
    assert align.score == pytest.approx(0.02)
    assert content.valid_error is None


def test_damage_becomes_sentences(tmp_path: Path) -> None:
    root = folder.write_run(tmp_path / "run")
    (root / "pretrain" / "metrics.jsonl").write_bytes(b'\xff\xfe\n[]\n{"step": "x"}\n{"step": 3, "train": 7}\n')
    (root / "align" / "metrics.jsonl").unlink()
    (root / "dynamics" / "done.json").write_text("{")
    (root / "decode" / "plan.json").write_text("[" * 100_000)
    (root / "data.json").write_text("[]")
    content = read_run(root)
    told = "\n".join(content.problems)
    assert "pretrain/metrics.jsonl: 3 of 4 lines are damaged" in told
    assert "align/metrics.jsonl is missing" in told
    assert "dynamics/done.json cannot be read" in told
    assert "decode/plan.json cannot be read" in told
    assert "data.json cannot be read" in told
    assert content.stages["pretrain"].train == ({"step": 3},)
    assert not content.stages["dynamics"].is_done
    assert content.stages["decode"].is_done


ODD: list[object] = [
    None,
    3,
    [],
    {},
    {"system": 5},
    {"system": "nonsense"},
    {"stages": [[], 1]},
    {"system": "heat", "switches": {"n_points": 10**12}},
    {"system": "heat", "switches": {"no_such": 1}, "size": ["x"], "variant": []},
]


@pytest.mark.parametrize("train", ODD)
def test_any_configuration_is_survived(tmp_path: Path, train: object) -> None:
    root = folder.write_run(tmp_path / "run")
    folder.write(root / "config.json", {"train": train})
    content = read_run(root)
    assert content.stages["decode"].is_done
    assert content.system is None
    assert content.problems


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    folder.write(tmp_path / "other" / "config.json", {"name": "something else"})
    folder.write(tmp_path / "model" / "config.json", {"format": "pdejepa-model"})
    cases = {"nowhere": "no folder", "file": "is a file", "empty": "not a run", "other": "not a run"}
    cases["model"] = "is a model"
    for name, words in cases.items():
        with pytest.raises(CheckpointError, match=words) as caught:
            read_run(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_errors_of_model_and_records(tmp_path: Path) -> None:
    root = folder.write_run(tmp_path / "run")
    record = {"weights_sha256": "a", "errors": {"test": folder.errors(0.5), "ood": folder.errors(0.7), "bad": 3}}
    folder.write(root / "results" / "one.json", record)
    folder.write(root / "results" / "two.json", {"weights_sha256": "b", "errors": {"other": folder.errors()}})
    assert set(read_run(root).errors) == {"test", "ood", "other"}  # no model to compare with
    model = {"weights_sha256": "a", "errors": {"test": {"rel_l2": 0.4}}}
    folder.write(root / "model" / "config.json", model)
    errors = read_run(root).errors
    assert set(errors) == {"test", "ood"}
    assert errors["test"]["rel_l2"] == 0.4  # the model's own word counts
    assert errors["test"]["per_frame"]  # and the record adds what is too long for it


def test_polish_has_the_last_word(tmp_path: Path) -> None:
    root = folder.write_run(tmp_path / "run", ("pretrain", "align", "dynamics", "decode", "polish"))
    content = read_run(root)
    assert content.asked[-1] == "polish"
    assert content.valid_error == content.stages["polish"].score


def test_vanilla_needs_no_alignment(tmp_path: Path) -> None:
    root = folder.write_run(tmp_path / "run", ("pretrain", "dynamics", "decode"), variant="vanilla")
    content = read_run(root)
    assert content.asked == ("pretrain", "dynamics", "decode")
    assert content.is_done


def test_numbers() -> None:
    assert [number(x) for x in (1, 2.5, True, None, "3", [1])] == [1.0, 2.5, None, None, None, None]
    assert [number(x) for x in (float("nan"), float("inf"), 10**400, 2 * LARGEST)] == [None] * 4
    assert number(json.loads("-1e-3")) == -1e-3
