"""Write an imported data set: `convert(plan, say)`.

    OUT/
      config.json                     what was imported, from which sources, and how it was cut into splits
      data/train/NAME_train_0000.hdf5 ...      The Well's layout, read like data of our own
      stats.yaml  README.md  picture.png  manifest.json
      certificate.json  CERTIFICATE.md         "imported, not solved", with what was checked
      .journal/  .lock                         as for generated data
      .scratch/                       unpacked members of compressed npz files; removed at the end

The same command continues what was stopped or killed: finished files are verified by their hash and kept.  Memory is
bounded by a block of trajectories.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from pdejepa import __version__
from pdejepa.core.errors import DataError, Interrupted
from pdejepa.core.files import (
    MANIFEST_NAME,
    Manifest,
    check_free_space,
    lock,
    remove_leftovers,
    write_aside,
    write_json,
    write_text,
)
from pdejepa.core.locks import remove_bare
from pdejepa.core.progress import progress
from pdejepa.data.audit.auditor import AuditConfig, audit
from pdejepa.data.audit.findings import Report
from pdejepa.data.generate.finish import CARD, CONFIG, GENERATION, PICTURE, STATS, read_manifest
from pdejepa.data.generate.journal import Journal, PieceRecord, describe_maker
from pdejepa.data.generate.layout import Piece
from pdejepa.data.generate.stats import merge_moments, stats_of, stats_text
from pdejepa.data.importing.hdf5_arrays import close_all
from pdejepa.data.importing.import_card import card_text
from pdejepa.data.importing.import_plan import ORIGIN, ImportPlan
from pdejepa.data.importing.scan import Signature, check_unchanged, hash_sources, scan, signatures
from pdejepa.data.well.blank_shard import create_fields, write_head, write_scalars
from pdejepa.data.well.reader import Dataset
from pdejepa.data.well.reserve import drop_reserve, reserve
from pdejepa.data.well.shard import FORMAT_VERSION

Say = Callable[[str], object]
SCRATCH = ".scratch"
BLOCK_BYTES = 64_000_000  # of fields held at once
OURS = (CONFIG, MANIFEST_NAME, Journal(Path()).folder.name)


@dataclass(frozen=True)
class ImportReport:
    """What an import left."""

    out: Path
    counts: dict[str, int]
    n_written: int  # trajectories, in this run
    n_bytes: int
    seconds: float
    certificate: Report


def refuse_foreign_folder(root: Path) -> None:
    """Never mix with files that are not of an import."""
    if not root.is_dir():
        return
    visible = sorted(entry.name for entry in root.iterdir() if not entry.name.startswith("."))
    if visible and CONFIG not in visible:
        there = f"it has {visible[0]!r}"
        raise DataError(f"{root} is not empty and holds no imported data ({there}). Choose another --out.")


def convert(plan: ImportPlan, say: Say) -> ImportReport:
    """Check all values, write what is missing, and the certificate; DataError leaves nothing half-written."""
    root, begun = plan.request.out, time.monotonic()
    refuse_foreign_folder(root)
    is_new = not any((root / name).exists() for name in OURS)
    with lock(root, wait=False):
        try:
            run = _Run(plan, say)
            run.run()
        except DataError:
            if is_new:
                discard(root)
            raise
        except KeyboardInterrupt:
            raise Interrupted("Stopped; finished files are kept. Run the same command to continue.") from None
        finally:
            close_all()
    certificate = audit(root, AuditConfig(), say)
    n_bytes = sum(record.bytes for record in run.records.values())
    return ImportReport(root, plan.partition.counts, run.n_written, n_bytes, time.monotonic() - begun, certificate)


def discard(root: Path) -> None:
    """Remove what an import that was refused began; call it holding the lock, or before anything was begun."""
    for name in ("data", Journal(root).folder.name, SCRATCH):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / CONFIG).unlink(missing_ok=True)
    remove_bare(root)


class _Run:
    """One run over one plan, holding the folder."""

    records: dict[Piece, PieceRecord]

    def __init__(self, plan: ImportPlan, say: Say) -> None:
        self.plan, self.say, self.root = plan, say, plan.request.out
        self.journal, self.n_written = Journal(self.root), 0
        self.before: dict[Path, Signature] = signatures(plan.request.files)

    def run(self) -> None:
        self._scan()
        self._settle_config()
        for folder in (self.root, self.journal.folder, *(self.root / "data").glob("*")):
            remove_leftovers(folder)
        self._make(self._verify())
        check_unchanged(self.before)
        self._finish()
        shutil.rmtree(self.root / SCRATCH, ignore_errors=True)

    def _scan(self) -> None:
        """Hashes and values of all sources; trajectories that repeat another one are left out."""
        plan, files = self.plan, self.plan.request.files
        with progress(len(files), "hashes of the sources", "files") as bar:
            sources = hash_sources(files, bar.advance)
        with progress(plan.found.n, "check") as bar:
            found = scan(plan.found, plan.xi, bar.advance)
        check_unchanged(self.before)
        found.refuse(plan.problem.fields, plan.found.n)
        if found.duplicates:
            pairs = ", ".join(f"{row} ({first})" for row, first in list(found.duplicates.items())[:5])
            self.say(f"{len(found.duplicates):,} trajectories repeat an earlier one and are left out: {pairs}.")
        self.plan = plan.with_sources(sources, sorted(found.duplicates))

    def _settle_config(self) -> None:
        """Write config.json, or compare with the one that is there."""
        path, text = self.root / CONFIG, self.plan.stored_text()
        if not path.exists():
            write_text(path, text)
            return
        try:
            there = dict(json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError, RecursionError):
            raise DataError(f"{path} is damaged; choose another --out, or remove {self.root}.") from None
        here = self.plan.stored()
        differ = [key for key in here if there.get(key) != here[key]]
        if differ:
            raise DataError(
                f"{self.root} holds another import, with other {', '.join(differ)}. Choose another --out, or remove it."
            )

    # ---- files -------------------------------------------------------------------------------------------
    def _verify(self) -> list[Piece]:
        """Files that must be made; finished ones are checked by their hash."""
        manifest = read_manifest(self.root)
        needed = [piece for piece in self.plan.pieces if self.journal.damage(piece, manifest) is not None]
        n, n_found = len(self.plan.pieces), len(self.plan.pieces) - len(needed)
        if n_found:
            more = f"Writing {len(needed)} more." if needed else "Nothing to write."
            self.say(f"Found {n_found} of {n} files, verified. {more}")
        return needed

    def _make(self, needed: list[Piece]) -> None:
        n_bytes = sum(piece.n * self.plan.row_bytes + 100_000 for piece in needed)
        check_free_space(self.root, n_bytes, "this data set")
        with progress(sum(piece.n for piece in needed), f"import {self.plan.problem.name}") as bar:
            for piece in needed:
                begun, path = time.monotonic(), self.root / piece.path
                with write_aside(path) as temporary:
                    with h5py.File(temporary, "w", locking=False) as file:
                        self._write(file, piece, bar.advance)
                    drop_reserve(temporary)
                check_unchanged(self.before)
                made = describe_maker(torch.device("cpu"), time.monotonic() - begun)
                self.journal.write(piece, PieceRecord.of_file(path, piece, made))
                self.n_written += piece.n

    def _write(self, file: h5py.File, piece: Piece, report: Callable[[int], None]) -> None:
        plan, problem, rows = self.plan, self.plan.problem, self.plan.source_rows(piece)
        reserve(file, 0)
        write_head(file, problem, piece.n, problem.times)
        create_fields(file, problem, piece.n, len(problem.times))
        step = max(1, BLOCK_BYTES // plan.row_bytes)
        for start in range(0, piece.n, step):
            self._fill(file["t0_fields"], rows[start : start + step], start)
            report(len(rows[start : start + step]))
        xi = plan.xi[list(rows)]  # (n,P)
        reserve(file, 2 * xi.nbytes + 32 * len(xi))
        write_scalars(file, problem.parameter_names, xi)
        self._write_provenance(file, piece, xi)

    def _fill(self, group: h5py.Group, rows: tuple[int, ...], start: int) -> None:
        """A block of trajectories: read in the order of the source, written in that of the split."""
        found, n_fields = self.plan.found, len(self.plan.problem.fields)
        reserve(group.file, len(rows) * self.plan.row_bytes, len(rows) * n_fields)
        block = np.empty((len(rows), found.n_frames, n_fields, *found.grid), np.float32)
        for at in np.argsort(rows):
            block[at] = found.row(rows[at])
        for channel, name in enumerate(self.plan.problem.fields):
            group[name][start : start + len(rows)] = block[:, :, channel]

    def _write_provenance(self, file: h5py.File, piece: Piece, xi: np.ndarray) -> None:
        problem, rows = self.plan.problem, list(self.plan.source_rows(piece))
        told = {
            "origin": ORIGIN,
            "title": problem.title,
            "equation": problem.equation,
            "boundaries": {axis.name: axis.boundary for axis in problem.axes},
        }
        group = file.create_group("provenance")
        group.attrs.update(
            format_version=FORMAT_VERSION,
            code_version=__version__,
            split=piece.split,
            config=json.dumps(told, sort_keys=True),
            parameter_names=list(problem.parameter_names),
        )
        group.create_dataset("parameters", data=xi, dtype="<f8")
        group.create_dataset("trajectory", data=np.arange(piece.start, piece.stop), dtype="<i8")
        group.create_dataset("source_row", data=rows, dtype="<i8")
        group.create_dataset("environment_id", data=self.plan.partition.environment[rows], dtype="<i8")

    # ---- the end -----------------------------------------------------------------------------------------
    def _finish(self) -> None:
        """Statistics, picture, card, and the manifest that proves them."""
        from pdejepa.draw.pictures import draw_trajectory

        root, plan = self.root, self.plan
        found = {piece: self.journal.read(piece) for piece in plan.pieces}
        self.records = {piece: record for piece, record in found.items() if record is not None}
        stats = stats_of(merge_moments(record.moments for record in self.records.values() if record.moments))
        write_text(root / STATS, stats_text(stats))
        with Dataset.open(root) as data:
            draw_trajectory(data.read("test", 0), root / PICTURE, title=f"{plan.problem.title}, test 0")
        write_text(root / CARD, card_text(plan, stats, sum(record.bytes for record in self.records.values())))
        made: dict[str, Any] = {piece.path: record.made for piece, record in self.records.items()}
        write_json(root / GENERATION, {"origin": ORIGIN, "files": made})
        manifest = Manifest({piece.path: record.entry for piece, record in self.records.items()})
        for name in (CONFIG, STATS, CARD, PICTURE):
            manifest.add(root, name)
        manifest.write(root)
