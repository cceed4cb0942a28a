"""Which runs answer which question, and what they share."""

from __future__ import annotations

import pytest

from pdejepa.core.errors import ConfigError, UsageError
from pdejepa.studies.ablate.runs import WHAT, Run, parse_what, run_config, runs_for, with_steps
from tests.unit.method.small_run import small_config

STEPS = {"pretrain": 3, "align": 4, "dynamics": 5, "decode": 6}


def names(*what: str, words: tuple[str, ...] = ()) -> list[str]:
    return [run.name for run in runs_for(what, small_config("advection", *words))]


def run_called(name: str) -> Run:
    return next(run for run in runs_for(WHAT, small_config()) if run.name == name)


def test_runs_of_each_question() -> None:
    assert names("variants") == ["physics", "geo", "vanilla"]
    assert names("geometry") == names("reconstruct") == ["physics"]
    assert names("integrators") == ["physics", "euler", "rk2", "rk8"]
    assert names("anchor") == ["physics", "no-anchor"]
    assert names(*WHAT) == ["physics", "geo", "vanilla", "euler", "rk2", "rk8", "no-anchor"]


def test_the_base_stands_for_its_own_integrator() -> None:
    assert names("integrators", words=("model.field.integrator=rk2",)) == ["physics", "euler", "rk4", "rk8"]


def test_parts() -> None:
    assert run_called("physics").parts == {"errors", "geometry", "rollouts", "reconstruct"}
    assert run_called("geo").parts == {"errors"}
    assert run_called("euler").parts == {"errors", "rollouts"}
    assert run_called("no-anchor").parts == {"errors", "geometry"}
    assert runs_for(["geometry"], small_config())[0].parts == {"geometry"}


@pytest.mark.parametrize(
    ("name", "shared", "trained"),
    [
        ("geo", ("pretrain", "align"), ("dynamics", "decode")),
        ("vanilla", ("pretrain",), ("dynamics", "decode")),
        ("euler", ("pretrain", "align"), ("dynamics", "decode")),
        ("no-anchor", ("pretrain",), ("align", "dynamics", "decode")),
        ("physics", (), ("pretrain", "align", "dynamics", "decode")),
    ],
)
def test_what_is_shared(name: str, shared: tuple[str, ...], trained: tuple[str, ...]) -> None:
    run = run_called(name)
    assert (run.shared, run.trained) == (shared, trained)
    assert run.chain == (*shared, *trained)


def test_configurations() -> None:
    base = small_config()
    geo, vanilla, rk8, free = (
        run_config(base, run_called(name), STEPS) for name in ("geo", "vanilla", "rk8", "no-anchor")
    )
    assert (geo.variant, vanilla.variant, rk8.variant) == ("geo", "vanilla", "physics")
    assert (rk8.model.field.integrator, base.model.field.integrator) == ("rk8", "rk4")
    assert (free.align.anchor_weight, base.align.anchor_weight) == (0.0, 0.01)
    assert vanilla.stages == ("pretrain", "dynamics", "decode")
    for config in (geo, vanilla, rk8, free):
        assert config.dynamics.training.budget.steps == 5
        assert config.decode.training.budget.steps == 6
        assert config.pretrain == base.pretrain  # taken over: told as it was trained
    assert free.align.training.budget.steps == 4
    assert geo.align == base.align


def test_seconds_become_steps() -> None:
    base = small_config("advection", "decode.training.budget={steps: 0, seconds: 5}")
    budget = with_steps(base, {"decode": 7}).decode.training.budget
    assert (budget.steps, budget.seconds) == (7, 0.0)


def test_words() -> None:
    assert parse_what(None) == WHAT
    assert parse_what("geometry, variants") == ("variants", "geometry")
    with pytest.raises(UsageError, match="did you mean 'variants'"):
        parse_what("variant")
    with pytest.raises(UsageError, match="names nothing"):
        parse_what(",")


def test_an_anchor_is_needed_to_drop_it() -> None:
    with pytest.raises(ConfigError, match="anchor_weight of the base must be above 0"):
        names("anchor", words=("align.anchor_weight=0",))
