"""The folder of one training run.

    RUN/
      config.json             the resolved configuration and the versions it was started with
      data.json               hash of the data, statistics
      pretrain/               one folder per stage: pretrain align dynamics decode polish reconstruct
        plan.json             number of steps (seconds become steps here, once), batch, seed, upstream hashes, exactness
        step-000500/          weights.safetensors optimiser.safetensors state.json manifest.json   (two newest kept)
        latest.json           {"folder": "step-000500"}
        best/                 weights.safetensors state.json manifest.json
        metrics.jsonl         one line per log or score; equal for equal runs
        timings.jsonl         seconds spent on the stage over all tries; never compared
        final/                weights.safetensors state.json manifest.json   the selected weights
        done.json             steps, selected step, hash of the weights, upstream hashes, seconds; written last
      latents.json            what was fitted on latents (variant vanilla, second-order systems)
      model/                  the finished checkpoint, for forecasts
      model-four-stages/      the same before polishing, if it was polished
      .lock                   one process per run
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STAGES = ("pretrain", "align", "dynamics", "decode", "polish", "reconstruct")
METHOD_STAGES = ("pretrain", "align", "dynamics", "decode")
SOLVER_NAME = "solver.json"  # of the run of a published solver


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run; see the drawing above."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.json"

    @property
    def data(self) -> Path:
        return self.root / "data.json"

    @property
    def model(self) -> Path:
        return self.root / "model"

    def stage(self, name: str) -> Path:
        return self.root / name
