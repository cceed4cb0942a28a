"""Evaluations are read back as they were written; what is none is named and left out."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pdejepa.core.errors import DataError
from pdejepa.evaluate.evaluations import (
    brief_errors,
    counted,
    evaluation_table,
    larger,
    make_record,
    parse_evaluation,
    read_evaluations,
    shipped_evaluations,
    write_evaluation,
)
from pdejepa.evaluate.protocol import evaluate
from pdejepa.evaluate.record import SplitErrors
from tests.unit.evaluate import made
from tests.unit.forecast import tiny

NUMBERS = {"rel_l2": 0.2, "rel_l2_joint": 0.1, "n": 2, "n_unstable": 1, "source": "generated"}
ERRORS = {"test": SplitErrors(0.2, 0.1, 2, n_unstable=1, per_frame=(0.1, None))}


def test_what_evaluate_writes_is_read(tmp_path: Path) -> None:
    written = make_record(tiny.forecaster("heat"), ERRORS)
    write_evaluation(written, tmp_path / "heat-tiny-s3.json")
    found = read_evaluations(tmp_path)
    assert found.skipped == ()
    (record,) = found.records
    assert record == replace(written, file="heat-tiny-s3.json")
    kind = (record.system, record.solver, record.recipe, record.variant, record.polish, record.seed)
    assert kind == ("heat", "pdejepa", "tiny", "physics", False, 3)
    assert (record.observed_frames, record.seconds["total"], record.device, record.weights_bytes) == (1, 1.5, "cpu", 0)
    assert record.errors == ERRORS
    assert record.source == ""


def test_the_keys_of_a_file(tmp_path: Path) -> None:
    """Other programs read them."""
    model = tiny.forecaster("advection")
    model.details.update(weights_sha256="abc", weights_bytes=7, data_hash="d", commit="c", torch="2", polish=True)
    record = make_record(model, evaluate(model, ["test"], n=2))
    write_evaluation(record, tmp_path / "r.json")
    plain = json.loads((tmp_path / "r.json").read_text())
    words = "system solver recipe variant polish seed observed_frames errors seconds device torch commit data_hash"
    assert set(plain) == {*words.split(), "weights_sha256", "weights_bytes"}
    errors = "rel_l2 rel_l2_joint rel_l2_all_frames median last_frame per_channel per_frame repeat_first n n_unstable"
    assert set(plain["errors"]["test"]) == {*errors.split(), "trajectories", "source"}
    assert list(plain["seconds"]) == ["data", "pretrain", "align", "dynamics", "decode", "polish", "total"]
    assert parse_evaluation(plain) == record
    brief = brief_errors(record.errors)["test"]
    assert set(plain["errors"]["test"]) - set(brief) == {"trajectories", "per_frame"}
    assert brief["rel_l2"] == record.errors["test"].rel_l2


def test_splits_of_the_same_forecasts_are_kept(tmp_path: Path) -> None:
    path, first = tmp_path / "r.json", replace(made.record(errors={"test": 0.1}), weights_sha256="abc")
    second = replace(first, errors={"ood": first.errors["test"]})
    write_evaluation(first, path)
    write_evaluation(second, path)
    assert set(json.loads(path.read_text())["errors"]) == {"test", "ood"}
    write_evaluation(replace(second, weights_sha256="of another model"), path)
    assert set(json.loads(path.read_text())["errors"]) == {"ood"}
    path.write_text("no record")
    write_evaluation(first, path)
    assert set(json.loads(path.read_text())["errors"]) == {"test"}


def test_fewer_trajectories() -> None:
    known = counted({"test": made.record().errors["test"], "ood": {"n": 7}, "odd": 3, "none": {"n": "x"}})
    assert known == {"test": 120, "ood": 7}
    assert larger(known, {"test": 120, "ood": 7, "new": 1}) == ""
    assert larger(known, {"test": 119}) == "120 trajectories of test"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "heat-paper-s0.json"),
        ({"variant": "geo", "seed": 2}, "heat-paper-geo-s2.json"),
        ({"polish": True}, "heat-paper-polish-s0.json"),
        ({"polish": True, "variant": "direct"}, "heat-paper-direct-polish-s0.json"),
        ({"recipe": "../../x y"}, "heat-.._.._x_y-s0.json"),
    ],
)
def test_names_of_files(changes: dict[str, Any], name: str) -> None:
    assert made.record("heat", **{"recipe": "paper", **changes}).file_name == name


def test_the_table() -> None:
    keys = ("rel_l2", "rel_l2_all_frames", "rel_l2_joint", "median", "last_frame")
    one = SplitErrors(**dict.fromkeys(keys, 0.1234), repeat_first=0.9, n=1200, n_unstable=3)
    lines = evaluation_table(replace(made.record(), errors={"test": one, "ood": replace(one, rel_l2=None)})).text()
    head, test, ood, _ = lines.splitlines()
    assert " ".join(head.split()) == "split n rel L2* median last frame all frames repeat first unstable"
    assert test.split() == ["test", "1,200", "12.3%", "12.3%", "12.3%", "12.3%", "90%", "3"]
    assert ood.split()[2] == "-"


def test_the_judged_metric_comes_first_and_every_column_is_explained() -> None:
    others = dict.fromkeys(("median", "last_frame", "rel_l2_all_frames"), 0.2)
    one = SplitErrors(rel_l2=0.3, rel_l2_joint=0.1, **others, n=4, n_unstable=0)
    head, row, note = evaluation_table(replace(made.record("gray_scott"), errors={"test": one})).text().splitlines()
    assert head.split()[2:5] == ["joint*", "rel", "L2"]
    assert row.split()[2:4] == ["10%", "30%"]
    for name in ("joint*", "rel L2", "median", "last frame", "all frames", "repeat first", "unstable"):
        assert f"{name}: " in note


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "no record"),
        ('{"rows": []}', "no record"),
        (json.dumps({"errors": {}}), "system: required, but not given"),
        (json.dumps({**made.plain(), "system": "tokamak"}), "unknown system 'tokamak'"),
        (json.dumps({**made.plain(), "system": ["heat"]}), "system: must be text"),
        (json.dumps({**made.plain(), "variant": "magic"}), "variant: must be one of physics, geo"),
        (json.dumps({**made.plain(), "seed": "0"}), "seed: must be an integer"),
        (json.dumps({**made.plain(), "seed": True}), "seed: must be an integer"),
        (json.dumps({**made.plain(), "observed_frames": 0}), "observed_frames must be 1 or more, got 0"),
        (json.dumps({**made.plain(), "errors": {"test": 3}}), "errors: key 'test' must be a group of keys"),
        (json.dumps(made.plain(errors={"test": float("nan")})), "rel_l2 must be a finite number or null"),
        (json.dumps(made.plain(errors={"test": -1.0})), "rel_l2 must be 0 or more"),
        (json.dumps({**made.plain(), "seed": 2**63}), "seed must be 0 or more and below 9.22e+18"),
        (json.dumps({**made.plain(), "sede": 1}), "sede: unknown key, did you mean 'seed'?"),
        (json.dumps({**made.plain(), "errors": {"test": {**NUMBERS, "rel_l3": 1}}}), "has an unknown key rel_l3"),
        (json.dumps({**made.plain(), "errors": {"test": {"rel_l2": 0.1, "n": 3}}}), "lacks the key rel_l2_joint"),
        (json.dumps({**made.plain(), "errors": {"<b>": NUMBERS}}), "'<b>' is not the name of a split"),
        (json.dumps({**made.plain(), "seconds": {"total": 10**400}}), "must be a finite number"),
        (json.dumps(made.plain(device="GPU\x1b[31m")), "device has letters that do not print"),
        (json.dumps({**made.plain(), "seconds": {"total": "long"}}), "seconds: key 'total' must be a finite number"),
    ],
)
def test_what_is_no_record_is_named(tmp_path: Path, content: str, why: str) -> None:
    made.write(tmp_path, made.plain())
    (tmp_path / "bad.json").write_text(content)
    found = read_evaluations(tmp_path)
    assert [record.file for record in found.records] == ["combined-fast-s0.json"]
    assert len(found.skipped) == 1
    assert found.skipped[0][0] == "bad.json"
    assert why in found.skipped[0][1]


def test_other_things_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")  # reading it would wait for ever
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "notes.txt").write_text("no JSON")
    (tmp_path / ".hidden.json").write_text("no JSON")
    found = read_evaluations(tmp_path)
    assert found.records == ()
    names = ["binary.json", "folder.json", "gone.json", "pipe.json"]
    assert [name for name, _ in found.skipped] == names


def test_a_copy_does_not_count_twice(tmp_path: Path) -> None:
    content = made.plain(errors={"test": 0.01})
    made.write(tmp_path, content, "a.json")
    made.write(tmp_path, content, "b.json")
    found = read_evaluations(tmp_path)
    assert [record.file for record in found.records] == ["a.json"]
    assert found.skipped == (("b.json", "the same forecasts as a.json"),)


def test_two_records_of_one_model_become_one(tmp_path: Path) -> None:
    for name, errors in (("a.json", {"test": 0.01}), ("b.json", {"test": 0.02, "ood": 0.03})):
        made.write(tmp_path, {**made.plain(errors=errors), "weights_sha256": "9c1e"}, name)
    found = read_evaluations(tmp_path)
    assert found.skipped == ()
    (record,) = found.records
    assert {split: errors.rel_l2 for split, errors in record.errors.items()} == {"test": 0.01, "ood": 0.03}


def test_other_data_are_another_kind(tmp_path: Path) -> None:
    content: dict[str, Any] = made.plain()
    made.write(tmp_path, content, "a.json")
    content["errors"]["test"]["source"] = "/somewhere/else/mine"
    made.write(tmp_path, content, "b.json")
    assert [record.source for record in read_evaluations(tmp_path).records] == ["", "mine"]


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_folders_that_are_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="give the folder that holds the records"):
        read_evaluations(tmp_path / name)


def test_shipped_models_tell_their_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / package)
    root = tmp_path / "pdejepa" / "checkpoints"
    tiny.saved("wave_b", root / "wave", {"errors": {"test": NUMBERS}, "polish": True}, history=2)
    (root / "broken").mkdir()
    (root / "broken" / "config.json").write_text("{")
    found = shipped_evaluations()
    (record,) = found.records
    assert (record.file, record.system, record.observed_frames, record.polish) == ("wave", "wave_b", 2, True)
    assert record.errors["test"].rel_l2 == 0.2
    assert record.errors["test"].per_frame == ()
    assert record.weights_bytes == (root / "wave" / "weights.safetensors").stat().st_size
    assert len(found.skipped) == 1
    assert found.skipped[0][0] == "broken"
