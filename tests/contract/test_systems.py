"""What every system promises, checked on every system in the list: a newcomer is tested by being listed.

Sampling is a pure function, solving treats rows independently, parameters are checked by name, a failing row gets a
named outcome, splits are those of the published sizes and do not overlap, and the structure is declared in full.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.core.errors import ConfigError, DataError, ParameterError
from pdejepa.models.amplitude import rescale
from pdejepa.solve.outcome import Fields, Outcome
from pdejepa.systems.base import MAX_ATTEMPTS, SteppedSystem, System, relative_l2

NAMES = systems.NAMES
STEPPED = [name for name in NAMES if isinstance(systems.get(name), SteppedSystem)]
SPLITS = [(name, split.name) for name in NAMES for split in systems.get(name).splits]
SMALL: dict[str, dict[str, Any]] = {
    "burgers": {"n_points": 96, "dt": 4 / 50},  # forcing modes go up to 40
    "combined": {"n_points": 64},
    "vorticity": {"solver_grid": 32, "n_points": 16, "dt": 2 / 29 / 4},
    "heterns": {"solver_grid": 32, "n_points": 16, "dt": 1 / 8},
    "gray_scott": {"n_points": 20},
    "wave_2d": {"n_points": 32},
}


def small(name: str) -> System:
    """The system on a grid that is quick to solve."""
    return systems.get(name, **SMALL.get(name, {}))


def plain(fields: Fields) -> Tensor:
    return fields.as_subclass(Tensor)


def early(system: System, n: int = 3) -> Tensor:
    """The first output times after t = 0."""
    return system.times[system.times > 0][:n]


def middle(system: System) -> dict[str, float]:
    """Parameters in the middle of the training range."""
    return {p.name: p.choices[0] if p.choices else sum(p.train) / 2 for p in system.parameters}


# ---- sampling --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_a_trajectory_is_the_same_alone_and_in_company(name: str, split: str) -> None:
    system = small(name)
    together, alone = system.sample(split, [3, 11, 7]), system.sample(split, 11)
    assert torch.equal(together[0][1:2], alone[0])
    assert torch.equal(together[1][1:2], alone[1])
    again = system.sample(split, range(11, 12))
    assert torch.equal(alone[0], again[0])


@pytest.mark.parametrize("name", NAMES)
def test_seed_changes_the_draw_and_attempt_changes_the_start_alone(name: str) -> None:
    system = small(name)
    u0, xi = system.sample("train", range(4))
    other_u0, _ = system.sample("train", range(4), seed=1)
    again_u0, again_xi = system.sample("train", range(4), attempt=1)
    assert not torch.equal(u0, other_u0)
    assert not torch.equal(u0, again_u0)
    assert torch.equal(xi, again_xi)


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_finite_of_the_declared_shape_and_type(name: str) -> None:
    system = small(name)
    u0, xi = system.sample("train", range(5))
    assert u0.dtype == system.dtype
    assert u0.shape[:2] == (5, len(system.fields))
    assert xi.shape == (5, len(system.parameters))
    assert bool(torch.isfinite(u0).all())
    assert torch.equal(system.check_xi(xi), xi)
    assert system.sample("train", 0, dtype=torch.float32)[0].dtype == torch.float32


@pytest.mark.parametrize("index", [-1, [], [3, -2], 2**31, 2**70, "a", 1.5, [0.5], math.nan, None])
def test_impossible_trajectory_numbers_are_refused(index: Any) -> None:
    with pytest.raises(DataError, match="whole numbers"):
        systems.get("heat").sample("train", index)


# ---- solving ---------------------------------------------------------------------------------------------------
RESCALED = [name for name in NAMES if systems.get(name).structure.scaling is not None]


def rescaling_error(system: System, s: float = 1.7) -> float:
    """How far the solution from s u0 is from s times the solution from u0."""
    u0, xi = system.sample("train", range(4))
    times = early(system)
    small = plain(system.solve(u0, xi, times=times))
    large = plain(system.solve(s * u0, rescale(system, xi, torch.full_like(xi[:, 0], s)), times=times))
    return float(relative_l2(large / s, small).max())


@pytest.mark.parametrize("name", RESCALED)
def test_declared_rescaling_is_a_symmetry_of_the_solver(name: str) -> None:
    system = small(name)
    assert system.structure.forcing == "none"  # a forcing would have to be rescaled as well
    assert set(system.structure.scaling or ()) <= set(system.parameter_names)
    assert rescaling_error(system) < 1e-9


def test_wrong_powers_of_a_rescaling_are_found() -> None:
    system = small("combined")
    wrong = replace(system.structure, scaling={"advection": 1})
    with mock.patch.object(type(system), "structure", wrong):
        assert rescaling_error(system) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_rows_are_solved_independently(name: str, dtype: torch.dtype) -> None:
    """Equal to rounding; chaos within the horizon would show here, too."""
    system = small(name)
    u0, xi = system.sample("train", range(5), dtype=dtype)
    times = early(system)
    together = system.solve(u0, xi, times=times)
    assert together.dtype == dtype
    assert together.shape == (5, 3, len(system.fields), *system.grid)
    assert set(together.outcome) <= {Outcome.OK, Outcome.UNDER_RESOLVED}
    for row in (0, 4):
        alone = system.solve(u0[row : row + 1], xi[row : row + 1], times=times)
        assert float(relative_l2(plain(alone), plain(together)[row : row + 1])) < (
            1e-12 if dtype == torch.float64 else 1e-5
        )


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_is_close_to_double(name: str) -> None:
    system = small(name)
    u0, xi = system.sample("train", range(4), dtype=torch.float64)
    times = early(system)
    double, single = system.solve(u0, xi, times=times), system.solve(u0.float(), xi, times=times)
    assert float(relative_l2(plain(single), plain(double)).max()) < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_a_single_frame_and_named_parameters_work(name: str) -> None:
    system = small(name)
    u0, xi = system.sample("train", 2)
    t = [float(early(system)[1])]
    named = {key: value.item() for key, value in system.named(xi).items()}
    by_name, by_mapping = system.solve(u0, times=t, **named), system.solve(u0, named, times=t)
    assert by_name.shape[1] == 1
    assert torch.equal(plain(by_name), plain(system.solve(u0, xi, times=t)))
    assert torch.equal(plain(by_name), plain(by_mapping))


@pytest.mark.parametrize("name", NAMES)
def test_one_start_with_many_parameters_and_the_other_way_round(name: str) -> None:
    system = small(name)
    u0, xi = system.sample("train", range(4))
    t = [float(early(system)[0])]
    one_start = system.solve(u0[:1], xi, times=t)
    one_xi = system.solve(u0, xi[:1], times=t)
    assert len(one_start) == len(one_xi) == 4
    assert float(relative_l2(plain(one_start)[:1], plain(one_xi)[:1])) < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_result_is_a_tensor_that_remembers_its_outcomes(name: str) -> None:
    system = small(name)
    u0, xi = system.sample("train", range(2))
    solved = system.solve(u0, xi, times=early(system, 1))
    assert isinstance(solved, Fields)
    assert [outcome.sentence for outcome in solved.outcome]
    assert solved.times.tolist() == early(system, 1).tolist()
    assert type(solved * 2) is Tensor
    assert not solved.requires_grad


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_changes_the_solution(name: str) -> None:
    system = small(name)
    u0, xi = system.sample("train", 1)
    t = [float(system.times[min(4, len(system.times) - 1)])]
    before = plain(system.solve(u0, xi, times=t))
    for column, parameter in enumerate(system.parameters):
        changed = xi.clone()
        if parameter.choices:
            options = [choice for choice in parameter.choices[:4] if choice != float(xi[0, column])]
            changed[:, column] = options[0]
        else:
            changed[:, column] += 0.1 * (parameter.train[1] - parameter.train[0])
        after = plain(system.solve(u0, changed, times=t))
        assert float(relative_l2(after, before)) > 1e-6, f"{parameter.name} has no effect"


@pytest.mark.parametrize("name", NAMES)
def test_values_beyond_the_training_range_are_solved(name: str) -> None:
    """Half the range beyond either end, as far as the limits go."""
    system = small(name)
    u0, _ = system.sample("train", 0)
    for parameter in system.parameters:
        if parameter.choices:
            continue
        width = parameter.train[1] - parameter.train[0]
        for value in (parameter.train[0] - width / 2, parameter.train[1] + width / 2):
            xi = system.xi(middle(system) | {parameter.name: min(max(value, parameter.limits[0]), parameter.limits[1])})
            solved = system.solve(u0, xi, times=early(system, 1))
            assert solved.outcome[0].usable
            assert bool(torch.isfinite(plain(solved)).all())


@pytest.mark.parametrize("name", NAMES)
def test_values_at_the_physical_limits_are_solved(name: str) -> None:
    """A tenth of a frame is enough to see instability; no value within the limits may end in NaN unannounced."""
    system = small(name)
    u0, _ = system.sample("train", 0)
    t = 0.1 * float(system.times[1] - system.times[0])
    for parameter in system.parameters:
        for value in parameter.limits:
            solved = system.solve(u0, system.xi(middle(system) | {parameter.name: value}), times=[t])
            assert solved.outcome[0].usable == bool(torch.isfinite(plain(solved)).all())
            assert solved.outcome[0].usable, f"{parameter.name} = {value:g}: {solved.outcome[0].sentence}"


# ---- mistakes --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_missing_parameter_is_named(name: str) -> None:
    system = systems.get(name)
    needed = [p.name for p in system.parameters if p.default is None]
    given = {key: value for key, value in middle(system).items() if key != needed[0]}
    with pytest.raises(ParameterError, match=rf"{name} needs {needed[0]}"):
        system.xi(given)


@pytest.mark.parametrize("name", NAMES)
def test_unknown_parameter_is_named_with_the_nearest_spelling(name: str) -> None:
    system = systems.get(name)
    wrong = system.parameters[0].name + "s"
    given = {key: value for key, value in middle(system).items() if key != system.parameters[0].name}
    with pytest.raises(ParameterError, match=rf"{wrong}.*did you mean '{system.parameters[0].name}'"):
        system.xi(given | {wrong: 1.0})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "fast", None, [[0.1, "x"]]])
def test_values_that_are_no_numbers_are_refused(name: str, value: Any) -> None:
    system = systems.get(name)
    for parameter in system.parameters[:2]:
        with pytest.raises(ParameterError, match=parameter.name):
            system.xi(middle(system) | {parameter.name: value})


@pytest.mark.parametrize("name", NAMES)
def test_values_outside_the_limits_are_refused(name: str) -> None:
    system = systems.get(name)
    for parameter in system.parameters:
        low, high = parameter.limits
        for value in (low - 1e-6 * (high - low), high + 1e-6 * (high - low)):
            with pytest.raises(ParameterError, match=rf"{parameter.name} must be .*training range"):
                system.xi(middle(system) | {parameter.name: value})


@pytest.mark.parametrize("name", NAMES)
def test_parameters_of_the_wrong_shape_are_refused(name: str) -> None:
    system = systems.get(name)
    n = len(system.parameters)
    for shape in ((n,), (2, n + 1), (1, 2, n)):
        with pytest.raises(ParameterError, match="shape"):
            system.check_xi(torch.full(shape, 0.5))
    if n > 1:
        ragged = middle(system) | {system.parameters[0].name: [0.5] * 3, system.parameters[1].name: [0.5] * 2}
        with pytest.raises(ParameterError):
            system.xi(ragged)


@pytest.mark.parametrize("name", NAMES)
def test_states_may_be_arrays_alone_or_without_the_axis_of_a_single_channel(name: str) -> None:
    system = small(name)
    u0, xi = system.sample("train", range(2))
    times = [float(system.times[0]) + 0.01]
    both, alone = (system.solve(u0[:n], xi[:n], times=times).as_subclass(torch.Tensor) for n in (2, 1))
    assert torch.equal(system.solve(u0.numpy(), xi.numpy(), times=times).as_subclass(torch.Tensor), both)
    assert torch.equal(system.solve(u0[0], xi[:1], times=times).as_subclass(torch.Tensor), alone)
    if system.n_state == 1:
        assert torch.equal(system.solve(u0[:, 0], xi, times=times).as_subclass(torch.Tensor), both)
        assert torch.equal(system.solve(u0[0, 0], xi[:1], times=times).as_subclass(torch.Tensor), alone)


@pytest.mark.parametrize("name", NAMES)
def test_states_that_do_not_fit_are_refused(name: str) -> None:
    system = small(name)
    u0, xi = system.sample("train", range(2))
    for wrong in (u0[:0], u0.repeat(1, 3, *[1] * system.ndim), u0[..., :-1], u0.movedim(1, -1)):
        with pytest.raises(DataError, match=f"{name} expects"):
            system.solve(wrong, xi)
    for wrong in (u0.int(), u0.half(), u0.to(torch.complex128), [1.0]):  # integers would come back truncated
        with pytest.raises(DataError, match="float32 or float64 tensor"):
            system.solve(wrong, xi)
    with pytest.raises(DataError, match="real numbers; got ndarray of complex128"):
        system.solve(u0.to(torch.complex128).numpy(), xi)
    broken = u0.clone()
    broken[1, 0, 3] = math.nan
    with pytest.raises(DataError, match="NaN"):
        system.solve(broken, xi)
    with pytest.raises(ParameterError, match="3 parameter rows"):
        system.solve(u0, torch.cat((xi, xi[:1])))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("times", [[], [2.0, 1.0], [1.0, 1.0], [-1.0], [math.nan], [0.5, math.inf]])
def test_times_must_be_finite_and_ascend(name: str, times: list[float]) -> None:
    system = small(name)
    u0, xi = system.sample("train", 0)
    with pytest.raises(ParameterError, match="times"):
        system.solve(u0, xi, times=times)


def test_parameters_given_twice_are_refused() -> None:
    """A tensor and a keyword at once: one of them would be ignored."""
    system = systems.get("advection")
    u0, xi = system.sample("train", 0)
    with pytest.raises(ParameterError):
        system.solve(u0, xi, speed=3.0)
    with pytest.raises(ParameterError, match="speed is given twice"):
        system.solve(u0, {"speed": 1.0}, speed=3.0)
    with pytest.raises(ParameterError, match=r"expects parameters as \{name: value\} here; got list"):
        system.solve(u0, xi.tolist())


def test_unknown_names_are_answered_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'burgers'"):
        systems.get("burger")
    with pytest.raises(ConfigError, match="did you mean 'n_points'"):
        systems.get("heat", n_point=64)
    with pytest.raises(DataError, match="did you mean 'valid'"):
        systems.get("heat").sample("validation", 0)
    with pytest.raises(DataError, match="no split None"):
        systems.get("heat").sample(None, 0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"There is no system None\. Systems: advection"):
        systems.get(None)  # type: ignore[arg-type]
    assert systems.get("Gray-Scott").name == "gray_scott"


# ---- outcomes --------------------------------------------------------------------------------------------------
@contextmanager
def poisoned(system: System, marked: Tensor, value: float) -> Iterator[None]:
    """Inside the block, rows with the parameters `marked` (P,) turn to `value` whenever they are stepped."""
    make = type(system).stepper  # type: ignore[attr-defined]

    def spoil(made: Any, rows: Tensor) -> Any:
        advance, take = made.advance, made.take

        def advance_and_poison(state: Tensor, t: float, h: float, n: int) -> Tensor:
            out = advance(state, t, h, n)
            out[rows] = value
            return out

        made.advance, made.take = advance_and_poison, lambda some: spoil(take(some), rows[some])
        return made

    def stepper(self: System, xi: Tensor, like: Tensor) -> Any:
        return spoil(make(self, xi, like), (xi == marked).all(1))

    with mock.patch.object(type(system), "stepper", stepper):
        yield


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("name", STEPPED)
def test_a_diverging_row_is_named_and_leaves_the_others_alone(name: str, value: float) -> None:
    system = small(name)
    u0, xi = system.sample("train", range(4), dtype=torch.float64)
    times = torch.cat((torch.zeros(1, dtype=torch.float64), early(system, 3)))
    healthy = system.solve(u0, xi, times=times)
    with poisoned(system, xi[2], value):
        solved = system.solve(u0, xi, times=times)
    assert solved.outcome[2] is Outcome.DIVERGED
    assert solved.failures() == {2: Outcome.DIVERGED}
    assert torch.equal(plain(solved)[2, 0], plain(healthy)[2, 0])
    assert bool(plain(solved)[2, 1:].isnan().all())
    for row in (0, 1, 3):
        assert solved.outcome[row] is healthy.outcome[row]
        assert float(relative_l2(plain(solved)[row : row + 1], plain(healthy)[row : row + 1])) < 1e-12


@pytest.mark.parametrize("name", STEPPED)
def test_exhausted_steps_are_named(name: str) -> None:
    system = replace(small(name), max_steps=1)  # type: ignore[call-arg]
    u0, xi = system.sample("train", range(2))
    times = torch.cat((torch.zeros(1, dtype=torch.float64), early(system, 2)))
    solved = system.solve(u0, xi, times=times)
    assert set(solved.outcome) == {Outcome.STEP_LIMIT}
    assert bool(torch.isfinite(plain(solved)[:, 0]).all())
    assert bool(plain(solved)[:, 2].isnan().all())


def test_only_the_row_that_needs_too_many_steps_is_stopped() -> None:
    system = systems.get("burgers", n_points=64)
    u0, _ = system.sample("train", range(3))
    u0[1] *= 200  # a Courant number that asks for hundreds of times more steps
    limited = replace(system, max_steps=40)  # type: ignore[call-arg]
    healthy, solved = (s.solve(u0, diffusivity=0.1, times=[0.0, 0.2]) for s in (system, limited))
    assert [outcome.label for outcome in healthy.outcome] == ["ok"] * 3
    assert [outcome.label for outcome in solved.outcome] == ["ok", "step-limit", "ok"]
    assert torch.equal(plain(solved)[[0, 2]], plain(healthy)[[0, 2]])


def test_under_resolved_rows_are_marked_and_kept() -> None:
    """Transport with next to no diffusion or dispersion cannot be resolved on 256 points; its neighbour can."""
    system = systems.get("combined")
    u0, _ = system.sample("train", range(2))
    xi = system.xi(advection=[1.0, 1.0], diffusivity=[1e-4, 0.2], dispersion=[0.0, 0.5])
    solved = system.solve(u0, xi)
    assert [outcome.label for outcome in solved.outcome] == ["under-resolved", "ok"]
    assert bool(torch.isfinite(plain(solved)).all())
    assert solved.failures() == {}


# ---- splits ----------------------------------------------------------------------------------------------------
PAPER_SIZES = {  # trajectories, environments
    "advection": {"train": (12_000, 1_200), "valid": (120, 12), "test": (120, 12)},
    "burgers": {"train": (12_000, 1_200), "valid": (120, 12), "test": (120, 12)},
    "heat": {"train": (12_000, 1_200), "valid": (120, 12), "test": (120, 12)},
    "wave_b": {"train": (12_000, 4), "valid": (120, 4), "test": (120, 4)},
    "combined": {"train": (12_000, 1_200), "valid": (120, 12), "test": (120, 12), "ood": (120, 12)},
    "vorticity": {
        "train": (12_000, 1_200),
        "valid": (1_200, 120),
        "test": (1_200, 120),
        "ood": (120, 12),
        "bridge": (120, 12),
    },
    "heterns": {
        "train": (15_000, 15),
        "valid": (1_500, 15),
        "test": (1_500, 15),
        "ood_viscosity_interp": (900, 42),
        "ood_viscosity_extrap": (510, 24),
        "ood_forcing": (90, 4),
    },
    "wave_2d": {"train": (12_000, 1_200), "valid": (1_200, 120), "test": (1_200, 120), "ood": (120, 12)},
    "gray_scott": {"train": (12_000, 1_200), "valid": (1_200, 120), "test": (1_200, 120), "ood": (120, 12)},
}
N_FRAMES = {"advection": 14, "burgers": 25, "heat": 25, "wave_b": 25, "combined": 14}
N_FRAMES |= {"vorticity": 30, "heterns": 20, "wave_2d": 30, "gray_scott": 20}
GRIDS = {"vorticity": (128, 128), "heterns": (64, 64), "wave_2d": (64, 64), "gray_scott": (32, 32)}


@pytest.mark.parametrize("name", NAMES)
def test_splits_have_the_published_sizes(name: str) -> None:
    system = systems.get(name)
    published = {split.name: (split.n, split.n_environments) for split in system.splits if not split.is_ours}
    assert published == PAPER_SIZES[name]
    for split in system.splits:
        assert split.size("paper") == split.n
        assert (split.size("tiny"), split.size("small")) == ((20, 480) if split.name == "train" else (10, 60))
        assert split.size("laptop") <= min(split.n, 3_000 if split.name == "train" else 240)
        assert split.meaning
    assert len(system.times) == N_FRAMES[name]
    assert system.grid == GRIDS.get(name, (256,))
    assert bool((system.times.diff() > 0).all())
    assert set(system.times.tolist()) <= set(system.raw_times.tolist())


@pytest.mark.parametrize("name", NAMES)
def test_environments_share_parameters_and_nothing_else(name: str) -> None:
    system = small(name)
    for split in system.splits:
        n = split.n_environments
        u0, xi = system.sample(split.name, [1, 1 + n, 2])
        assert torch.equal(xi[0], xi[1])
        assert not torch.equal(xi[0], xi[2])
        assert not torch.equal(u0[0], u0[1])
        assert system.environment_of(split.name, [1, 1 + n, 2]).tolist() == [1, 1, 2]


@pytest.mark.parametrize("name", NAMES)
def test_no_pair_of_start_and_parameters_is_in_two_splits(name: str) -> None:
    system = small(name)
    seen: dict[bytes, str] = {}
    for split in system.splits:
        u0, xi = system.sample(split.name, range(min(200, split.n)), dtype=torch.float64)
        for row in range(len(u0)):
            key = u0[row].numpy().tobytes() + xi[row].numpy().tobytes()
            assert key not in seen, f"trajectory {row} of {split.name} is also in {seen[key]}"
            seen[key] = split.name


@pytest.mark.parametrize("name", NAMES)
def test_in_distribution_parameters_lie_in_the_training_range(name: str) -> None:
    system = systems.get(name)
    low, high = (torch.tensor([p.train[end] for p in system.parameters], dtype=torch.float64) for end in (0, 1))
    for split in system.splits:
        if not split.is_ood:
            xi = small(name).sample(split.name, range(min(1200, split.n_environments)))[1]
            assert bool(((xi >= low) & (xi <= high)).all())


@pytest.mark.parametrize("name", NAMES)
def test_out_of_distribution_parameters_were_never_trained_on(name: str) -> None:
    """Outside the training box, or between its points where training uses a few values only (HeterNS).

    Wave-2D's twelve pairs include one corner of the training box, as published.
    """
    system = small(name)
    train = system.sample("train", range(min(1200, system.split("train").n_environments)))[1]
    low, high = (torch.tensor([p.train[end] for p in system.parameters], dtype=torch.float64) for end in (0, 1))
    for split in system.splits:
        if split.is_ood:
            xi = system.sample(split.name, range(split.n_environments))[1]
            assert not any(bool((row == train).all(1).any()) for row in xi)
            if split.name not in ("ood_viscosity_interp", "ood_forcing"):
                inside = ((xi >= low) & (xi <= high)).all(1)
                assert int(inside.sum()) == (1 if name == "wave_2d" else 0)


@pytest.mark.parametrize("name", NAMES)
def test_declared_initial_conditions_are_shared_and_others_are_not(name: str) -> None:
    system = small(name)
    train = system.sample("train", range(6))[0]
    for split in system.splits:
        if split.name != "train":
            u0 = system.sample(split.name, range(6))[0]
            assert torch.equal(u0, train) == (split.initial_from == "train")
    shared = {split.name for split in system.splits if split.initial_from}
    assert shared == {"vorticity": {"ood", "bridge"}, "wave_2d": {"ood"}}.get(name, set())


def test_flows_are_the_same_on_every_grid() -> None:
    """Random modes are keyed by wave vector: a finer grid shows the same flow."""
    for name, tolerance in (("vorticity", 1e-10), ("heterns", 2e-2)):  # HeterNS's spectrum has no end: modes are added
        coarse, fine = (systems.get(name, n_points=32, solver_grid=n) for n in (128, 256))
        there = fine.sample("train", 3, dtype=torch.float64)[0][..., ::2, ::2]
        assert float(relative_l2(coarse.sample("train", 3, dtype=torch.float64)[0], there)) < tolerance


# ---- structure -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_declarations_are_complete(name: str) -> None:
    system = systems.get(name)
    assert system.name == name
    assert all((system.title, system.equation, system.expect, system.fields, system.reference.refined))
    assert 0 < system.reference.bound < 1e-2
    assert len(system.axes) == len(system.axes_names) == system.ndim
    assert len(set(system.parameter_names)) == len(system.parameters)
    for parameter in system.parameters:
        assert all((parameter.symbol, parameter.meaning, parameter.law, parameter.unit))
        assert parameter.limits[0] <= parameter.train[0] < parameter.train[1] <= parameter.limits[1]
        assert parameter.name.islower()
        assert len(parameter.name) > 2  # a word, not a letter


@pytest.mark.parametrize("name", NAMES)
def test_structure_is_complete_and_consistent(name: str) -> None:
    system = small(name)
    structure = system.structure
    u, xi = system.sample("train", range(3), dtype=torch.float64)
    if system.n_rhs != u.shape[1]:
        u = torch.cat((u, 0.5 * u), 1)
    problem = system.problem
    assert len(problem.periodic_axes) == system.ndim
    assert (problem.padding == "circular") == all(problem.periodic_axes)
    assert system.operators(u).shape == (3, len(structure.terms), *u.shape[1:])
    assert system.shared(u).shape == u.shape
    assert bool((system.shared(u) == 0).all()) or structure.has_shared
    assert (structure.forcing != "none") == bool((system.forcing(0.5, xi, u) != 0).any())
    later = system.forcing(1.5, xi, u)
    assert (structure.forcing == "time") == (not torch.equal(system.forcing(0.5, xi, u), later))
    for term in structure.terms:
        assert term.sign in (1, -1)
        assert term.coefficient(system.named(xi)).shape == (3,)
        assert term.operator
    assert structure.boundary_codes == tuple(term.name for term in structure.terms if term.rule == "unit")


# ---- generating ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_generating_equals_sampling_and_solving(name: str) -> None:
    system = small(name)
    made = system.generate("test", 3)
    u0, xi = system.sample("test", range(3))
    solved = system.solve(u0, xi)
    assert made.fields.dtype == torch.float32
    assert torch.equal(made.xi, xi)
    assert made.environment.tolist() == system.environment_of("test", range(3)).tolist()
    assert made.status.tolist() == solved.status.tolist()
    assert torch.equal(made.fields, plain(solved).float())  # the same batch: bit for bit
    alone = system.generate("test", 1, start=2)
    assert float(relative_l2(alone.fields, made.fields[2:])) < 1e-5


def test_wrong_numbers_and_devices_are_refused() -> None:
    system = systems.get("heat")
    for wrong in ({"n": -1}, {"n": 0}, {"n": 1.5}, {"n": "a"}, {"n": 1, "start": -1}, {"start": 0.5}, {"start": 10**6}):
        with pytest.raises(DataError, match="n must be whole and 1 or more, start whole and 0 or more; got n="):
            system.generate("train", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="Unknown device 'gpu', did you mean 'cuda'"):
        system.generate("train", 1, "gpu")
    with pytest.raises(ParameterError, match="Unknown device 'gpu'"):
        system.sample("train", 1, device="gpu")


def test_chunks_do_not_show() -> None:
    """A split that spans several chunks has the same values as one chunk."""
    system = systems.get("advection")
    with mock.patch.object(type(system), "chunk", (4, 4)):
        pieces = system.generate("valid", 10, start=3)
    assert float(relative_l2(pieces.fields, system.generate("valid", 10, start=3).fields).max()) < 1e-6


@contextmanager
def failing(system: System, bad_starts: Tensor) -> Iterator[None]:
    """Inside the block, rows that start from one of `bad_starts` end as diverged."""
    solve = type(system)._solve

    def failing_solve(self: System, u0: Tensor, xi: Tensor, times: list[float], t0: float) -> tuple[Tensor, Tensor]:
        fields, status = solve(self, u0, xi, times, t0)
        for row in range(len(u0)):
            if any(torch.equal(u0[row], start) for start in bad_starts):
                status[row], fields[row] = int(Outcome.DIVERGED), math.nan
        return fields, status

    with mock.patch.object(type(system), "_solve", failing_solve):
        yield


def test_a_failed_row_is_drawn_again_under_its_own_environment() -> None:
    system = systems.get("heat")
    healthy = system.generate("train", 5)
    with failing(system, system.sample("train", [2])[0]):
        made = system.generate("train", 5)
    assert made.attempt.tolist() == [0, 0, 1, 0, 0]
    assert made.status.tolist() == [0] * 5
    assert torch.equal(made.xi, healthy.xi)
    u0, xi = system.sample("train", [2], attempt=1)
    assert torch.equal(made.fields[2], plain(system.solve(u0, xi)).float()[0])
    for row in (0, 1, 3, 4):
        assert torch.equal(made.fields[row], healthy.fields[row])


def test_a_row_that_always_fails_is_reported_not_hidden() -> None:
    system = systems.get("heat")
    starts = torch.cat([system.sample("train", [1], attempt=attempt)[0] for attempt in range(MAX_ATTEMPTS)])
    with failing(system, starts):
        made = system.generate("train", 3)
    assert made.status.tolist() == [0, int(Outcome.DIVERGED), 0]
    assert made.attempt.tolist() == [0, MAX_ATTEMPTS - 1, 0]
    assert bool(made.fields[1].isnan().all())
    assert bool(torch.isfinite(made.fields[[0, 2]]).all())
