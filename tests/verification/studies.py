"""The catalogue of all claims about accuracy, in the order in which the systems are listed."""

from __future__ import annotations

from pdejepa import systems
from tests.verification import studies_exact, studies_in_space, studies_in_time

STUDIES = tuple(
    sorted(
        (*studies_exact.STUDIES, *studies_in_time.STUDIES, *studies_in_space.STUDIES),
        key=lambda study: systems.NAMES.index(study.system),
    )
)
