"""Generate a data set: `pdejepa generate`, or `generate(GenerateConfig(system="combined", out="d"))`.

    OUT/
      config.json                               what was asked for, completely resolved
      data/train/combined_train_0000.hdf5       shards in The Well's layout (see `well.writer`)
      data/valid/  data/test/  data/ood/
      stats.yaml                                statistics of train
      README.md  picture.png                    the card and its picture
      manifest.json                             SHA-256 of everything above; written last
      generation.json                           devices, versions, seconds, outcomes; differs from run to run
      .journal/                                 one record per finished shard (see `journal`)
      .lock  .lock.I-of-N                       one writer per folder or slice

The same command continues whatever is there: shards that are finished and have the right hash are kept,
everything else is made.  A shard depends on nothing but the plan and the computing stack, so it does not matter
who makes it when: killed and resumed, sliced with `--shard i/n`, shared by torchrun ranks or by the workers of a
cluster, or in one go, the manifest is the same.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdejepa.core.device import pick_device, rank_and_world
from pdejepa.core.errors import ConfigError, DataError, Interrupted
from pdejepa.core.files import check_free_space, lock, remove_leftovers, write_text
from pdejepa.core.progress import Progress, progress
from pdejepa.core.text import human_bytes
from pdejepa.data.generate.finish import CONFIG, Finisher, read_manifest
from pdejepa.data.generate.journal import Journal
from pdejepa.data.generate.layout import GenerateConfig, Piece, Plan, parse_slice
from pdejepa.data.generate.shard_task import jobs, make_on_worker, make_shard
from pdejepa.data.well.validate import find_splits

__all__ = ["GenerateConfig", "GenerateReport", "generate"]

Say = Callable[[str], object]
WORTH_TELLING = 2_000_000_000  # bytes; verifying less takes a moment only


def _to_stderr(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class GenerateReport:
    """What a run of `generate` did, and what the folder holds now."""

    out: Path
    n_generated: int  # trajectories computed in this run
    n_trajectories: int  # in this run's share of the data set
    n_bytes: int
    seconds: float
    is_complete: bool
    n_unfinished: int  # shards of other slices that are still missing
    outcomes: dict[str, int] = field(default_factory=dict)
    n_redrawn: int = 0


def generate(config: GenerateConfig, say: Say = _to_stderr) -> GenerateReport:
    """Make, continue, verify or repair the data set `config.out`; news go to `say`.

    Raises DataError if the folder holds something else, ResourceError if it does not fit or another process
    writes there, NumericalError if rows cannot be solved, Interrupted on Ctrl-C.  Finished shards survive all
    of them.
    """
    run = _Run(Plan.of(config), Path(config.out), say)
    try:
        return run.run()
    except KeyboardInterrupt:
        n = len(run.plan.pieces)
        done = n - len(run.journal.unfinished(run.plan.pieces))
        raise Interrupted(f"Stopped; {done} of {n} shards are finished. Run the same command to continue.") from None


class _Run:
    """One run over one slice of the work."""

    def __init__(self, plan: Plan, root: Path, say: Say) -> None:
        self.plan, self.root, self.say = plan, root, say
        self.journal = Journal(root)
        self.device = None if plan.config.scheduler else pick_device(plan.config.device)  # None: a worker's own
        self.number, self.of = _own_slice(plan.config)
        self.pieces = plan.slice(self.number, self.of)
        self.n_generated = 0

    def run(self) -> GenerateReport:
        begun = time.monotonic()
        self._refuse_foreign_folder()
        is_alone = self.of == 1
        part = None if is_alone else (self.number, self.of)
        with lock(self.root, part, self.plan.config.wait, self.say, "--no-wait"):
            self._prepare(is_alone)
            self._make(self._verify())
            if is_alone:
                Finisher(self.plan, self.root, self.say).run()
        unfinished = self.journal.unfinished(self.plan.pieces)
        if not is_alone and not unfinished:
            with lock(self.root, say=self.say):
                Finisher(self.plan, self.root, self.say).run()
        return self._report(time.monotonic() - begun, len(unfinished))

    # ---- the folder --------------------------------------------------------------------------------------
    def _refuse_foreign_folder(self) -> None:
        """Never mix with files that are not ours, and leave no trace in such a folder."""
        known = any((self.root / name).exists() for name in (CONFIG, "manifest.json", self.journal.folder.name))
        if known or not self.root.is_dir():
            return
        visible = sorted(entry.name for entry in self.root.iterdir() if not entry.name.startswith("."))
        if visible:
            raise DataError(
                f"{self.root} is not empty and holds no data set of ours (it has {visible[0]!r}). Choose another --out."
            )

    def _prepare(self, is_alone: bool) -> None:
        """Settle whose folder this is, and clear away what killed writers left behind."""
        with lock(self.journal.folder, say=self.say):
            self._settle_config()
            self._remove_leftovers(is_alone)
        self._refuse_strangers()

    def _remove_leftovers(self, is_alone: bool) -> None:
        for folder in (self.root, self.journal.folder, *(self.root / "data").glob("*")):
            remove_leftovers(folder, alone=is_alone)

    def _refuse_strangers(self) -> None:
        """Loaders read every file of a split folder, so a stray one would slip into the data unnoticed."""
        ours = {piece.path for piece in self.plan.pieces}
        for path in (path for files in find_splits(self.root).values() for path in files):
            if path.relative_to(self.root).as_posix() not in ours:
                raise DataError(f"{path} is not part of this data set, but loaders would read it too. Move it away.")

    def _settle_config(self) -> None:
        """Write config.json, or compare with the one that is there."""
        path, manifest = self.root / CONFIG, read_manifest(self.root)
        entry = manifest.files.get(CONFIG)
        if entry is not None and entry.sha256 == self.plan.stored_sha256():
            return  # the manifest vouches for us; a damaged config.json is written again at the end
        if not path.exists() and entry is None:
            write_text(path, self.plan.stored_text())
            return
        try:
            there: dict[str, Any] = dict(json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError, RecursionError):
            raise DataError(f"{path} is missing or damaged; choose another --out, or remove {self.root}.") from None
        differences = _differences(there, self.plan.stored())
        if differences:
            raise DataError(
                f"{self.root} holds another data set: {'; '.join(differences)}. "
                "Choose another --out, or remove the folder."
            )

    # ---- the work ----------------------------------------------------------------------------------------
    def _verify(self) -> list[Piece]:
        """The pieces of this slice that must be made; finished ones are checked by their hash."""
        manifest = read_manifest(self.root)
        present = sum((self.root / p.path).stat().st_size for p in self.pieces if (self.root / p.path).is_file())
        if present > WORTH_TELLING:
            self.say(f"Verifying {human_bytes(present)} of finished shards.")
        needed = []
        for piece in self.pieces:
            damage = self.journal.damage(piece, manifest)
            if damage is None:
                continue
            needed.append(piece)
            if damage.reason == "missing":
                self.say(f"Shard {piece.label} is missing; making it again.")
            elif damage.reason != "unfinished":
                self.say(f"Shard {piece.label} is damaged ({damage.reason}); rebuilding it.")
        found = len(self.pieces) - len(needed)
        if found:
            more = f"Generating {len(needed)} more." if needed else "Nothing to generate."
            self.say(f"Found {found} of {len(self.pieces)} shards, verified. {more}")
        return needed

    def _make(self, needed: list[Piece]) -> None:
        missing = self.journal.unfinished(self.plan.pieces)  # other slices fill the same disk
        pieces = tuple(dict.fromkeys((*needed, *missing)))
        check_free_space(self.root, self.plan.estimate_bytes(pieces), "this data set")
        if not needed:
            return
        name = self.plan.system.name
        label = name if self.of == 1 else f"{name} {self.number}/{self.of}"
        with progress(sum(piece.n for piece in needed), label) as bar:
            if self.device is None:
                self._make_on_cluster(needed, bar)
                return
            for piece in needed:
                self._count(piece, make_shard(self.plan, piece, self.root, self.device, bar.advance), bar)

    def _make_on_cluster(self, needed: list[Piece], bar: Progress) -> None:
        from pdejepa.core.cluster import connected

        with connected(self.plan.config.scheduler, self.root, bar.note) as cluster:
            for number, news in cluster.results(make_on_worker, jobs(self.plan, needed)):
                bar.advance(needed[number].n)
                self._count(needed[number], news, bar)
        self._remove_leftovers(True)  # of workers that were lost

    def _count(self, piece: Piece, news: list[str], bar: Progress) -> None:
        self.n_generated += piece.n
        for line in news:
            bar.note(line)

    # ---- the end -----------------------------------------------------------------------------------------
    def _report(self, seconds: float, n_unfinished: int) -> GenerateReport:
        records = [record for piece in self.pieces if (record := self.journal.read(piece))]
        outcomes: dict[str, int] = {}
        for record in records:
            for label, n in record.outcomes.items():
                outcomes[label] = outcomes.get(label, 0) + n
        return GenerateReport(
            out=self.root,
            n_generated=self.n_generated,
            n_trajectories=sum(piece.n for piece in self.pieces),
            n_bytes=sum(record.bytes for record in records),
            seconds=seconds,
            is_complete=n_unfinished == 0,
            n_unfinished=n_unfinished,
            outcomes=outcomes,
            n_redrawn=sum(len(record.redrawn) for record in records),
        )


def _own_slice(config: GenerateConfig) -> tuple[int, int]:
    """Slice of the work: `shard`, divided further among the ranks of torchrun if there are any."""
    (number, of), (rank, world) = parse_slice(config.shard), rank_and_world()
    if config.scheduler and world > 1:
        raise ConfigError("A scheduler shares the work out by itself. Start one process, without torchrun.")
    return number * world + rank, of * world


def _differences(there: dict[str, Any], here: dict[str, Any], prefix: str = "") -> list[str]:
    """`seed is 0 there, 1 here` for every key that differs; nested settings by their own name."""
    found = []
    for key in dict.fromkeys((*here, *there)):
        old, new = there.get(key), here.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key} is {_show(old)} there, {_show(new)} here")
    return found


def _show(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "empty"
    return "not set" if value is None else str(value)[:60]
