"""Relative links and images in documents lead to files that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.unit.scripts import ROOT

CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|^\[[^\]]+\]:\s+(\S+)|\b(?:src|href)=\"([^\"]+)\"", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#", re.IGNORECASE)


def broken_links(path: Path, root: Path) -> list[str]:
    """Targets of relative links in a document that do not exist, or that lie outside of `root`."""
    text = CODE.sub(" ", path.read_text("utf-8"))
    targets = (next(part for part in match.groups() if part) for match in LINK.finditer(text))
    found = []
    for target in targets:
        if ELSEWHERE.match(target):
            continue
        name = unquote(target.split("#")[0].split("?")[0])
        place = (root / name.lstrip("/") if name.startswith("/") else path.parent / name).resolve()
        if not place.exists() or not place.is_relative_to(root.resolve()):
            found.append(target)
    return found


def documents() -> list[Path]:
    """All Markdown files that git tracks; none in a copy without git."""
    if not (ROOT / ".git").exists():
        return []
    command = ["git", "ls-files", "-z", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return [path for name in names if name and (path := ROOT / name).exists()]


def test_links_of_all_documents() -> None:
    found = documents()
    if not found:
        pytest.skip("not a git checkout")
    assert {str(path.relative_to(ROOT)): links for path in found if (links := broken_links(path, ROOT))} == {}


def test_broken_links_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "there.md").write_text("")
    (tmp_path / "with space.png").write_bytes(b"")
    page = tmp_path / "docs" / "page.md"
    page.write_text(
        "[good](../there.md) [part](../there.md#part) ![picture](<../with%20space.png>) [page](#here)\n"
        "[web](https://example.org/no.md) [mail](mailto:a@b.c) [folder](../docs) [titled](../there.md 'a title')\n"
        "`[code](no-code.md)`\n\n```bash\n[block](no-block.md)\n```\n\n"
        "[gone](gone.md) ![gone](pictures/gone.png)\n[![both](gone-inside.png)](gone-outside.md)\n"
        '[outside](../../elsewhere.md)\n[name]: gone-reference.md\n<img src="gone-html.png">\n[`word`](gone-word.md)\n'
    )
    assert broken_links(page, tmp_path) == [
        "gone.md",
        "pictures/gone.png",
        "gone-inside.png",
        "gone-outside.md",
        "../../elsewhere.md",
        "gone-reference.md",
        "gone-html.png",
        "gone-word.md",
    ]
