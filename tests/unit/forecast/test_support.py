"""What lies outside the training data is said in one sentence, with its distance."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

import pdejepa
from pdejepa import systems
from pdejepa.core.errors import ExtrapolationWarning
from pdejepa.forecast.support import ParameterRange, Support, judge, stronger, unlike
from tests.unit.forecast import tiny


def support(name: str, n_frames: int = 0, **changes: float) -> Support:
    system = systems.get(name)
    xi = system.xi({**tiny.middle(system), **changes})
    ranges = {p.name: p.train for p in system.parameters}
    trained = len(system.times)
    return judge(system.named(xi), ranges, n_frames or trained, trained)


@pytest.mark.parametrize("name", systems.NAMES)
def test_inside_says_nothing(name: str) -> None:
    found = support(name)
    assert found.is_inside
    assert found.sentences == ()
    assert [one.name for one in found.parameters] == list(systems.get(name).parameter_names)


def test_the_ends_count_as_inside() -> None:
    for value in (1e-3, 1e-2, 1.005e-2, 0.995e-3):
        assert support("vorticity", viscosity=value).is_inside


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (
            "vorticity",
            {"viscosity": 5e-5},
            "Extrapolating: viscosity 5e-05 is below the training range [0.001, 0.01] (20x below).",
        ),
        ("vorticity", {"viscosity": 0.05}, "viscosity 0.05 is above the training range [0.001, 0.01] (5x above)."),
        ("vorticity", {"viscosity": 0.0}, "viscosity 0 is below the training range [0.001, 0.01] (11.1% of its width"),
        ("advection", {"speed": 5.0}, "speed 5 is above the training range [0, 4] (25% of its width above)."),
        ("wave_2d", {"celerity": 550.0}, "celerity 550 is above the training range [100, 500] (12.5% of its width"),
        ("heterns", {"forcing_frequency": 3.5}, "forcing_frequency 3.5 is above the training range [1, 3] (25% of"),
        ("heat", {"forcing_mode_2": 8.0}, "forcing_mode_2 8 is above the training range [1, 3] (250% of its width"),
    ],
)
def test_sentences(name: str, changes: dict[str, float], words: str) -> None:
    found = support(name, **changes)
    assert not found.is_inside
    assert len(found.sentences) == 1
    assert words in found.sentences[0]
    assert found.sentences[0].startswith("Extrapolating")


@pytest.mark.parametrize(
    ("name", "changes", "is_inside"),
    [
        ("burgers", {"diffusivity": 0.0}, False),  # below every value of a law in factors
        ("heat", {"diffusivity": 1e-6}, False),
        ("burgers", {"diffusivity": 1e-3}, True),  # the end of the law, which no sample reaches
        ("combined", {"advection": 1e-5}, True),  # uniform from 0
        ("combined", {"advection": 0.0}, True),
        ("burgers", {"forcing_phase_2": 6.4}, True),  # an angle
        ("burgers", {"forcing_phase_2": -100.0}, True),
        ("burgers", {"forcing_frequency_2": 6.4}, False),
    ],
)
def test_declared_laws_have_the_last_word(name: str, changes: dict[str, float], is_inside: bool) -> None:
    """The smallest and largest value of a sample are not the ends of its law."""
    system = systems.get(name)
    sample = system.sample("train", range(200))[1]
    ends = zip(system.parameter_names, sample.amin(0).tolist(), sample.amax(0).tolist(), strict=True)
    ranges = {one: (low, high) for one, low, high in ends}
    named = system.named(system.xi({**tiny.middle(system), **changes}))
    assert judge(named, ranges, 5, 5, declared=system.parameters).is_inside == is_inside
    shipped = judge(named, ranges, 5, 5, declared=pdejepa.load(name, "cpu").problem.parameters)
    assert shipped.is_inside == is_inside


def test_extrapolation_is_a_warning_once_and_can_be_switched_off() -> None:
    model = pdejepa.load("combined", "cpu")
    u0, xi = model.system.sample("test", 0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(2):
            model.forecast(u0, xi, n_frames=1)
            model.forecast(u0, advection=9.0, diffusivity=0.1, dispersion=0.1, n_frames=1)
    assert len(told) == 1
    assert "Extrapolating: advection 9 is above the training range [0, 1]" in str(told[0].message)
    assert told[0].category is ExtrapolationWarning
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ExtrapolationWarning)
        model.forecast(u0, advection=9.0, diffusivity=0.1, dispersion=0.1, n_frames=1)


def test_forcing_numbers_share_one_sentence() -> None:
    found = support("burgers", diffusivity=7.5, forcing_amplitude_1=0.6, forcing_amplitude_4=-2.0, forcing_mode_1=5.0)
    assert len(found.sentences) == 2
    assert "diffusivity 7.5" in found.sentences[0]
    assert "3 numbers of the forcing" in found.sentences[1]
    assert "forcing_amplitude_4 -2 (150% of its width below [-0.5, 0.5])" in found.sentences[1]


def test_numbers_of_one_kind_share_their_range() -> None:
    named = {"forcing_amplitude_1": torch.tensor([0.45]), "forcing_amplitude_2": torch.tensor([-0.45])}
    ranges = {"forcing_amplitude_1": (-0.5, 0.2), "forcing_amplitude_2": (-0.1, 0.5)}
    assert judge(named, ranges, 2, 2).is_inside


def test_rows_are_counted() -> None:
    named = {"viscosity": torch.tensor([5e-3, 5e-4, 1e-4], dtype=torch.float64)}
    sentence = judge(named, {"viscosity": (1e-3, 1e-2)}, 5, 5).sentences[0]
    assert sentence == (
        "Extrapolating in 2 of 3 rows: viscosity 0.0001 is below the training range [0.001, 0.01] (10x below)."
    )


def test_a_single_training_value() -> None:
    found = ParameterRange("kind", 2.0, 1.0, 1.0, "above")
    assert found.sentence == "Extrapolating: kind 2 is above the only training value, at 1 (above)."


def test_horizon_and_own_forcing() -> None:
    found = support("advection", n_frames=40)
    assert not found.is_inside
    assert found.sentences == ("Extrapolating: 40 frames in all, but the trajectories of the training data have 14.",)
    named = {"forcing_mode_1": torch.tensor([40.0]), "diffusivity": torch.tensor([1.0])}
    own = judge(named, {"forcing_mode_1": (1.0, 3.0), "diffusivity": (0.5, 2.0)}, 2, 2, has_own_forcing=True)
    assert own.is_inside
    assert own.sentences == ("Not checked: whether the given forcing field resembles the training data's.",)


def test_printing_it_says_it() -> None:
    ranges = {"speed": (0.0, 4.0)}
    inside = judge({"speed": torch.tensor([1.0])}, ranges, 14, 14, False)
    outside = judge({"speed": torch.tensor([6.0])}, ranges, 14, 14, False)
    assert str(inside) == "Inside the training ranges."
    assert str(outside) == " ".join(outside.sentences)
    assert "Extrapolating" in str(outside)


def test_frames_are_judged_by_what_the_model_makes_of_them() -> None:
    u = torch.ones(3, 2, 1, 8)
    assert unlike(u, 1.09 * u) == ""
    again = torch.stack((u[0], 1.3 * u[1], 0.8 * u[2]))
    assert unlike(again, u).startswith("The model does not see the observed frames of 2 of 3 rows as they are")
    assert "off by 20%" in unlike(u[:1], 0.8 * u[:1])
    assert "frames as they are" in unlike(u[:1], torch.full_like(u[:1], torch.nan))  # of one row
    nothing = torch.zeros(1, 1, 1, 8)  # compared with a hundredth of the training data
    assert unlike(nothing, nothing + 9e-4) == ""
    assert unlike(nothing, nothing + 2e-3) != ""


def test_a_channel_that_is_zero_for_now_counts_by_its_usual_size() -> None:
    """Waves at rest: u of rms 1 and u_t = 0, both in units of their training data."""
    rest = torch.stack((torch.ones(1, 1, 8), torch.zeros(1, 1, 8)), 2)  # (1,1,C=2,8)
    assert unlike(rest, rest + 0.05) == ""
    assert "off by 28" in unlike(rest, rest + 0.2)  # sqrt(2) 0.2


def test_frames_make_a_request_one_outside() -> None:
    found = Support((), 5, 5, ("Not checked: this.",), "Unlike.")
    assert not found.is_inside
    assert found.sentences == ("Unlike.", "Not checked: this.")


def test_parameters_at_unit_amplitude() -> None:
    ranges = {"alpha": (0.0, 1.0), "beta": (0.0, 2.0)}
    named = {"alpha": torch.tensor([0.5, 3.0]), "beta": torch.tensor([-5.0, 1.0])}  # weaker is no matter
    known = tuple(ParameterRange(name, 0.0, *ends, "inside") for name, ends in ranges.items())
    (found,) = stronger(named, ranges, known)
    assert found.sentence == (
        "Extrapolating in 1 of 2 rows: alpha at unit amplitude 3 is above the training range [0, 1] "
        "(200% of its width above)."
    )
    assert stronger(named, ranges, (replace(known[0], side="above"), known[1])) == ()  # said already
