"""The checkpoints of one stage: written aside and renamed, proven by a manifest, checked before they are used.

    STAGE/                        (the whole run folder is drawn in `core.run_folder`)
      .step-000500.tmp-4121-9c1e  what is being written: tensors, state, manifest last
      step-000500/                the same after the rename: complete, or not there at all
      latest.json                 replaced after the rename; then old checkpoints are removed

A kill at any point leaves the checkpoint before intact.  A checkpoint that is damaged all the same (a disk fault, a
bad copy) is passed over for the one before it: that costs repeated steps, not correctness.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from pdejepa.core.errors import CheckpointError, DataError, ResourceError
from pdejepa.core.files import MANIFEST_NAME, Manifest, is_disk_full, remove_leftovers, write_json
from pdejepa.core.weights import read_weights, write_weights
from pdejepa.training.stage import Say, silent

__all__ = ["Snapshot", "StageFolder", "read_weights", "step_name", "write_weights"]

WEIGHTS, OPTIMISER, STATE = "weights.safetensors", "optimiser.safetensors", "state.json"
LATEST, DONE, BEST, FINAL = "latest.json", "done.json", "best", "final"
_MAX_JSON_BYTES = 10_000_000
_STEP = re.compile(r"step-(\d{6,12})")
_ASIDE = re.compile(r"\.(step-\d{6,12}|best|final|probe)\.tmp-.+")

Tensors = Mapping[str, Tensor]


def step_name(step: int) -> str:
    return f"step-{step:06d}"


@dataclass(frozen=True)
class Snapshot:
    """What one checkpoint holds."""

    name: str
    state: dict[str, Any]
    weights: dict[str, Tensor]
    optimiser: dict[str, Tensor] = field(default_factory=dict)

    @property
    def step(self) -> int:
        return int(self.state["step"])


@dataclass(frozen=True)
class StageFolder:
    """The folder of one stage.  One process writes at a time; the lock of the run folder sees to that."""

    fate: ClassVar[str] = "saved. Continue with the same command"  # of what was trained, when it is stopped
    resumes: ClassVar[bool] = True
    root: Path
    keep: int = 2
    say: Say = silent

    # ---- saving --------------------------------------------------------------------------------------------------
    def save(self, step: int, weights: Tensors, optimiser: Tensors, state: Mapping[str, Any]) -> None:
        """Write `step-N`, make it the latest, and remove the ones that are no longer kept."""
        name = step_name(step)
        self._write(name, {WEIGHTS: weights, OPTIMISER: optimiser}, {**state, "step": step})
        with self._explain_full_disk(name):
            write_json(self.root / LATEST, {"folder": name})
        self._prune(step)

    def save_best(self, step: int, weights: Tensors, state: Mapping[str, Any]) -> None:
        """Replace `best`.  Save the same step as a checkpoint first: a kill in between is then repaired from it."""
        self._write(BEST, {WEIGHTS: weights}, {**state, "step": step})

    def write_final(self, weights: Tensors, state: Mapping[str, Any]) -> str:
        """Replace `final` by the selected weights; return the hash of the file."""
        self._write(FINAL, {WEIGHTS: weights}, state)
        return self.digest(FINAL, WEIGHTS)

    def digest(self, name: str, file: str) -> str:
        """The hash of a file of a checkpoint, as its manifest knows it."""
        return Manifest.read(self.root / name).files[file].sha256

    def write_done(self, done: Mapping[str, Any]) -> None:
        write_json(self.root / DONE, dict(done))

    def probe_save(self, weights: Tensors, optimiser: Tensors) -> None:
        """Do the work of saving once, for a clock, and leave nothing behind."""
        self._write("probe", {WEIGHTS: weights, OPTIMISER: optimiser}, {})
        shutil.rmtree(self.root / "probe")

    def _write(self, name: str, parts: Mapping[str, Tensors], state: Mapping[str, Any]) -> None:
        aside = self.root / f".{name}.tmp-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            with self._explain_full_disk(name):
                aside.mkdir(parents=True)
                for file, tensors in parts.items():
                    write_weights(aside / file, tensors)
                write_json(aside / STATE, dict(state))
                manifest = Manifest()
                for file in (*parts, STATE):
                    manifest.add(aside, file)
                manifest.write(aside)  # synced like the others; from here on the folder is complete
                _swap_in(aside, self.root / name)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise

    @contextlib.contextmanager
    def _explain_full_disk(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ResourceError) as error:
            if not is_disk_full(error):
                raise
            before = self.latest()
            rest = f"{before} is intact" if before else "nothing was saved before"
            raise ResourceError(
                f"Disk full while saving {name}; {rest}. Free some space, then run the same command again."
            ) from error

    def _prune(self, step: int) -> None:
        """Keep the newest ones up to `step`.  Later ones are from before a resume and will be made again."""
        kept = [known for known in self._steps() if known <= step][: self.keep]
        for known in self._steps():
            if known not in kept:
                shutil.rmtree(self.root / step_name(known), ignore_errors=True)

    # ---- loading -------------------------------------------------------------------------------------------------
    def latest(self) -> str:
        """The name of the latest complete checkpoint, or an empty text."""
        return next((name for name in self._candidates() if (self.root / name / MANIFEST_NAME).exists()), "")

    def load_latest(self) -> Snapshot | None:
        """The newest checkpoint that is complete and undamaged; None if none was ever completed."""
        damaged = []
        for name in self._candidates():
            if not (self.root / name / MANIFEST_NAME).exists():
                self.say(f"{self.root.name}: {name} was never finished; it is ignored.")
                continue
            try:
                return self.read(name)
            except CheckpointError as error:
                damaged.append(str(error))
                self.say(f"{self.root.name}: {error} Looking for an older checkpoint.")
        if damaged:
            raise CheckpointError(
                f"No checkpoint of {self.root.name} can be used. {damaged[0]} "
                f"Pass --restart {self.root.name} to begin it anew."
            )
        return None

    def read(self, name: str) -> Snapshot:
        """One checkpoint, `best` or `final`: manifest, sizes and hashes first, then the content."""
        folder, is_step = self.root / name, _STEP.fullmatch(name) is not None
        files = [WEIGHTS, OPTIMISER, STATE] if is_step else [WEIGHTS, STATE]
        if not (folder / MANIFEST_NAME).exists():
            raise CheckpointError(f"{folder} is missing or was never finished.")
        try:
            damage = Manifest.read(folder).verify(folder, files)
        except DataError as error:
            raise CheckpointError(str(error)) from error
        if damage:
            raise CheckpointError(f"{name if is_step else folder}/{damage[0]}.")
        state = self._read_json(folder / STATE)
        if type(state.get("step")) is not int:
            raise CheckpointError(f"{name if is_step else folder}/{STATE} names no step.")
        optimiser = read_weights(folder / OPTIMISER) if is_step else {}
        return Snapshot(name, state, read_weights(folder / WEIGHTS), optimiser)

    def read_done(self) -> dict[str, Any] | None:
        """done.json, or None while the stage is unfinished."""
        if not (self.root / DONE).exists():
            return None
        with self._advise_restart():
            done = self._read_json(self.root / DONE)
            if not isinstance(done.get("upstream"), dict) or type(done.get("steps")) is not int:
                raise CheckpointError(f"{self.root / DONE} is damaged.")
        return done

    def read_final(self) -> Snapshot:
        """The selected weights of a finished stage."""
        with self._advise_restart():
            return self.read(FINAL)

    @contextlib.contextmanager
    def _advise_restart(self) -> Iterator[None]:
        """Damage to what a finished stage left is final: say the way out."""
        try:
            yield
        except CheckpointError as error:
            raise CheckpointError(f"{error} Pass --restart {self.root.name} to begin it anew.") from error

    def clear(self) -> None:
        """Remove what killed writers left behind."""
        for path in sorted(self.root.iterdir()) if self.root.is_dir() else ():
            match = _ASIDE.fullmatch(path.name)
            if match and path.is_dir():
                self.say(f"{self.root.name}: {match[1]} was not finished when a process ended; it is ignored.")
                shutil.rmtree(path, ignore_errors=True)
        remove_leftovers(self.root)

    def _steps(self) -> list[int]:
        """The steps of all checkpoint folders, complete or not, newest first."""
        names = [path.name for path in self.root.iterdir() if path.is_dir()] if self.root.is_dir() else []
        return sorted((int(match[1]) for name in names if (match := _STEP.fullmatch(name))), reverse=True)

    def _candidates(self) -> list[str]:
        """Folders to try, the one of latest.json first."""
        names = [step_name(step) for step in self._steps()]
        try:
            named = self._read_json(self.root / LATEST).get("folder")
        except CheckpointError:
            named = None
        return sorted(names, key=lambda name: name != named)

    def _read_json(self, path: Path) -> dict[str, Any]:
        try:
            with path.open("rb") as stream:
                data = json.loads(stream.read(_MAX_JSON_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path} cannot be read ({error}).") from error
        if not isinstance(data, dict):
            raise CheckpointError(f"{path} is damaged.")
        return data


def _swap_in(aside: Path, target: Path) -> None:
    """Rename `aside` to `target`; a folder that is there already steps aside and comes back if that fails."""
    old = target.with_name(f".{target.name}.tmp-old-{secrets.token_hex(4)}") if target.exists() else None
    if old is not None:
        os.rename(target, old)
    try:
        os.rename(aside, target)
    except BaseException:
        if old is not None:
            os.rename(old, target)
        raise
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
