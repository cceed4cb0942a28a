"""Rows, ratios and verdicts, by numbers that can be checked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pdejepa import systems
from pdejepa.evaluate.against_paper import make_rows, make_targets, row_to_plain
from pdejepa.evaluate.evaluations import Evaluation
from pdejepa.evaluate.published import POOLS, PUBLISHED, ROWS
from pdejepa.evaluate.record import SplitErrors
from pdejepa.evaluate.result_tables import HEAD, cells, notes, results_table, short_table
from tests.unit.evaluate.made import record


def test_published_numbers_fit_the_systems() -> None:
    assert list(PUBLISHED) == [row.system for row in ROWS]
    for row in ROWS:
        system = systems.get(row.system)
        papers = [split for split in system.splits if split.is_ood and not split.is_ours]
        assert bool(row.ood) == bool(papers), row.system
        assert {name for split in row.ood for name in POOLS.get(split, (split,))} <= {split.name for split in papers}
        assert (row.metric == "rel_l2_joint") == (row.system == "gray_scott")
        assert 0 < row.id < 1
        assert 0 < row.other < 1
    worse = [row.system for row in ROWS if row.other < row.id]
    assert worse == ["advection"]  # the only system of these where another solver is ahead


def own(records: list[Evaluation], system: str) -> list[tuple[str, ...]]:
    rows = make_rows(records, ("fast",))
    return [cells(row) for row in rows if row.system.name == system]


def test_every_system_has_a_row() -> None:
    rows = make_rows([], ("fast",))
    assert [row.system.name for row in rows] == list(systems.NAMES)
    assert {row.what for row in rows} == {"no record"}
    heat = dict(zip(HEAD, cells(rows[2]), strict=True))
    assert heat["published"] == "0.0274"
    assert heat["best other solver"] == "Poseidon-T 0.0933"
    assert {heat[name] for name in ("test", "ratio", "ood", "published ood", "seconds", "weights", "machine")} == {"-"}


def test_a_row_by_hand() -> None:
    (line,) = own([record("combined", {"test": 0.0037, "ood": 0.016})], "combined")
    assert line == (
        "Combined equation",
        "fast",
        "four stages",
        "0.0037",
        "0.0074",
        "0.50",
        "0.0160",
        "0.008",
        "CAPE 0.0085",
        "300",
        "-",
        "36.6 MB",
        "NVIDIA H200",
    )


def test_gray_scott_is_judged_by_the_joint_norm() -> None:
    (line,) = own([record("gray_scott", {"test": 0.284, "ood": 0.66})], "gray_scott")
    assert line[0] == "Gray-Scott (joint)"
    assert line[3:7] == ("0.0284", "0.0284", "1.00", "0.0660")


def test_splits_of_our_own_are_marked() -> None:
    (line,) = own([record("heat", {"test": 0.1, "ood": 0.2})], "heat")
    assert line[6:8] == ("0.2000 (our split)", "-")
    errors = {"test": 0.1, "ood_viscosity_interp": 0.2, "ood_forcing": 0.3}
    (line,) = own([record("heterns", errors)], "heterns")
    told = "ood_viscosity_interp 0.2000; ood_forcing 0.3000"
    assert line[4:8] == ("0.0089", "11.24", told, "viscosity 0.011; forcing 0.103")


def test_a_published_number_may_take_two_splits_together() -> None:
    """Each weighted by its trajectories: 900 and 510 of them."""
    one = record("heterns", {"test": 0.1})
    parts = {
        "ood_viscosity_interp": SplitErrors(0.01, 0.01, 900, n_unstable=0),
        "ood_viscosity_extrap": SplitErrors(0.04, 0.04, 510, n_unstable=0),
    }
    rows = make_rows([replace(one, errors={**one.errors, **parts})], ("fast",))
    (row,) = (row for row in rows if row.system.name == "heterns")
    expected = (0.01 * 900 + 0.04 * 510) / 1410
    assert row.error("ood_viscosity").mean == pytest.approx(expected)
    states = {target.split: target for target in make_targets(rows) if target.published.system == "heterns"}
    assert states["ood_viscosity"].ratio == pytest.approx(expected / 0.011)
    assert states["ood_forcing"].ratio is None
    assert row_to_plain(row)["ood"]["ood_viscosity"]["published"] == 0.011
    assert short_table([row]).rows[0][3:5] == (f"viscosity {100 * expected:.3g}%", "viscosity 1.1%; forcing 10.3%")


def test_seeds_share_a_row() -> None:
    records = [record("heat", {"test": value}, seed=seed) for seed, value in enumerate((0.1, 0.2, 0.6))]
    (line,) = own(records, "heat")
    assert line[2:4] == ("four stages, 3 seeds", "0.3000 (0.1000-0.6000)")
    assert line[5] == f"{0.3 / 0.0274:.2f}"
    twice = [record("heat", {"test": value}) for value in (0.1, 0.3)]
    assert own(twice, "heat")[0][2] == "four stages, 2 runs of 1 seed"


def test_kinds_have_rows_of_their_own() -> None:
    records = [
        record("wave_b", polish=True, observed_frames=2),
        record("wave_b", variant="geo"),
        record("wave_b", observed_frames=2),
        record("wave_b"),
        record("wave_b", recipe="tiny"),
    ]
    assert [line[2] for line in own(records, "wave_b")] == [
        "four stages, 1 frame observed",
        "four stages, 2 frames observed",
        "polished, 2 frames observed",
        "four stages, geo, 1 frame observed",
    ]
    assert own([record("heat")], "heat")[0][2] == "four stages"  # no choice, nothing to tell


def some(n: int, n_unstable: int = 0, source: str = "generated", error: float = 0.001) -> SplitErrors:
    return SplitErrors(error, error, n, n_unstable=n_unstable, source=source)


def changed(base: Evaluation, **errors: SplitErrors) -> Evaluation:
    return replace(base, errors=errors)


def test_what_is_not_whole_says_so() -> None:
    base = record("heat")
    kinds = {
        "four stages, 40 of 120 test trajectories, 2 unstable": changed(base, test=some(40, 2)),
        "four stages, 5 of 120 ood trajectories": changed(base, test=some(120), ood=some(5)),
        "four stages, on mine": changed(base, test=some(120, source="mine")),
    }
    for words, one in kinds.items():
        assert own([one], "heat")[0][2] == words


def test_targets_met_and_missed() -> None:
    records = [
        record("combined", {"test": 0.0097, "ood": 0.0402}),
        record("combined", {"test": 0.0057, "ood": 0.0293}, polish=True),
        record("advection", {"test": 0.0074}),
        record("heat", {"test": 0.03425}),
        record("gray_scott", {"test": 0.1}),
    ]
    rows = make_rows(records, ("fast",))
    targets = make_targets(rows)
    assert len(targets) == 15
    state = {(target.published.system, target.split): target for target in targets}
    assert state["combined", "test"].is_met
    assert state["combined", "ood"].ratio == pytest.approx(0.0293 / 0.008)
    assert not state["combined", "ood"].is_met
    assert state["advection", "test"].is_met  # as good counts
    assert not state["burgers", "test"].is_met
    assert notes(rows, targets)[0] == (
        "Published numbers met: 3 of 15. Missed: Heat test, Combined equation ood. Not measured: Gray-Scott ood. "
        "No record: Burgers, Wave-B, Vorticity, HeterNS, Wave-2D."
    )


def test_a_hair_above_is_missed() -> None:
    (target, *_) = make_targets(make_rows([record("advection", {"test": 0.0074000001})], ("fast",)))
    assert target.ratio is not None
    assert not target.is_met


def test_part_of_a_split_and_other_data_do_not_win() -> None:
    whole = record("heat", {"test": 0.05})
    part = changed(record("heat", polish=True), test=some(10))
    other = changed(record("heat", variant="geo"), test=some(120, source="mine"))
    targets = {t.published.system: t for t in make_targets(make_rows([whole, part, other], ("fast",)))}
    row = targets["heat"].row
    assert row is not None
    assert row.records == (whole,)
    only = {t.published.system: t for t in make_targets(make_rows([part], ("fast",)))}["heat"]
    assert only.is_met
    assert only.row is not None
    assert "10 of 120 test trajectories" in only.row.what
    assert {t.published.system: t for t in make_targets(make_rows([other], ("fast",)))}["heat"].row is None


def test_errors_that_are_not_known() -> None:
    unknown = changed(record("heat"), test=SplitErrors(None, None, 120, n_unstable=0))
    (line,) = own([unknown], "heat")
    assert line[3:6] == ("-", "0.0274", "-")
    rows = make_rows([unknown], ("fast",))
    assert "Not measured: Heat test." in notes(rows, make_targets(rows))[0]


def test_rows_as_plain_data() -> None:
    rows = make_rows([record("heat", {"test": v, "ood": 0.5}, seed=s) for s, v in ((1, 0.1), (4, 0.2))], ("fast",))
    plain = {row["system"]: row for row in map(row_to_plain, rows)}
    heat = plain["heat"]
    assert heat["test"] == {"mean": pytest.approx(0.15), "low": 0.1, "high": 0.2, "n": 2}
    assert heat["seeds"] == [1, 4]
    assert heat["ratio"] == pytest.approx(0.15 / 0.0274)
    assert heat["ood"]["ood"]["is_ours"] is True
    assert heat["published_ood"] is None
    assert plain["combined"]["seeds"] == []
    assert plain["combined"]["published_ood"] == 0.008
    assert plain["vorticity"]["other"] == {"name": "LNS", "error": 0.0592}


def test_markdown_cannot_be_broken_by_a_record() -> None:
    rows = make_rows([record("heat", device="a|b <!-- end results --> `c`")], ("fast",))
    text = results_table(rows, make_targets(rows)).markdown()
    (line,) = [line for line in text.splitlines() if line.startswith("| Heat")]
    assert line.replace("\\|", "").count("|") == len(HEAD) + 1
    assert "<!--" not in text


def test_scatter_counts_environments() -> None:
    """Twelve of ten equal trajectories each, with the errors 0, 1, ... 11: the mean is known to sqrt(143)/12."""
    base = record(errors={"ood": 5.5})
    found = replace(base.errors["ood"], trajectories=tuple(float(row % 12) for row in range(120)))
    (row,) = (r for r in make_rows([changed(base, ood=found)], "fast") if r.records)
    assert row.scatter("ood") == pytest.approx(math.sqrt(143) / 12)
    assert cells(row)[HEAD.index("ood")] == "5.5000 ± 0.9965"
    assert "±: standard error" in results_table([row], []).markdown()
    (bare,) = (r for r in make_rows([base], "fast") if r.records)
    assert bare.scatter("ood") is None
    assert cells(bare)[HEAD.index("ood")] == "5.5000"


def test_scatter_is_not_told_of_another_metric() -> None:
    base = record("gray_scott", errors={"test": 0.1})
    found = replace(base.errors["test"], trajectories=tuple(float(row) for row in range(1200)))
    (row,) = (r for r in make_rows([changed(base, test=found)], "fast") if r.records)
    assert row.scatter("test") is None
