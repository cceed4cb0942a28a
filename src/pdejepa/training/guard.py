"""Values that are not finite stop a training before they do harm.

Watched in every step: the loss (mean over ranks) and the norm of the gradient of every tensor (after the ranks were
averaged), so a bad value is named by its tensor.

    CPU    looked at in every step, before the update: nothing is changed by a bad step
    GPU    looking would make the GPU wait for us, so it notes by itself the first bad step and the norms of that
           step, and we read the note now and then and always before saving: nothing bad is ever saved

Gradients that are finite and far too large are clipped, so the loss does not tell; `Jumps` does.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

JUMP = 1000.0  # times the usual norm; batches of one training differ by ten or thirty
N_USUAL = 10  # norms before there is a usual one


@dataclass(frozen=True)
class BadStep:
    """The first step with a value that is not finite, and where."""

    step: int
    what: str


class FiniteGuard:
    """Remembers, on the device, the first step whose loss or gradients were not finite."""

    def __init__(self, names: list[str], device: torch.device) -> None:
        self.names = names
        self.is_immediate = device.type == "cpu"
        self._step = torch.full((), -1, dtype=torch.int64, device=device)
        self._values = torch.zeros(len(names) + 1, device=device)

    def watch(self, step: int, loss: Tensor, gradients: list[Tensor]) -> Tensor:
        """Take note of one step; return the global norm of the gradient, without waiting for the device."""
        norms = torch.stack(torch._foreach_norm(gradients))  # (number of tensors,)
        values = torch.cat([loss.detach().float().reshape(1), norms.float()])
        is_first = ~torch.isfinite(values).all() & (self._step < 0)
        self._step = torch.where(is_first, step, self._step)
        self._values = torch.where(is_first, values, self._values)
        return torch.linalg.vector_norm(norms)

    def poll(self) -> BadStep | None:
        """What was noted, if anything; waits for the device."""
        step = int(self._step)
        if step < 0:
            return None
        is_bad = (~torch.isfinite(self._values)).tolist()
        if is_bad[0]:
            return BadStep(step, "the loss")
        return BadStep(step, f"the gradient of {self.names[is_bad.index(True) - 1]}")


class Jumps:
    """Tells, once, when the norm of the gradient leaves what it was in the lines of metrics before."""

    def __init__(self) -> None:
        self._norms: deque[float] = deque(maxlen=5 * N_USUAL)
        self._is_told = False

    def notice(self, norm: float) -> str:
        """A warning to print, or an empty text."""
        usual = statistics.median(self._norms) if len(self._norms) >= N_USUAL else norm
        if not self._is_told and norm > JUMP * usual > 0:
            self._is_told = True
            return (
                f"the norm of the gradient jumped from {usual:.3g} to {norm:.3g}; while that lasts, steps are noise. "
                "Try a lower learning rate; if that does not help, distrust this precision or device"
            )
        self._norms.append(norm)
        return ""


def clip_gradients(gradients: list[Tensor], norm: Tensor, limit: float) -> None:
    """Scale all gradients by min(1, limit / norm), computed on the device; a limit of 0 leaves them alone."""
    if limit > 0:
        torch._foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp(max=1.0))


def describe_trajectories(numbers: list[int]) -> str:
    """`trajectories 3, 17, 20 and 61 more`."""
    shown = ", ".join(str(number) for number in numbers[:8])
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return f"trajectories {shown}{more}"
