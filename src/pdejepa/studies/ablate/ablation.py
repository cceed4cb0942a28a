"""The whole ablation: the base, the runs that differ from it in one part, what is measured, the record.

    DIR/
      physics/  geo/  vanilla/  euler/ ..  no-anchor/     run folders, as `pdejepa train` writes them
      ablate.json                                         the record, written anew after every run
      .lock                                               one process per folder

The same call again skips what is finished and goes on with what was interrupted.  A run that diverges is noted in the
record, and the others go on without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from pdejepa.core.device import free_memory, rank_and_world
from pdejepa.core.errors import ConfigError, NumericalError, UsageError
from pdejepa.core.files import lock
from pdejepa.core.run_folder import METHOD_STAGES
from pdejepa.method.pipeline import train
from pdejepa.method.run_config import RunConfig
from pdejepa.studies.ablate.ablation_record import (
    Ablation,
    earlier_record,
    new_record,
    with_failure,
    with_run,
    write_record,
)
from pdejepa.studies.ablate.measure import Measuring
from pdejepa.studies.ablate.reuse_stages import (
    copy_fitted,
    done,
    is_finished,
    read_base,
    refuse_other_settings,
    take_over,
)
from pdejepa.studies.ablate.runs import BASE, Run, run_config, runs_for, with_steps

Say = Callable[[str], object]
SIDE = "reconstruct"


def ablate(
    config: RunConfig,
    out: str | Path,
    what: Sequence[str],
    base: str | Path | None = None,
    n: int | None = None,
    say: Say = print,
) -> Ablation:
    """Train what `what` needs in the folder `out`, measure it, and return the record.

    config: of the base, which has the variant physics; its budgets settle the number of steps of all runs.
    base: a finished run to take instead of training one; it is left as it is.
    n: trajectories of each split that are measured (None: all).
    """
    if rank_and_world()[1] > 1:
        raise UsageError("pdejepa ablate runs in one process; start it without torchrun.")
    if config.variant != "physics":
        raise ConfigError(f"The base has the variant physics, got {config.variant}; the others are trained beside it.")
    folder = Path(out)
    with lock(folder, wait=False):
        return _Ablation(dataclasses.replace(config, stages=METHOD_STAGES), folder, what, n, say).run(base)


class _Ablation:
    """One call."""

    def __init__(self, config: RunConfig, out: Path, what: Sequence[str], n: int | None, say: Say) -> None:
        self.config, self.out, self.what, self.n, self.say = config, out, what, n, say
        self.runs = runs_for(what, config)

    def run(self, base: str | Path | None) -> Ablation:
        if base is not None:
            self._take_base(Path(base))
        config = self._train_base()
        steps = {stage: self._steps(stage) for stage in METHOD_STAGES}
        base_run, *others = self.runs
        record = self._measure(base_run, config, None)
        for number, run in enumerate(others, start=2):
            self.say(f"Run {number} of {len(self.runs)}: {run.name} ({_told(run)})")
            config = run_config(self.config, run, steps)
            take_over(self.out / BASE, self.out / run.name, run.shared)
            try:
                self._finish(run.name, config)
            except NumericalError as error:
                self.say(f"{run.name} is left out. {error}")
                record = with_failure(record, run.name, str(error))
                write_record(record, self.out)
            else:
                record = self._measure(run, config, record)
        return record

    # ---- training ------------------------------------------------------------------------------------------------
    def _take_base(self, base: Path) -> None:
        """Everything of a finished run that is needed, under our own roof."""
        read_base(base)
        refuse_other_settings(base, self.config, "Leave out what differs, or leave out --base.")
        here = self.out / BASE
        if base.resolve() == here.resolve():
            return
        take_over(base, here, METHOD_STAGES)
        copy_fitted(base, here)
        side, decode = done(base, SIDE), done(base, "decode")
        if SIDE in self.what and side and decode and side["steps"] == decode["steps"] and not (here / SIDE).exists():
            take_over(base, here, (SIDE,))

    def _train_base(self) -> RunConfig:
        """The four stages, then the side stage with as many steps as the decoder had."""
        self.say(f"Run 1 of {len(self.runs)}: {BASE} (the base)")
        if SIDE not in self.what or done(self.out / BASE, "decode") is None:
            self._finish(BASE, self._with_side_budget(self.config))
        config = self._with_side_budget(self.config)
        if SIDE in self.what:
            config = dataclasses.replace(config, stages=(*METHOD_STAGES, SIDE))
            self._finish(BASE, config)
        return config

    def _with_side_budget(self, config: RunConfig) -> RunConfig:
        """A budget of seconds is known in steps once the decoder is finished; before, the side stage cannot begin."""
        finished = done(self.out / BASE, "decode")
        return config if finished is None else with_steps(config, {SIDE: finished["steps"]})

    def _steps(self, stage: str) -> int:
        found = done(self.out / BASE, stage)
        assert found is not None
        return int(found["steps"])

    def _finish(self, name: str, config: RunConfig) -> None:
        """Train a run to its end, unless it is there."""
        folder = self.out / name
        refuse_other_settings(folder, config, "Use the same ones, or another --out.")
        if is_finished(folder, config.stages):
            self.say(f"{name}: finished.")
            return
        try:
            train(config, folder, self.say)
        finally:
            free_memory()

    # ---- measuring -----------------------------------------------------------------------------------------------
    def _measure(self, run: Run, config: RunConfig, record: Ablation | None) -> Ablation:
        """The record with this run in it, written."""
        measuring = Measuring(self.out / run.name, config, self.n)
        if record is None:
            record = new_record(measuring.forecaster, self.what, self.n, earlier_record(self.out))
        record = with_run(record, run.name, measuring.row(run, record.runs.get(run.name)))
        write_record(record, self.out)
        return record


def _told(run: Run) -> str:
    changes = ", ".join(f"{name}={value}" for name, value in run.changes.items())
    return f"{changes}; {' and '.join(run.shared)} from the base"
