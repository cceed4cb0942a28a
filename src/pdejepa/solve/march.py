"""The one loop that marches a batch through its output times, with an outcome for every row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from pdejepa.solve.integrators import n_steps, stable_levels
from pdejepa.solve.outcome import Outcome

BLOW_UP = 1e6  # times the largest initial value: beyond it a row counts as diverged


class Stepper(Protocol):
    """What a stepped system supplies for some rows.  Nothing in it may mix rows."""

    def start(self, u0: Tensor) -> Tensor:
        """Initial field (B,C,*solver grid) -> whatever state (B,...) the stepper evolves."""

    def stable_dt(self, state: Tensor, gap: float) -> Tensor:
        """Largest stable step (B,) for the next `gap` of time, from each row's present state."""

    def advance(self, state: Tensor, t: float, h: float, n: int) -> Tensor:
        """n steps of size h from time t."""

    def observe(self, state: Tensor) -> Tensor:
        """State -> one stored frame (B,C,*grid)."""

    def take(self, rows: Tensor) -> Stepper:
        """The stepper of some of the rows, (b,) int64 on the state's device."""

    def tail(self, state: Tensor) -> Tensor | None:
        """Share of the energy at the grid scale (B,), or None where the notion does not apply."""


@dataclass
class March:
    """One solve: every row takes its own stable step dt / 2^level from frame to frame, rows of one level together."""

    everyone: Stepper
    n_rows: int
    dt: float
    max_steps: int
    tail_limit: float
    groups: dict[bytes, Stepper] = field(default_factory=dict)

    def run(self, u0: Tensor, times: list[float], t0: float) -> tuple[Tensor, Tensor]:
        """-> fields (B,T,C,*grid) and status (B,) int8."""
        state, t = self.everyone.start(u0), t0
        bound = BLOW_UP * (1 + u0.abs().flatten(1).amax(1))  # (B,)
        tail = torch.zeros(self.n_rows, device=u0.device)
        used = torch.zeros(self.n_rows, dtype=torch.int64)
        stopped = torch.full_like(used, len(times))  # frame at which a row's steps were used up
        fields: Tensor | None = None
        for i, t_next in enumerate(times):
            if t_next > t:
                state = self._advance(state, used, t, t_next)
                stopped[(used > self.max_steps) & (stopped > i)] = i
                t = t_next
            frame = self.everyone.observe(state)  # (B,C,*grid)
            if fields is None:
                fields = frame.new_empty((self.n_rows, len(times), *frame.shape[1:]))
            fields[:, i] = frame
            share = self.everyone.tail(state)
            if share is not None:
                tail = torch.maximum(tail, share.float())
        assert fields is not None
        return self._judge(fields, bound, tail, stopped)

    def _advance(self, state: Tensor, used: Tensor, t: float, t_next: float) -> Tensor:
        """All rows to t_next; a row whose steps are used up turns to NaN and stays so."""
        level = stable_levels(self.dt, self.everyone.stable_dt(state, t_next - t).cpu())  # (B,)
        levels = level.unique().tolist()
        plan = {value: n_steps(t_next - t, self.dt / 2**value) for value in levels}
        used += torch.tensor([plan[value] for value in level.tolist()])
        live = used <= self.max_steps
        if len(levels) == 1 and bool(live.all()):
            n = plan[levels[0]]
            return self.everyone.advance(state, t, (t_next - t) / n, n)
        result, groups = torch.full_like(state, torch.nan), {}
        for value in levels:
            rows = ((level == value) & live).nonzero().flatten()
            if len(rows):
                key, here, n = rows.numpy().tobytes(), rows.to(state.device), plan[value]
                groups[key] = self.groups.get(key) or self.everyone.take(here)
                result[here] = groups[key].advance(state[here], t, (t_next - t) / n, n)
        self.groups = groups  # rows mostly stay at their level: the next gap finds its steppers here
        return result

    def _judge(self, fields: Tensor, bound: Tensor, tail: Tensor, stopped: Tensor) -> tuple[Tensor, Tensor]:
        """Mark rows, and blank a diverged row from its first bad frame on."""
        status = torch.zeros(self.n_rows, dtype=torch.int8)
        status[(tail > self.tail_limit).cpu()] = int(Outcome.UNDER_RESOLVED)
        largest = fields.abs().flatten(2).amax(2)  # (B,T); NaN compares as False below
        bad = ~(largest <= bound[:, None])
        if bool(bad.any()):
            gone = bad.long().cummax(1).values.bool()  # the first bad frame and all after it
            fields[gone] = torch.nan
            first = (~gone).sum(1).cpu()
            status[first < fields.shape[1]] = int(Outcome.DIVERGED)
            # a row that blew up needs ever smaller steps: only one that was sound until then ran out of steps
            status[(stopped == first) & (stopped < fields.shape[1])] = int(Outcome.STEP_LIMIT)
        return fields, status
