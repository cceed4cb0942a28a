"""What models derive from a problem."""

from __future__ import annotations

import pytest

from pdejepa.systems.problem import Axis, Boundary, Parameter, Problem, Structure, Term, Uniform, power

STRUCTURE = Structure((Term("speed", "c", power("speed"), "rms", "u_x"),), has_shared=False)


def problem(*boundaries: Boundary, edges: str = "") -> Problem:
    axes = tuple(Axis(name, (0.0, 1.0), boundary) for name, boundary in zip("xyz", boundaries, strict=False))
    speed = Parameter("speed", "c", "speed", Uniform(0.0, 1.0), (0.0, 2.0))
    return Problem("mine", ("u",), axes, (0.0, 1.0), (speed,), STRUCTURE, edges=edges)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("boundaries", "padding"),
    [
        (("periodic",), "circular"),
        (("dirichlet", "dirichlet"), "zeros"),
        (("neumann", "neumann"), "reflect"),
        (("open",), "reflect"),
        (("periodic", "dirichlet"), "zeros"),
        (("neumann", "periodic"), "reflect"),
    ],
)
def test_convolutions_never_wrap_around_a_wall(boundaries: tuple[Boundary, ...], padding: str) -> None:
    assert problem(*boundaries).padding == padding


def test_a_problem_may_choose_its_edges() -> None:
    assert problem("periodic", "periodic", edges="zeros").padding == "zeros"


def test_axes_wrap_around_one_by_one() -> None:
    assert problem("periodic", "neumann").periodic_axes == (True, False)
