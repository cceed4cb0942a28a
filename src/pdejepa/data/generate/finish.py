"""Turn finished shards into a data set: statistics, picture, card, and the manifest that proves them.

Done once, by whoever finds all shards finished and holds the folder.  It may be repeated at any time: what is
already right is left alone, and equal shards give equal files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pdejepa.core.errors import DataError
from pdejepa.core.files import Manifest, write_json, write_text
from pdejepa.data.generate.dataset_card import DatasetCard
from pdejepa.data.generate.journal import Journal, PieceRecord
from pdejepa.data.generate.layout import Piece, Plan
from pdejepa.data.generate.stats import merge_moments, stats_of, stats_text
from pdejepa.data.well.reader import Dataset

CONFIG, STATS, CARD, PICTURE, GENERATION = (
    "config.json",
    "stats.yaml",
    "README.md",
    "picture.png",
    "generation.json",
)

Say = Callable[[str], object]


def read_manifest(root: Path) -> Manifest:
    """The manifest, or an empty one if there is none yet or it is damaged."""
    try:
        return Manifest.read(root)
    except DataError:
        return Manifest()


@dataclass(frozen=True)
class Finisher:
    """The last step of one data set."""

    plan: Plan
    root: Path
    say: Say

    @cached_property
    def records(self) -> dict[Piece, PieceRecord]:
        journal = Journal(self.root)
        found = {piece: journal.read(piece) for piece in self.plan.pieces}
        lost = [piece.label for piece, record in found.items() if record is None]
        if lost:
            raise DataError(f"{self.root}: shard {lost[0]} is not finished. Run the same command to continue.")
        return {piece: record for piece, record in found.items() if record is not None}

    @property
    def products(self) -> list[str]:
        """What the manifest covers besides the shards."""
        has_train = any(split.name == "train" for split in self.plan.splits)
        return [CONFIG, *([STATS] if has_train else []), CARD, PICTURE]

    def run(self) -> None:
        """Write what is missing or no longer right; say why, unless it is simply the first time."""
        manifest = read_manifest(self.root)
        shards = {piece.path: record.entry for piece, record in self.records.items()}
        if all(manifest.files.get(path) == entry for path, entry in shards.items()):
            damage = manifest.verify(self.root, self.products)
            for item in damage:
                self.say(f"{item}; writing it again.")
            if not damage and (self.root / GENERATION).is_file():
                return
        elif manifest.files:
            self.say("Some shards have other bytes than before: manifest, statistics, picture and card are updated.")
        self._write(Manifest(dict(shards)))

    def _write(self, manifest: Manifest) -> None:
        stats = self._stats()
        write_text(self.root / CONFIG, self.plan.stored_text())
        if stats is not None:
            write_text(self.root / STATS, stats_text(stats))
        with Dataset.open(self.root) as data:
            self._draw(data)
            xi = {split.name: data.xi(split.name) for split in self.plan.splits}
        n_bytes = sum(record.bytes for record in self.records.values())
        n_redrawn = sum(len(record.redrawn) for record in self.records.values())
        write_text(self.root / CARD, DatasetCard(self.plan, xi, self.outcomes(), n_redrawn, n_bytes, stats).text())
        write_json(self.root / GENERATION, self._generation())
        for name in self.products:
            manifest.add(self.root, name)
        manifest.write(self.root)

    def _stats(self) -> dict[str, dict[str, float]] | None:
        parts = [record.moments for record in self.records.values() if record.moments is not None]
        return stats_of(merge_moments(parts)) if parts else None

    def _draw(self, data: Dataset) -> None:
        from pdejepa.draw.pictures import draw_trajectory

        split = "test" if "test" in data.splits else data.splits[0]
        trajectory = data.read(split, 0)
        draw_trajectory(trajectory, self.root / PICTURE, title=f"{self.plan.system.title}, {split} 0")

    def outcomes(self) -> dict[str, dict[str, int]]:
        """{split: {outcome: rows}}."""
        total: dict[str, dict[str, int]] = {}
        for piece, record in self.records.items():
            counts = total.setdefault(piece.split, {})
            for label, n in record.outcomes.items():
                counts[label] = counts.get(label, 0) + n
        return total

    def _generation(self) -> dict[str, Any]:
        """How it was made: differs from run to run, so the manifest does not cover it."""
        redrawn: dict[str, dict[str, int]] = {}
        for piece, record in self.records.items():
            redrawn.setdefault(piece.split, {}).update({str(row): n for row, n in record.redrawn.items()})
        made = {piece.path: record.made for piece, record in self.records.items()}
        return {
            "devices": sorted({str(one["device"]) for one in made.values() if "device" in one}),
            "seconds": round(sum(float(one.get("seconds", 0.0)) for one in made.values()), 3),
            "outcomes": self.outcomes(),
            "redrawn": {split: rows for split, rows in redrawn.items() if rows},
            "shards": made,
        }
