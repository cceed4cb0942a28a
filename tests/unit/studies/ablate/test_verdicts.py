"""Sentences follow the numbers."""

from __future__ import annotations

import pytest

from pdejepa.studies.ablate import verdicts

ORDER = ("vanilla", "geo", "physics")
METHODS = ("euler", "rk2", "rk4", "rk8")


def by_split(*test: float | None, ood: tuple[float | None, ...] = (0.5, 0.4, 0.3)) -> verdicts.BySplit:
    return {"test": dict(zip(ORDER, test, strict=False)), "ood": dict(zip(ORDER, ood, strict=False))}


def test_variants() -> None:
    assert verdicts.variants(by_split(0.086, 0.04, 0.034), ORDER) == (
        "Holds: each added part lowers every error (test 8.6% > 4% > 3.4%; ood 50% > 40% > 30%)."
    )
    assert verdicts.variants(by_split(0.04, 0.086, 0.034), ORDER) == (
        "Does not hold: geo (8.6%) is not clearly below vanilla (4%) on test."
    )
    text = verdicts.variants(by_split(0.1, 0.1, 0.2, ood=(0.1, 0.1, 0.2)), ORDER)  # equal is not lower
    assert text.count("is not clearly below") == 4
    assert "physics (20%) is not clearly below geo (10%) on ood" in text
    assert verdicts.variants(by_split(0.1, 0.05), ORDER) == "Not decided: physics missing."
    assert verdicts.variants(by_split(0.1, 0.05, None), ORDER) == "Not decided: no finite number for physics on test."
    assert verdicts.variants({}, ORDER) == "Not decided: everything missing."


def test_geometry() -> None:
    lower = {"turning angle": {"z": 29.1, "q": 6.3}, "cosine": {"z": 0.4, "q": 0.1}}
    assert verdicts.geometry(lower) == "Holds: alignment lowers all of them (turning angle by 78 %, cosine by 75 %)."
    mixed = {**lower, "cosine": {"z": 0.1, "q": 0.4}}
    assert verdicts.geometry(mixed) == "Does not hold: the cosine error does not clearly fall (0.1 before, 0.4 after)."


def errors(*values: float | None) -> verdicts.BySplit:
    return {"ood": dict(zip(METHODS, values, strict=False))}


def test_integrators() -> None:
    final, whole = errors(0.1914, 0.1648, 0.159669, 0.159705), errors(0.0936, 0.0796, 0.077184, 0.077226)
    trips = errors(1.1243, 0.8465, 0.7816, 0.670196)
    assert verdicts.integrators(final, whole, trips).startswith("Holds: final and whole errors fall from Euler")
    better = errors(0.19, 0.16, 0.15, 0.1)
    assert verdicts.integrators(better, whole, trips) == (
        "Does not hold: rk8 changes final, ood, by -33 % against rk4."
    )
    upside_down = errors(0.1, 0.2, 0.3, 0.301)
    text = verdicts.integrators(final, upside_down, trips)
    assert text == (
        "Does not hold: rk2 (20%) is not clearly below euler (10%) on whole, ood; "
        "rk4 (30%) is not clearly below rk2 (20%) on whole, ood."
    )
    text = verdicts.integrators(final, whole, errors(1.0, 0.8, 0.7, 0.75))
    assert text == "Does not hold: rk8 (75%) is not clearly below rk4 (70%) on round trip, ood."
    assert verdicts.integrators(final, whole, errors(1.0, 0.8, None, 0.7)) == (
        "Not decided: no finite number for rk4 on ood."
    )
    assert verdicts.integrators(final, errors(0.1, 0.2, 0.3), trips) == "Not decided: rk8 missing."


def test_rounding_is_no_finding() -> None:
    """One percent less is not clearly less; a little more than that is."""
    runs, forecasts = ("physics", "no-anchor"), {"test": {"physics": 0.04, "no-anchor": 0.05}}
    for dropped, words in ((2.98, "Does not hold"), (2.96, "Holds")):
        angles = {"physics": 3.0, "no-anchor": dropped}
        assert verdicts.anchor(forecasts, angles, runs).startswith(words)
    assert verdicts.variants(by_split(0.1, 0.0995, 0.05), ORDER).startswith("Does not hold: geo (9.95%)")
    assert verdicts.geometry({"angle": {"z": 3.0, "q": 2.98}}).startswith("Does not hold")
    assert verdicts.geometry({"angle": {"z": 3.0, "q": 2.8}}) == "Holds: alignment lowers all of them (angle by 6.7 %)."


def test_long_lists_are_cut() -> None:
    text = verdicts.integrators(errors(1, 2, 3, 9), errors(1, 2, 3, 9), errors(1, 2, 3, 4))
    assert text.endswith("; and 5 more.")


@pytest.mark.parametrize(
    ("angles", "test", "text"),
    [
        (
            (6.3, 4.8),
            (0.040, 0.047),
            "Holds: without the anchor the angle error falls from 6.3 degrees to 4.8 degrees, "
            "and the error rises on test.",
        ),
        (
            (6.3, 7.0),
            (0.040, 0.047),
            "Does not hold: the angle error does not clearly fall without the anchor "
            "(6.3 degrees with, 7 degrees without).",
        ),
        (
            (6.3, 4.8),
            (0.040, 0.030),
            "Does not hold: the error on test does not clearly rise without the anchor (4% with, 3% without).",
        ),
    ],
)
def test_anchor(angles: tuple[float, float], test: tuple[float, float], text: str) -> None:
    runs = ("physics", "no-anchor")
    found = verdicts.anchor({"test": dict(zip(runs, test, strict=True))}, dict(zip(runs, angles, strict=True)), runs)
    assert found == text


def test_anchor_without_numbers() -> None:
    runs = ("physics", "no-anchor")
    assert verdicts.anchor({"test": {"physics": 0.1}}, {"physics": 6.0}, runs) == "Not decided: no-anchor missing."


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (9.0, "Holds: R = 9 lies within the published 8.12 to 12.31."),
        (2.34, "Does not hold: R = 2.34 lies below"),
        (40.0, "Does not hold: R = 40 lies above the published"),
    ],
)
def test_reconstruct(ratio: float, words: str) -> None:
    assert words in verdicts.reconstruct(ratio)


def test_reconstruct_without_numbers() -> None:
    assert verdicts.reconstruct(None) == "Not decided: an error is missing."
