"""`write_report`: one self-contained HTML page about a run; no scripts, nothing loaded from elsewhere.

The page is made from whatever there is.  What is missing, unfinished or damaged is said in its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pdejepa import __version__
from pdejepa.app.report import sections
from pdejepa.app.report.content import RunContent, read_run
from pdejepa.app.report.examples import Example, make_examples
from pdejepa.app.report.markup import Html, document, join, tag
from pdejepa.app.report.reproduce import reproduce
from pdejepa.core.errors import PdejepaError, UsageError
from pdejepa.core.files import write_text
from pdejepa.training.stage import silent

NAME = "report.html"
NAVIGATION = (
    ("stages", "Stages"),
    ("training", "Curves"),
    ("encoder", "Encoder"),
    ("geometry", "Geometry"),
    ("dynamics", "Dynamics"),
    ("errors", "Errors"),
    ("examples", "Examples"),
    ("reproduce", "Repeat it"),
)


def write_report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    with_examples: bool = True,
    say: Callable[[str], object] = silent,
) -> Path:
    """Write the page (default: RUN/report.html) and return where it is; CheckpointError if `run` is not a run.

    Examples need the finished model and one or two solves, seconds for most systems and about a minute on a CPU for
    the finest flows; `with_examples=False` leaves them out.
    """
    target = Path(run) / NAME if out is None else Path(out)
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"Reports are written as .html; got {target.name!r}. Give --out such a name.")
    content = read_run(Path(run))
    write_text(target, report(content, with_examples, say))
    return target


def report(content: RunContent, with_examples: bool = True, say: Callable[[str], object] = silent) -> str:
    """The page as text."""
    found, reason = _examples(content, with_examples, say)
    links = tag("nav", *(tag("a", label, href=f"#{anchor}") for anchor, label in NAVIGATION))
    body = (
        sections.head(content),
        links,
        sections.stages(content),
        sections.training(content),
        sections.encoder(content),
        sections.geometry(content),
        sections.dynamics(content),
        sections.errors(content),
        sections.examples(found, reason),
        reproduce(content),
        tag("footer", f"Written by pdejepa {__version__}."),
    )
    return document(sections.title(content), _main(body))


def _main(parts: tuple[Html, ...]) -> Html:
    return tag("main", join(("", *parts, "")))


def _examples(
    content: RunContent, is_wanted: bool, say: Callable[[str], object]
) -> tuple[list[Example], str]:
    """Example forecasts, or the reason why there are none; a page without them is better than no page."""
    folder = content.root / "model"
    if not is_wanted:
        return [], "Examples were left out on request."
    if not (folder / "config.json").exists():
        return [], "There is no finished model in this run yet, so there is nothing to forecast with."
    found: list[Example] = []
    try:
        for example in make_examples(folder, say):
            found.append(example)
    except (PdejepaError, OSError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:300]
        return found, f"No {'more ' if found else ''}examples could be made: {reason}"
    return found, ""
