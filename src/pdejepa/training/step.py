"""The weights of a stage, what one step does to them, and how good they are; on one rank.

    update(step, n_steps)     loss, gradients (averaged over ranks), finite?, clip, optimiser, moving averages
    score()                   on valid, with the weights as they will be used
    rehearsal()               steps that are taken and taken back, to time them or to count their operations

When steps are taken, and what becomes of the weights, is the loop's business (see `loop`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from pdejepa.core.device import tf32, without_new_code
from pdejepa.core.weights import gather, restore
from pdejepa.training import timing
from pdejepa.training.cuda_graph import Gradients, Metrics
from pdejepa.training.distributed import mean_over_ranks
from pdejepa.training.first_bad import first_bad_tensor
from pdejepa.training.flops import counted, step_flops
from pdejepa.training.guard import FiniteGuard, clip_gradients
from pdejepa.training.interrupts import GRACE_S, let_signals_in, may_be_given_up, stop_if_asked
from pdejepa.training.on_host import Ahead
from pdejepa.training.optim import build_optimiser
from pdejepa.training.resume import choose_trained
from pdejepa.training.rounding import rounded, seen_rounded
from pdejepa.training.schedule import learning_rate_factor
from pdejepa.training.stage import Batch, Context, Stage
from pdejepa.training.timing import PROBE_STEPS


class Learner:
    """`refuse(batch)` is called where it is known at once whether a step is bad, before it changes the weights."""

    def __init__(self, stage: Stage, context: Context, refuse: Callable[[Batch], object]) -> None:
        self.stage, self.context, self.settings, self._refuse = stage, context, stage.settings, refuse
        self.model: nn.Module = stage  # wrapped if there are several ranks
        choose_trained(stage)
        self._ahead = Ahead(stage.batch, context.device) if stage.fetches else None
        self._watches: list[RemovableHandle] = []
        self._watch(math.inf)  # how long the first step takes is not known
        self._renew()
        self.gradients = self._gradients()
        self.factor = 1.0  # of the learning rate, in the latest step
        self._seen: list[Tensor] | None = None

    def _renew(self) -> None:
        self.optimiser = build_optimiser(self.stage.trained(), self.settings.optimiser, self.settings.average)
        self.guard = FiniteGuard(list(self.optimiser.parameters), self.context.device)

    def _gradients(self, records: bool = True) -> Gradients:
        can_record = self.context.record and self.context.device.type == "cuda" and self.context.world == 1
        should_record = records and can_record
        return Gradients(self.model, list(self.optimiser.parameters.values()), self._autocast, should_record)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.context.device.type, dtype=torch.bfloat16, enabled=self.context.precision == "bf16")

    def join_ranks(self) -> None:
        """Average gradients over the ranks from now on, if there are several."""
        if self.context.world > 1:
            self.model = DistributedDataParallel(self.stage, broadcast_buffers=False, gradient_as_bucket_view=True)
            self.gradients = self._gradients()

    # ---- steps and scores ----------------------------------------------------------------------------------------
    def update(self, step: int, n_steps: int) -> Metrics:
        """One step: everything that changes the weights is here."""
        began = timing.clock()
        self.factor = learning_rate_factor(self.settings.schedule, step, n_steps)
        self.optimiser.set_factor(self.factor)
        with may_be_given_up():
            with torch.no_grad():
                batch = (self._ahead.take if self._ahead else self.stage.batch)(step, n_steps)
            metrics = self.gradients(batch)
        loss, gradients = mean_over_ranks(metrics["loss"].detach()), self.optimiser.gradients()
        norm = self.guard.watch(step, loss, gradients)
        if self.guard.is_immediate:
            self._refuse(batch)
        clip_gradients(gradients, norm, self.settings.optimiser.clip)
        self.optimiser.step()
        if self.optimiser.average is not None:
            self.optimiser.average.update(step, n_steps)
        with torch.no_grad():
            self.stage.after_update(step, n_steps)
            if self._ahead:
                self._ahead.prepare(step + 1, n_steps)
        self._watch(timing.clock() - began)
        return {**metrics, "loss": loss, "gradient_norm": norm}

    def _watch(self, seconds: float) -> None:
        """Let signals into the next backward pass if a step took so long that it may be given up."""
        is_long = seconds > GRACE_S / 2 and self.context.device.type == "cpu" and self.context.world == 1
        if is_long and not self._watches:
            self._watches = let_signals_in(self.stage)
        while self._watches and not is_long:
            self._watches.pop().remove()

    def first_bad_tensor(self, batch: Batch) -> str:
        """What is not finite first in the loss of a batch; empty if all is, or if several ranks had to say the same."""
        if self.context.world > 1:
            return ""
        with self._autocast():
            return first_bad_tensor(self.stage, batch)

    def score(self) -> dict[str, float]:
        """In float32, as forecasts are judged, if with the fast products of a GPU."""
        device, seen = self.context.device, self.rounded()
        with (
            may_be_given_up(),
            torch.no_grad(),
            tf32(device),
            without_new_code(device),
            self.averaged(),
            rounded(seen),
        ):
            return self.stage.score()

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the trained weights are their moving averages, if any are kept."""
        average = self.optimiser.average
        return contextlib.nullcontext() if average is None else average.in_place()

    def rounded(self) -> list[Tensor]:
        """The trained parameters that are judged and finished as products in bfloat16 see them (`rounds`)."""
        if self._seen is None:
            is_wanted = self.settings.rounds and self.context.precision == "bf16"
            self._seen = self._see_rounded() if is_wanted else []
        return self._seen

    def _see_rounded(self) -> list[Tensor]:
        with torch.no_grad():
            batch = self.stage.batch(0, PROBE_STEPS)  # not watched: the first one may roll out a whole split

        def compute() -> None:
            with self._autocast():
                self.stage(batch)

        return seen_rounded(self.optimiser.parameters.values(), compute)

    # ---- before the first step -----------------------------------------------------------------------------------
    @contextlib.contextmanager
    def rehearsal(self) -> Iterator[Callable[[int], Metrics]]:
        """Real steps, any of PROBE_STEPS, that leave no trace."""
        before = {name: value.clone() for name, value in gather(self.stage.saved()).items()}

        def take(step: int) -> Metrics:
            self.rounded()  # found out in the first one
            metrics = self.update(step, PROBE_STEPS)
            stop_if_asked()
            return metrics

        yield take
        restore(self.stage.saved(), before, "the rehearsal")
        self._renew()

    def step_flops(self) -> float:
        """Operations of a typical step, the same for any number of ranks: what each of them repeats counts once."""
        self.rounded()  # looks at a step of its own
        usual, self.gradients = self.gradients, self._gradients(records=False)
        with self.rehearsal() as take:
            found, repeated = step_flops(self.stage, take), counted(self.optimiser.step)
        self.gradients = usual
        return self.context.world * (found - repeated) + repeated

    # ---- the device ----------------------------------------------------------------------------------------------
    def wait(self) -> None:
        """Until all that was asked for is done."""
        if self.context.device.type == "cuda":
            torch.cuda.synchronize(self.context.device)

    def now(self) -> float:
        """The time when all that was asked for is done."""
        self.wait()
        return timing.clock()

    def close(self) -> None:
        """Free the gradients, and let go of the parameters: the next stage may train them too."""
        self.gradients.close()
        self._watch(0.0)
        if isinstance(self.model, DistributedDataParallel):
            self.model._remove_autograd_hooks()
            self.model = self.stage
