"""The training loop: one for all stages, with exact resume.

    step = 0 .. n_steps-1:   update, see `step`
    every log_every steps:   a line in metrics.jsonl
    n_scores times at most:  score on valid; the best weights are kept
    by time or steps:        a checkpoint; always at the end, and when asked to stop; in memory: `memory_store`
    n_steps:                 settled at the start; of seconds in memory it follows the clock, see `timing`

A stage that is finished is loaded, one that was interrupted goes on from its latest checkpoint, and one whose
upstream changed is refused.  On a CPU a resumed stage repeats every bit: the order of samples and all random numbers
depend on the step only, and everything else is in the checkpoint.  In files and messages, step N means N finished
steps; `step` in the code counts from 0.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from pdejepa.core.device import used_memory
from pdejepa.core.errors import ConfigError, Interrupted, NumericalError
from pdejepa.core.files import check_free_space
from pdejepa.core.progress import LINE_EVERY_S, Progress, progress
from pdejepa.core.text import human_bytes
from pdejepa.core.weights import first_not_finite, gather, restore
from pdejepa.training import timing
from pdejepa.training.average import with_averages
from pdejepa.training.checkpoint import BEST, StageFolder, step_name
from pdejepa.training.distributed import agree, ask_rank_zero, explain_loss, mean_over_ranks
from pdejepa.training.guard import Jumps, describe_trajectories
from pdejepa.training.interrupts import StepGivenUp, StopRequest, stop_on_signal
from pdejepa.training.memory_store import Scratch
from pdejepa.training.metrics_log import append_line, read_lines, sync
from pdejepa.training.plan import Plan, check_upstream, planned_steps
from pdejepa.training.resume import Best, find_start, hash_modules, rewind
from pdejepa.training.rounding import round_all
from pdejepa.training.schedule import score_steps
from pdejepa.training.stage import Batch, Context, Keep, Stage, silent
from pdejepa.training.stage_result import load_result, write_result
from pdejepa.training.step import Learner
from pdejepa.training.timing import N_WARM, Deadline, Measured, Work, measure

__all__ = ["Context", "run_stage"]

COUNTED = 100  # steps of a stage from which on their operations are counted, which takes a step or two


def run_stage(stage: Stage, folder: Path, context: Context) -> dict[str, Any]:
    """Train a stage, or go on with it, or load its result; return steps, seconds, score and hash of the weights.

    Afterwards the modules of `stage.saved()` hold the selected weights.  The caller holds the lock of the run folder.
    Raises CheckpointError (upstream changed, nothing usable), NumericalError (values that are not finite),
    ResourceError (disk full, a rank lost) and Interrupted; the latest checkpoint survives all of them.
    """
    # Several ranks hand over their results in files.
    kind = StageFolder if context.keep == "files" or context.world > 1 else Scratch
    store = kind(Path(folder), stage.settings.keep, context.say if context.rank == 0 else silent)
    done = store.read_done()
    if done is not None:
        check_upstream(stage.name, done["upstream"], context.upstream)
        result = load_result(stage, store)
        store.say(f"{stage.name}: finished, {result['steps']:,} steps.")
        return result
    training = _Training(stage, store, context)
    with stop_on_signal() as request, explain_loss(context.rank, training.whereabouts):
        try:
            training.prepare()
            training.run(request)
            result = training.finish()
            if agree([request.is_set])[0]:  # in the last step, or while it was judged
                raise Interrupted(f"Stopping after {stage.name}; {store.fate}.")
            return result
        except KeyboardInterrupt:
            latest = store.latest()
            rest = f"the latest checkpoint is {latest}" if latest else "nothing was saved yet"
            raise Interrupted(f"Stopped at once; {rest}. Continue with the same command.") from None
        finally:
            training.close()


class _Training:
    """One stage being trained by one rank."""

    def __init__(self, stage: Stage, store: StageFolder, context: Context) -> None:
        if stage.settings.batch % context.world:
            raise ConfigError(
                f"{stage.name}: a batch of {stage.settings.batch} cannot be shared out evenly among "
                f"{context.world} ranks. Choose a multiple of {context.world}."
            )
        self.stage, self.store, self.context, self.settings = stage, store, context, stage.settings
        if context.keep == "trial":  # only the end counts, and scores take long beside a few seconds of steps
            self.settings = dataclasses.replace(self.settings, n_scores=min(1, self.settings.n_scores))
        self.is_writer = context.rank == 0
        self.done, self.n_steps, self.n_scores, self.n_scored = 0, 0, 0, 0
        self.best: Best | None = None
        self.deadline: Deadline | None = None
        self.quickest = math.inf  # seconds of a step
        self._counted = 0.0  # operations of a step, once they are asked for
        self.begun = self.saved_at = self.noted_at = timing.clock()
        earlier = read_lines(store.root / "timings.jsonl") if store.resumes else []
        self.seconds_before = max([0.0, *(line.get("seconds", 0.0) for line in earlier)])
        self.frozen = hash_modules(stage.frozen())
        self.jumps = Jumps()
        self.learner = Learner(stage, context, self._refuse_bad_step)

    # ---- the loop ------------------------------------------------------------------------------------------------
    def run(self, request: StopRequest) -> None:
        before, self.n_scored = self.done, self._n_due()
        label = f"{self.stage.name}, trial" if self.context.keep == "trial" else self.stage.name
        shown = self.context.shown if self.is_writer else "nothing"
        with progress(self.n_steps - before, label, "steps", shown) as bar:
            if self.stage.scores_start and self.done == 0 and self._judge(bar):
                self._save(True)
            while self.done < self.n_steps:
                began = timing.clock()
                try:
                    metrics = self.learner.update(self.done, self.n_steps)
                except StepGivenUp:
                    self._give_up()
                self.done, request.is_preparing = self.done + 1, False
                self.quickest = min(self.quickest, timing.clock() - began)
                if self.deadline is not None:
                    n_left = max(self.n_scores - self.n_scored, min(1, self.n_scores))
                    self.n_steps = self.deadline.n_steps(self.done, n_left)
                    bar.resize(self.n_steps - before)
                is_last = self.done == self.n_steps
                if self.done == 2 or is_last:
                    self._refuse_long_steps()
                is_score = self._n_due() > self.n_scored
                if is_score or is_last or self.done % self.settings.log_every == 0:
                    self._log(metrics, bar)
                is_better = is_score and self._judge(bar)
                self.n_scored = max(self.n_scored, self._n_due())
                should_stop, should_save = agree([request.is_set, self._is_save_due()])
                if is_better or should_stop or should_save or is_last:
                    self._save(is_better)
                bar.advance()
                if should_stop and not is_last:
                    raise Interrupted(f"Stopping after step {self.done:,}; {self.store.fate}.")

    def _give_up(self) -> NoReturn:
        """Save the finished steps; the one that was given up changed no weight."""
        if self.done and self.store.resumes and self.store.latest() != step_name(self.done):
            self._save(False)
        if not self.done:
            raise Interrupted("Stopped in the first step. Start again with the same command.")
        raise Interrupted(f"Stopping after step {self.done:,}; {self.store.fate}.")

    def _refuse_long_steps(self) -> None:
        """The fastest one decides, since others may have waited for something; a single one may take twice as long."""
        limit, slack = self.context.limit, 2 if self.done == 1 else 1
        if limit is not None and self.quickest > slack * timing.LONGEST_STEP * limit.seconds:
            raise ConfigError(
                f"{self.stage.name}: a step takes {self.quickest:.2g} s, {self.quickest / limit.seconds:.1%} of the "
                f"budget of {limit.seconds:.4g} s, where {timing.LONGEST_STEP:.0%} is the most that is of use. Give "
                "more seconds, or take a smaller network."
            )

    def _n_due(self) -> int:
        """How many scores should have been made by now."""
        return sum(step <= self.done for step in score_steps(self.n_scores, self.n_steps))

    def _log(self, metrics: dict[str, Tensor], bar: Progress) -> None:
        named = self._values(metrics)
        self._record({"train": {**named, "lr": self.settings.optimiser.lr * self.learner.factor}})
        jump = self.jumps.notice(named["gradient_norm"])
        if jump:
            bar.note(f"step {self.done:,}: {jump}")
        if timing.clock() - self.noted_at >= LINE_EVERY_S:
            self.noted_at = timing.clock()
            memory = human_bytes(used_memory(self.context.device))
            bar.note(f"step {self.done:,}: loss {named['loss']:.4g}, {memory} of memory")

    def _values(self, metrics: dict[str, Tensor]) -> dict[str, float]:
        self._refuse_bad_step()
        values = mean_over_ranks(torch.stack([value.detach().float() for value in metrics.values()])).tolist()
        return dict(zip(metrics, values, strict=True))

    def _judge(self, bar: Progress) -> bool:
        """Score on valid; whether it is the best so far, in the eyes of rank 0."""
        begun = self.learner.now()
        scores = self.learner.score()
        score = scores["score"]
        if self.deadline is not None:
            self.deadline.scored(self.learner.now() - begun)
        self._record({"valid": scores})
        words = self.stage.describe(scores, self.done / self.n_steps)
        bar.note(f"step {self.done:,}: score {score:.4g} on valid" + (f"; {words}" if words else ""))
        is_better = self.is_writer and math.isfinite(score) and (self.best is None or score < self.best.score)
        if is_better:
            self.best = Best(self.done, score)
        return bool(agree([is_better])[0])

    def _is_save_due(self) -> bool:
        if self.settings.save_every:
            return self.done % self.settings.save_every == 0
        return self.is_writer and timing.clock() - self.saved_at >= self.settings.save_seconds

    def _save(self, is_better: bool) -> None:
        """A checkpoint of this step, then `best` if it is the best (see `resume` for the order)."""
        self._refuse_bad_step()
        weights, optimiser = gather(self.stage.saved()), self.learner.optimiser.tensors()
        bad = first_not_finite({**weights, **optimiser})
        if bad:
            raise NumericalError(
                f"{self.stage.name}, step {self.done:,}: {bad} holds values that are not finite, so nothing was saved. "
                f"Last good checkpoint: {self.store.latest() or 'none'}. Lower the learning rate."
            )
        if not self.is_writer:
            return
        sync(self.store.root / "metrics.jsonl")
        state = {"stage": self.stage.name, "best": self.best.to_plain() if self.best else None}
        self.store.save(self.done, weights, optimiser, state)
        if is_better:
            self.store.save_best(self.done, with_averages(weights, optimiser), state)
        self.saved_at = timing.clock()

    def _refuse_bad_step(self, batch: Batch | None = None) -> None:
        """`batch`: of the step that may be bad, if the weights are still those of that step."""
        bad = self.learner.guard.poll()
        if bad is not None:
            late = "" if self.learner.guard.is_immediate else f" (found after step {self.done:,})"
            tensor = "" if batch is None else self.learner.first_bad_tensor(batch)
            first = f"; first bad tensor: {tensor}" if tensor else ""
            raise NumericalError(
                f"{self.stage.name}, step {bad.step + 1:,}: {bad.what} is not finite{late}{first}. "
                f"The batch held {describe_trajectories(self.stage.trajectories(bad.step))}. "
                f"Last good checkpoint: {self.store.latest() or 'none'}. "
                "Look at these trajectories, or lower the learning rate."
            )

    def _record(self, line: dict[str, Any]) -> None:
        if self.is_writer:
            append_line(self.store.root / "metrics.jsonl", {"step": self.done, **line})
            append_line(self.store.root / "timings.jsonl", {"step": self.done, "seconds": self._seconds()})

    # ---- before and after ----------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Settle the number of steps, and go back to the latest checkpoint if there is one."""
        self.learner.join_ranks()
        plan, snapshot = find_start(self.stage, self.store, self.context)
        if plan is None:
            plan = self._make_plan()
        self.plan, self.n_steps, self.n_scores = plan, plan.steps, plan.scores
        if snapshot is not None:
            restore(self.stage.saved(), snapshot.weights, f"{self.stage.name}/{snapshot.name}")
            self.learner.optimiser.load(snapshot.optimiser, f"{self.stage.name}/{snapshot.name}")
            self.done = snapshot.step
        if self.is_writer:
            self.best = rewind(self.stage, self.store, snapshot)

    def _make_plan(self) -> Plan:
        weights, optimiser = gather(self.stage.saved()), self.learner.optimiser.tensors()
        size = sum(t.nbytes for t in (*weights.values(), *optimiser.values()))
        check_free_space(self.store.root, size * (self.settings.keep + 2), f"{self.stage.name}, with its checkpoints,")
        budget, scores = self.settings.budget, self.settings.n_scores
        steps = planned_steps(budget, self.stage.n_samples, self.settings.batch, self._step_flops)
        step_s = 0.0
        if not steps:
            found = self._probe()
            steps, scores, step_s = found.steps, found.scores, found.step_s
        begun, is_worth_it = self.learner.now(), self.context.keep == "files" and steps >= COUNTED
        flops = self._step_flops() if is_worth_it else 0.0
        if is_worth_it and step_s:  # counting takes a dozen steps of the seconds
            counting = self.learner.now() - begun
            steps -= ask_rank_zero(lambda: min(steps - 1, round(counting / step_s)))
        plan = Plan(
            steps=steps,
            batch=self.settings.batch,
            seed=self.context.seed,
            upstream=self.context.upstream,
            exactness="bit" if self.context.device.type == "cpu" else "loss",
            budget=dataclasses.asdict(budget),
            scores=scores,
            step_flops=flops,
        )
        if self.is_writer and self.deadline is None:
            plan.write(self.store.root)
        elif self.is_writer:
            self.store.root.mkdir(parents=True, exist_ok=True)
        return plan

    def _step_flops(self) -> float:
        if not self._counted:
            self.store.say(f"{self.stage.name}: counting the operations of its steps")  # on a CPU it may take a while
            self._counted = self.learner.step_flops()
        return self._counted

    def _probe(self) -> Measured:
        """How many steps and scores fit: time real ones, and a save."""

        def save() -> None:
            if self.is_writer:
                self.store.probe_save(gather(self.stage.saved()), self.learner.optimiser.tensors())

        keep: Keep = "files" if self.store.resumes else self.context.keep
        with self.learner.rehearsal() as take:
            n_warm = N_WARM if self.context.device.type == "cuda" else 1
            ends = self.context.limit.ends if self.context.limit is not None else math.inf
            found = measure(self.settings, Work(take, self.learner.score, save, self.learner.wait, n_warm), keep, ends)
        self.deadline = found.deadline
        if found.steps == 1:
            self.store.say(f"{self.stage.name}: its seconds are used up by preparing; it takes one step. Give it more.")
        return found

    def finish(self) -> dict[str, Any]:
        """Check what must not have changed, and write the selected weights; all ranks end up with them."""
        for name, digest in hash_modules(self.stage.frozen()).items():
            if digest != self.frozen[name]:
                raise RuntimeError(f"{self.stage.name} changed {name}, which it must leave as it is.")
        self.learner.rounded()  # by all ranks, if no score has asked for it: a loss may need the others
        if self.deadline is not None:
            dataclasses.replace(self.plan, steps=self.n_steps).write(self.store.root)
        ask_rank_zero(self._write_result)
        return load_result(self.stage, self.store)

    def _write_result(self) -> int:
        if self.settings.select == "best" and self.best is None:
            self.store.say(f"{self.stage.name}: no score on valid was finite; the last weights are used.")
        best = self.best if self.settings.select == "best" else None
        if best is not None:
            restore(self.stage.saved(), self.store.read(BEST).weights, f"{self.stage.name}/{BEST}")
        elif self.learner.optimiser.average is not None:
            self.learner.optimiser.average.take_place()
        round_all(self.learner.rounded())
        flops = self.plan.step_flops * self.n_steps
        write_result(self.stage, self.store, self.n_steps, best, self.context.upstream, self._seconds(), flops)
        return self.n_steps

    def _seconds(self) -> float:
        return round(self.seconds_before + timing.clock() - self.begun, 3)

    def whereabouts(self) -> str:
        return f"at step {self.done + 1:,}. Last checkpoint: {self.store.latest() or 'none'}."

    def close(self) -> None:
        self.learner.close()
