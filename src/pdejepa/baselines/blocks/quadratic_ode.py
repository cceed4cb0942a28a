"""dq/dt = c + A q + H(q, q) + g(t), each row with its own c, A and H: as a stepper of `solve.march`.

c, A and H are sums over operators, c = sum_m r_m c_m and so on.  Classical RK4; every row takes steps that suit the
norm of its Jacobian A + H(q, .) + H(., q) at the beginning of a frame.  Where H and g are missing the solution is
exact, by the exponential of ((A, c), (0, 0)).
Letters: B rows, r modes, M operators, p features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pdejepa.baselines.blocks.affine_least_squares import pairs
from pdejepa.solve.integrators import rk4_step, rk4_weights
from pdejepa.solve.march import March

STEP = 1.0  # times the norm of the Jacobian; RK4 is stable up to 2.8
MOST_STEPS = 600  # in a frame gap on average; a row that needs more has left what the model knows

Drive = Callable[[float], Tensor]  # t, in frame gaps -> g (B,r)


class QuadraticOde:
    """The stepper of some rows.  w (M,p,r) float64, r (B,M); decay (r,) is subtracted from the diagonal of A."""

    def __init__(
        self,
        w: Tensor,
        coefficients: Tensor,
        decay: Tensor,
        is_stable: bool = False,
        drive: Drive | None = None,
        linear: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        n = w.shape[-1]
        self.w, self.coefficients, self.drive, self.decay = w, coefficients, drive, decay
        if linear is None:
            combined = torch.einsum("bm,mpr->bpr", coefficients, w[:, : 1 + n])  # (B,1+r,r)
            constant, matrix = combined[:, 0], combined[:, 1:].mT - torch.diag(decay)
            linear = constant, without_growth(matrix) if is_stable else matrix
        self.constant, self.matrix = linear  # (B,r), (B,r,r)
        self.products = w[:, 1 + n :].flatten(0, 1)  # (M*pairs,r), no rows where the model is linear
        self.i, self.j = (index.to(w.device) for index in pairs(n))
        self.exact: dict[float, Tensor] = {}  # step -> exponential, of linear models

    def take(self, rows: Tensor) -> QuadraticOde:
        drive = self.drive
        own = None if drive is None else lambda t: drive(t)[rows]
        linear = self.constant[rows], self.matrix[rows]
        return QuadraticOde(self.w, self.coefficients[rows], self.decay, drive=own, linear=linear)

    def rhs(self, t: float, q: Tensor) -> Tensor:
        found = self.constant + (self.matrix @ q[..., None])[..., 0]
        if len(self.products):
            both = q[:, self.i] * q[:, self.j]  # (B,pairs)
            found = found + (self.coefficients[:, :, None] * both[:, None]).flatten(1) @ self.products
        return found if self.drive is None else found + self.drive(t)

    @property
    def is_linear(self) -> bool:
        return len(self.products) == 0 and self.drive is None

    def jacobian(self, q: Tensor) -> Tensor:
        """(B,r,r)."""
        if not len(self.products):
            return self.matrix
        quadratic = torch.zeros_like(self.matrix)
        weights = torch.einsum("bm,mpr->bpr", self.coefficients, self.products.unflatten(0, (len(self.w), -1)))
        quadratic.index_add_(2, self.i, (weights * q[:, self.j, None]).mT)
        quadratic.index_add_(2, self.j, (weights * q[:, self.i, None]).mT)
        return self.matrix + quadratic

    # ---- what a march asks for -----------------------------------------------------------------------------------
    def start(self, u0: Tensor) -> Tensor:
        return u0

    def observe(self, state: Tensor) -> Tensor:
        return state

    def tail(self, state: Tensor) -> Tensor | None:
        return None

    def stable_dt(self, state: Tensor, gap: float) -> Tensor:
        if self.is_linear:
            return torch.full_like(state[:, 0], torch.inf)
        is_sound = state.isfinite().all(1)
        jacobian = self.jacobian(torch.where(is_sound[:, None], state, 0.0))
        norm = torch.linalg.matrix_norm(jacobian.clamp(-1e100, 1e100), 2)
        return torch.where(is_sound, STEP / norm.clamp(min=1e-9), torch.nan)

    def advance(self, state: Tensor, t: float, h: float, n: int) -> Tensor:
        if self.is_linear:
            return self._exactly(state, round(n * h, 12))
        weights = rk4_weights(h, state)
        for k in range(n):
            times = iter((t + k * h, t + (k + 0.5) * h, t + (k + 0.5) * h, t + (k + 1) * h))

            def stage(v: Tensor, u: Tensor, total: Tensor, w: Tensor, a: Tensor | None) -> tuple[Tensor, Tensor]:
                k_now = self.rhs(next(times), v)  # noqa: B023
                return total + w * k_now, u if a is None else u + a * k_now

            state = rk4_step(stage, state, weights)
        return state

    def _exactly(self, state: Tensor, h: float) -> Tensor:
        if h not in self.exact:
            B, r = self.constant.shape
            generator = self.matrix.new_zeros((B, r + 1, r + 1))
            generator[:, :r, :r], generator[:, :r, r] = h * self.matrix, h * self.constant
            self.exact[h] = torch.linalg.matrix_exp(generator)[:, :r]
        return (self.exact[h] @ torch.cat((state, state.new_ones(len(state), 1)), 1)[..., None])[..., 0]


def without_growth(matrix: Tensor) -> Tensor:
    """A (B,r,r) with the real parts of its growing eigenvalues set to zero: alone, it lets nothing grow for ever."""
    values, vectors = torch.linalg.eig(matrix)
    excess = vectors * values.real.clamp(min=0).to(values.dtype)[:, None]
    return matrix - torch.linalg.solve(vectors, excess, left=False).real


def rolled_out(ode: QuadraticOde, q0: Tensor, times: Sequence[float], t0: float) -> Tensor:
    """States (B,T,r) at `times`, counted in frame gaps; NaN from where a row left every bound or ran out of steps."""
    march = March(ode, len(q0), 1.0, MOST_STEPS * max(1, len(times)), float("inf"))
    return march.run(q0, list(times), t0)[0]
