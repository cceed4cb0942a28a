"""Every claim about accuracy holds, and every one of them would notice a mistake.

The two halves of a study run in one process and leave their row in the report; `conftest.py` prints the table.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdejepa import systems
from tests.verification.orders import Study, assert_order, cells, slope
from tests.verification.studies import STUDIES

pytestmark = pytest.mark.verification


@pytest.mark.parametrize("study", STUDIES, ids=str)
def test_claim_holds_and_its_mutant_fails(study: Study, record_property: Callable[[str, object], None]) -> None:
    errors, broken = study.errors(), study.broken_errors()
    record_property("order_row", "\t".join(cells(study, errors, broken)))
    study.expected.check(errors, study.hs)
    with pytest.raises(AssertionError):
        study.expected.check(broken, study.hs)


def test_every_system_is_in_the_catalogue() -> None:
    assert {study.system for study in STUDIES} == set(systems.NAMES)


def test_every_stepped_system_has_an_order_in_time() -> None:
    stepped = {name for name in systems.NAMES if hasattr(systems.get(name), "dt")}
    assert {study.system for study in STUDIES if study.variable == "h"} == stepped


def test_assertion_is_two_sided_and_wants_four_refinements() -> None:
    hs = (0.4, 0.2, 0.1, 0.05)
    fourth = [h**4 for h in hs]
    assert slope(fourth, hs) == pytest.approx(4)
    assert_order(fourth, hs, 4)
    for wrong in (3.7, 4.3):
        with pytest.raises(AssertionError, match="measured order"):
            assert_order(fourth, hs, wrong)
    with pytest.raises(AssertionError, match="four or more"):
        assert_order(fourth[:3], hs[:3], 4)
    with pytest.raises(AssertionError, match="finite"):
        assert_order([*fourth[:3], float("nan")], hs, 4)
