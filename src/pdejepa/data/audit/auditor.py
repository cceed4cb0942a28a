"""Audit a data set: does it hold what it claims, and does what it claims hold?

    report = audit("data/combined")          report.verdict, report.findings, report.error()

    part          what is checked                                                                  a failure is
    manifest      every file has the recorded size and SHA-256; no stray files                     data (exit 3)
    format        The Well's layout, file by file and across files                                 data
    declarations  fields, parameters, grid, times and counts are those of the system               data
    frames        finite; no frame constant or repeated; recorded outcomes of the solves           data
    splits        no (u0, xi) twice; parameters are drawn by the law, inside limits, ID or OOD     data
    reproduction  a random sample, solved again, has the stored values                             physics (exit 5)
    reference     the same sample against something finer or independent                           physics
    parameters    each parameter changes the solution                                              physics
    invariants    conservation laws, maximum principles, ... on all rows, in float64               physics

Imported data have no solver: instead of declarations and physics, times, splits and parameters are looked at (see
`imported_checks`), and the verdict says so.  A folder that pdejepa did not make gets format and frames only.  Files are
hashed before they are opened, so that only intact files reach the HDF5 library; foreign files are read by a helper
process (see `inspector`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pdejepa.core.errors import DataError, ParameterError, ResourceError
from pdejepa.core.files import MANIFEST_NAME, Manifest, sha256_file
from pdejepa.core.progress import progress
from pdejepa.data.audit.findings import Report, counted
from pdejepa.data.audit.frame_faults import FrameFaults, tell_frames
from pdejepa.data.well.inspector import Inspector
from pdejepa.data.well.safety import FileFault
from pdejepa.data.well.validate import check_folder, find_splits

__all__ = ["AuditConfig", "audit"]

MAX_PROBLEMS_TOLD = 20
Say = Callable[[str], object]


@dataclass(frozen=True)
class AuditConfig:
    """How thoroughly to look.  samples: rows per split that are solved again; None lets the cost decide."""

    samples: int | None = None
    device: str = "auto"
    seed: int = 0
    format_only: bool = False

    def __post_init__(self) -> None:
        if self.samples is not None and not 1 <= self.samples <= 10_000:
            raise ParameterError(f"samples must be from 1 to 10,000, got {self.samples}.")


def _to_stderr(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def audit(root: str | os.PathLike[str], config: AuditConfig | None = None, say: Say = _to_stderr) -> Report:
    """Check everything, write the certificate (unless the folder is foreign or `format_only`), return the report.

    Faults are findings in the report; only what prevents an audit altogether is raised (DataError).
    """
    config = config or AuditConfig()
    report = Report(Path(root), {"samples": config.samples or "automatic", "seed": config.seed})
    if not find_splits(root):
        raise DataError(f"{root} holds no data set: there is no folder data/<split> in it.")
    manifest = _read_manifest(Path(root))
    if manifest is None:
        _audit_foreign(report, config)
        return report
    is_intact = _check_manifest(report, manifest)
    if not config.format_only:
        if is_intact:
            _audit_content(report, config, say)
        _write(report, say)
    elif is_intact:
        _check_format(report)
    return report


def _audit_content(report: Report, config: AuditConfig, say: Say) -> None:
    """All parts that need intact files; later ones only if the earlier ones leave something to judge."""
    from pdejepa.core.device import pick_device
    from pdejepa.data.audit.content_checks import ContentChecks
    from pdejepa.data.audit.imported_checks import ImportedChecks
    from pdejepa.data.audit.physics_checks import PhysicsChecks
    from pdejepa.data.well.reader import Dataset

    device = pick_device(config.device)
    if not _check_format(report):
        return
    with Dataset.open(report.root) as data:
        if data.is_imported:
            ImportedChecks(data, report).run()
            return
        content = ContentChecks.of(data, report)
        if content is None or not content.check_declarations():
            return
        if content.check_rows():
            PhysicsChecks(data, content, report, config, device).run(say)


# ---- manifest --------------------------------------------------------------------------------------------


def _read_manifest(root: Path) -> Manifest | None:
    """None for a folder that pdejepa did not make."""
    if (root / MANIFEST_NAME).exists():
        return Manifest.read(root)
    if (root / "config.json").exists() and (root / ".journal").is_dir():
        raise DataError(
            f"{root} has no {MANIFEST_NAME}: it is not a finished data set. "
            "Run the `pdejepa generate` command that began it again."
        )
    return None


def _check_manifest(report: Report, manifest: Manifest) -> bool:
    root = report.root
    report.manifest_sha256 = sha256_file(root / MANIFEST_NAME)
    damage = []
    with progress(len(manifest.files), "hashes", "files") as bar:
        for name in sorted(manifest.files):
            damage += manifest.verify(root, [name])
            bar.advance()
    shards = [name for name in manifest.files if name.startswith("data/")]
    n_bad = sum(item.path.startswith("data/") for item in damage)
    for item in damage:
        told = f"{n_good(len(shards), n_bad)} Rebuild it with: {rebuild_command(root)}"
        name = f"Shard {label(item.path)} ({item.path})" if item.path.startswith("data/") else item.path
        report.add("manifest", "failed", f"{name} is damaged ({item.reason}). {told}")
    present = {path.relative_to(root).as_posix() for files in find_splits(root).values() for path in files}
    for name in sorted(present - set(manifest.files)):
        report.add("manifest", "failed", f"{name} is not in the manifest, but loaders would read it. Remove it.")
    if not report.failures:
        report.add("manifest", "ok", f"sizes and hashes of {counted(len(manifest.files), 'file')} are those recorded")
    return not report.failures


def n_good(n_shards: int, n_bad: int) -> str:
    return f"{n_shards - n_bad} of {n_shards} shards are good."


def label(path: str) -> str:
    """data/train/heat_train_0007.hdf5 -> train-0007."""
    parts = Path(path)
    return f"{parts.parent.name}-{parts.stem.rpartition('_')[2]}"


def rebuild_command(root: Path) -> str:
    """The command that makes this data set; plain options if they say it all, else by its own config.json."""
    import json

    from pdejepa.data.generate.layout import GenerateConfig, Plan

    try:
        stored = dict(json.loads((root / "config.json").read_bytes()))
        if stored.get("origin") == "imported":
            return f"the `pdejepa import` command that made {root}"
        name, size, seed = stored["system"], stored["size"], stored["seed"]
        plain = GenerateConfig(system=name, out=str(root), size=size, seed=seed, raw_frames=stored["raw_frames"])
        is_plain = Plan.of(plain).stored() == stored
    except Exception:  # the file may be what is damaged
        return f"the `pdejepa generate` command that made {root}"
    raw = " --raw-frames" if plain.raw_frames else ""
    options = f"--size {size} --seed {seed}{raw}" if is_plain else f"--config {root / 'config.json'}"
    return f"pdejepa generate {name} {options} --out {root}"


# ---- format ----------------------------------------------------------------------------------------------


def _check_format(report: Report) -> bool:
    n_files = sum(len(files) for files in find_splits(report.root).values())
    with progress(n_files, "format", "files") as bar:
        problems = check_folder(report.root, bar.advance)
    return _tell_problems(report, problems, n_files)


def _tell_problems(report: Report, problems: list[FileFault], n_files: int) -> bool:
    faults = [problem for problem in problems if not problem.is_warning]
    for problem in faults[:MAX_PROBLEMS_TOLD]:
        report.add("format", "failed", f"{problem}.")
    if len(faults) > MAX_PROBLEMS_TOLD:
        report.add("format", "failed", f"and {counted(len(faults) - MAX_PROBLEMS_TOLD, 'more problem')} of format.")
    for problem in problems:
        if problem.is_warning:
            report.add("format", "reported", str(problem))
    if not faults:
        report.add("format", "ok", f"The Well's layout and the same declarations in {counted(n_files, 'file')}")
    return not faults


def _audit_foreign(report: Report, config: AuditConfig) -> None:
    """Somebody else's folder: format, and what can be said about frames without knowing the physics."""
    report.is_foreign = True
    report.about = {"system": "a foreign data set"}
    if not _check_format(report) or config.format_only:
        return
    splits = find_splits(report.root)
    with progress(sum(len(files) for files in splits.values()), "frames", "files") as bar, Inspector() as inspector:
        for split, files in splits.items():
            faults = FrameFaults()
            for path in files:
                found = inspector.scan(path, path.relative_to(report.root).as_posix())
                if isinstance(found, FileFault):
                    report.add("frames", "failed", f"{found}.")
                else:
                    faults.merge(found, faults.n_rows)
                bar.advance()
            tell_frames(report, split, faults, must_move=False)
    reason = "pdejepa did not make this data set: there is no manifest, and its physics is not known here"
    report.add("physics", "skipped", reason)


def _write(report: Report, say: Say) -> None:
    """A folder that cannot be written is no reason to withhold the verdict."""
    try:
        report.write()
    except OSError as error:
        say(f"The certificate could not be written ({error.strerror}).")
    except ResourceError as error:
        say(f"The certificate could not be written. {error}")
