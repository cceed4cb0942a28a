"""What an audit finds: a list of findings with one verdict, as text, as JSON, and as a certificate in the data set.

    certificate.json     deterministic content: settings, versions, the manifest it applies to, findings, verdict
    CERTIFICATE.md       the same for people

Neither belongs to the manifest: a certificate speaks about the data, it is not part of them.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from pdejepa import __version__
from pdejepa.core.errors import DataError, NumericalError, PdejepaError
from pdejepa.core.files import write_json, write_text

CERTIFICATE_FORMAT = 1
JSON_NAME, TEXT_NAME = "certificate.json", "CERTIFICATE.md"
MAX_TOLD = 5

State = Literal["ok", "failed", "reported", "skipped"]
Kind = Literal["data", "physics"]


@dataclass(frozen=True)
class Finding:
    """One check.  `kind` decides which exit code a failure gets: data are damaged, or physics does not hold."""

    part: str
    state: State
    sentence: str
    value: float | None = None
    bound: float | None = None
    kind: Kind = "data"

    def to_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"part": self.part, "state": self.state, "sentence": self.sentence}
        numbers = {"value": self.value, "bound": self.bound}
        return plain | {name: _rounded(number) for name, number in numbers.items() if number is not None}


@dataclass
class Report:
    """The findings of one audit and what they are about."""

    root: Path
    settings: dict[str, Any]
    about: dict[str, Any] = field(default_factory=dict)  # system, size, seed, trajectories, ...
    findings: list[Finding] = field(default_factory=list)
    manifest_sha256: str | None = None
    is_foreign: bool = False
    is_imported: bool = False

    def add(
        self,
        part: str,
        state: State,
        sentence: str,
        value: float | None = None,
        bound: float | None = None,
        kind: Kind = "data",
    ) -> None:
        self.findings.append(Finding(part, state, sentence, value, bound, kind))

    def judge(self, part: str, sentence: str, value: float, bound: float, kind: Kind = "physics") -> None:
        """A number that must not exceed its bound; NaN exceeds every bound."""
        self.add(part, "ok" if value <= bound else "failed", sentence, value, bound, kind)

    @property
    def failures(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.state == "failed"]

    @property
    def verdict(self) -> str:
        """passed, failed, "passed in part" where something could not be looked at, or "imported, not solved"."""
        if self.is_imported and not self.failures:
            return "imported, not solved"
        is_partial = any(finding.state == "skipped" for finding in self.findings)
        return "failed" if self.failures else "passed in part" if is_partial else "passed"

    def error(self) -> PdejepaError | None:
        """What to raise: DataError if data are at fault, NumericalError if only physics is, None if all is well."""
        if not self.failures:
            return None
        is_data = any(finding.kind == "data" for finding in self.failures)
        told = [finding for finding in self.failures if not is_data or finding.kind == "data"]
        text = "\n".join(finding.sentence for finding in told[:MAX_TOLD])
        more = len(told) - MAX_TOLD
        text += f"\nand {more} more; see the report." if more > 0 else ""
        return DataError(text) if is_data else NumericalError(text)

    def to_plain(self) -> dict[str, Any]:
        """Everything as plain data; nothing in it depends on the hour or on where the folder lies."""
        import torch

        versions = {
            "pdejepa": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "h5py": h5py.__version__,
        }
        return {
            "format_version": CERTIFICATE_FORMAT,
            "verdict": self.verdict,
            "manifest_sha256": self.manifest_sha256,
            "about": self.about,
            "settings": self.settings,
            "versions": versions,
            "findings": [finding.to_plain() for finding in self.findings],
        }

    # ---- text --------------------------------------------------------------------------------------------
    def lines(self) -> list[str]:
        """One line per finding, for logs: nothing is cut."""
        width = max((len(finding.part) for finding in self.findings), default=0)
        return [
            f"{_word(finding.state):<9}{finding.part:<{width}}  {finding.sentence}{numbers(finding)}"
            for finding in self.findings
        ]

    def summary(self) -> str:
        name = self.about.get("system", "data set")
        counts = {state: sum(f.state == state for f in self.findings) for state in ("ok", "failed", "reported")}
        what = f"{counts['ok']} checks passed, {counts['failed']} failed, {counts['reported']} reported only"
        return f"Audit of {name} in {self.root}: {self.verdict}. {what}."

    def markdown(self) -> str:
        rows = "\n".join(
            f"| {finding.part} | {_word(finding.state)} | {_cell(finding.sentence)} | {show(finding.value)} | "
            f"{show(finding.bound)} |"
            for finding in self.findings
        )
        plain = self.to_plain()
        about = "\n".join(f"- {name}: {_inline(value)}" for name, value in plain["about"].items())
        settings = ", ".join(f"{name} {_inline(value)}" for name, value in plain["settings"].items())
        versions = ", ".join(f"{name} {value}" for name, value in plain["versions"].items())
        return MARKDOWN.format(
            verdict=self.verdict, about=about, rows=rows, settings=settings, versions=versions,
            manifest=self.manifest_sha256, json=JSON_NAME,
        )  # fmt: skip

    def write(self) -> None:
        """Put the certificate into the data set."""
        write_json(self.root / JSON_NAME, self.to_plain())
        write_text(self.root / TEXT_NAME, self.markdown())


MARKDOWN = """# Certificate: {verdict}

{about}

This holds for the files whose `manifest.json` has the SHA-256 `{manifest}`, and for nothing else.

| part | result | what was checked | value | bound |
| --- | --- | --- | --- | --- |
{rows}

"reported" means told but not judged. Audited with {settings}; {versions}.
The same as data: `{json}`. Made by `pdejepa audit`.
"""


def numbers(finding: Finding) -> str:
    """` (3.1e-08, bound 2e-06)` after a sentence."""
    if finding.value is None:
        return ""
    bound = "" if finding.bound is None else f", bound {show(finding.bound)}"
    return f" ({show(finding.value)}{bound})"


def counted(n: int, word: str) -> str:
    """`1 file`, `2 trajectories`."""
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{n:,} {word if n == 1 else plural}"


def show(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


def _word(state: State) -> str:
    return "FAILED" if state == "failed" else state


def _rounded(number: float) -> float | str:
    """Three digits are enough to judge by, and hide the last bits in which machines differ.  JSON has no NaN."""
    return float(f"{number:.3g}") if np.isfinite(number) else str(number)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items()) or "none"
    return str(value)
