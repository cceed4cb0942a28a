"""The learning rate over a stage, and the steps at which it is judged: pure functions of the step.

With N steps, W = round(warmup N) and s = 0 .. N-1 the factor f(s) of the learning rate is

    s < W      start + (1 - start) (s+1)/(W+1)                         warm-up
    constant   1
    cosine     final + (1 - final) (1 + cos(pi p))/2,  p = (s-W)/(N-W)
    wsd        1 until D = N - round(decay N), then 1 + (final - 1) p,  p = (s-D)/(N-D)

`start` would be reached one step before the first and `final` one step after the last, so that no step is spent at
a learning rate of zero.
"""

from __future__ import annotations

import math

from pdejepa.training.settings import ScheduleConfig


def learning_rate_factor(config: ScheduleConfig, step: int, n_steps: int) -> float:
    """f(s) for step s = 0 .. n_steps-1."""
    n_warm = round(config.warmup * n_steps)
    if step < n_warm:
        return config.start + (1.0 - config.start) * (step + 1) / (n_warm + 1)
    if config.kind == "cosine":
        share = (step - n_warm) / max(n_steps - n_warm, 1)
        return config.final + (1.0 - config.final) * (1.0 + math.cos(math.pi * share)) / 2
    if config.kind == "wsd":
        begin = max(n_warm, n_steps - round(config.decay * n_steps))
        share = max(0, step - begin) / max(n_steps - begin, 1)
        return 1.0 + (config.final - 1.0) * share
    return 1.0


def score_steps(n_scores: int, n_steps: int) -> tuple[int, ...]:
    """After how many finished steps the stage is judged: evenly spread, each once, the last at the end."""
    n = min(n_scores, n_steps)
    return tuple(sorted({round(number * n_steps / n) for number in range(1, n + 1)}))
