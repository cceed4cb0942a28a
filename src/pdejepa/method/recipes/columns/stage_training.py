"""How a stage is trained, as the recipes say it."""

from __future__ import annotations

from pdejepa.training.settings import Budget, OptimiserConfig, ScheduleConfig, StageTraining


def stage(
    budget: Budget,
    batch: int,
    lr: float,
    kind: str = "adamw",
    muon_lr: float = 1e-3,
    schedule: ScheduleConfig | None = None,
    n_scores: int = 5,
    select: str = "best",
    rounds: bool = False,
    average: float = 0.0,
) -> StageTraining:
    return StageTraining(
        budget=budget,
        batch=batch,
        optimiser=OptimiserConfig(kind=kind, lr=lr, muon_lr=muon_lr),  # type: ignore[arg-type]
        schedule=schedule or ScheduleConfig(warmup=0.05, final=0.01),
        n_scores=n_scores,
        select=select,  # type: ignore[arg-type]
        rounds=rounds,
        average=average,
    )
