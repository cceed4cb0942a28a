"""The folder of a stage that is not worth resuming: what others write to disk, it holds in memory.

Metrics and the plan are files as ever; weights and optimiser states, which may be gigabytes, are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pdejepa.training.checkpoint import Snapshot, StageFolder, Tensors


@dataclass(frozen=True)
class Scratch(StageFolder):
    """Best and final weights, where they were computed; nothing that a resume would need."""

    fate: ClassVar[str] = "it was kept in memory only. The same command begins it anew"
    resumes: ClassVar[bool] = False
    held: dict[str, Snapshot] = field(default_factory=dict)
    done: dict[str, Any] = field(default_factory=dict)

    def save(self, step: int, weights: Tensors, optimiser: Tensors, state: Mapping[str, Any]) -> None:
        return

    def _write(self, name: str, parts: Mapping[str, Tensors], state: Mapping[str, Any]) -> None:
        copies = {key: value.detach().clone() for tensors in parts.values() for key, value in tensors.items()}
        self.held[name] = Snapshot(name, dict(state), copies)

    def read(self, name: str) -> Snapshot:
        return self.held[name]

    def digest(self, name: str, file: str) -> str:
        """There is no file; stages that follow are held in memory too."""
        return ""

    def write_done(self, done: Mapping[str, Any]) -> None:
        self.done.update(done)

    def read_done(self) -> dict[str, Any] | None:
        return self.done or None
