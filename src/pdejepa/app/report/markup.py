"""Pieces of HTML.  Every text passes through `esc`, so nothing from a file can become markup.

    esc("<b>")                  &lt;b&gt;
    Html("<b>bold</b>")         text that is markup already; `esc` leaves it alone
"""

from __future__ import annotations

import base64
from collections.abc import Iterable

from pdejepa.core.tables import Table
from pdejepa.core.text import MAX_TEXT, escaped_html

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2430; --soft: #5b6472; --line: #dfe3e8; --wash: #f5f7f9;
  --blue: #00386f; --good: #eef7f2; --warn: #fdf4ea; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181f; --ink: #e6e9ee; --soft: #a7b0bd; --line: #333b47;
  --wash: #1d232c; --blue: #8ab8ff; --good: #17301f; --warn: #38280f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.2rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .4rem 0 .6rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .5rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.4rem 0 .3rem; }
p, ul { margin: .5rem 0; max-width: 46rem; }
a { color: var(--blue); }
nav { font-size: .9rem; margin: .8rem 0; }
nav a { display: inline-block; margin-right: 1rem; padding: .15rem 0; }
code, pre { font: .875em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: .4rem; padding: .7rem .8rem;
  overflow-x: auto; }
pre.equation { font-size: 1rem; white-space: pre-wrap; }
.soft, figcaption, caption { color: var(--soft); font-size: .9rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .7rem; margin: 1rem 0; }
.tile { background: var(--wash); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.35rem; line-height: 1.3; }
.tile span { color: var(--soft); font-size: .85rem; }
.note { border-left: .3rem solid #8a94a3; background: var(--wash); padding: .5rem .8rem; margin: .8rem 0;
  border-radius: 0 .4rem .4rem 0; max-width: 46rem; }
.note.good { border-color: #2f7d5b; background: var(--good); }
.note.warn { border-color: #b3641b; background: var(--warn); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; margin: .6rem 0; }
caption { caption-side: bottom; text-align: left; padding-top: .3rem; }
caption span { display: block; position: sticky; left: 0; max-width: calc(100vw - 2rem); }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; }
.number { text-align: right; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem 1.4rem; }
figure { margin: .6rem 0; }
img { background: #fff; }
figure img { display: block; width: 100%; height: auto; }
.grid figure img { max-width: 30rem; }
.scroll > img { min-width: 46rem; max-width: 100%; }
details { margin: .7rem 0; }
summary { cursor: pointer; color: var(--blue); font-weight: 600; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
"""
# A second wall behind `esc`: a browser that obeys it runs no script and loads nothing from anywhere.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Html(str):
    """Text that is markup already."""


def esc(text: object, limit: int = MAX_TEXT) -> Html:
    """Any value as safe text, cut if it is endless; characters that UTF-8 cannot hold become question marks."""
    return text if isinstance(text, Html) else Html(escaped_html(str(text), limit))


def tag(name: str, *parts: object, **attributes: str) -> Html:
    """<name key="value">parts</name>; `class_` stands for class."""
    told = "".join(f' {key.rstrip("_")}="{esc(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{told}>{''.join(esc(part) for part in parts)}</{name}>")


def join(parts: Iterable[object], between: str = "\n") -> Html:
    return Html(between.join(esc(part) for part in parts))


def paragraph(*sentences: object, class_: str = "") -> Html:
    text = join((sentence for sentence in sentences if sentence), " ")
    return tag("p", text, class_=class_) if class_ else tag("p", text)


def note(text: object, kind: str = "") -> Html:
    return tag("div", text, class_=f"note {kind}".strip())


def section(anchor: str, title: str, *parts: object) -> Html:
    return tag("section", Html("\n"), tag("h2", title), join(("", *parts, "")), id=anchor)


def table(content: Table) -> Html:
    return Html(content.html())


def tiles(values: Iterable[tuple[str, str]]) -> Html:
    """Large numbers, each with a few words below."""
    boxes = [tag("div", tag("b", value), tag("span", words), class_="tile") for value, words in values]
    return tag("div", *boxes, class_="tiles")


def details(summary: str, text: str, limit: int) -> Html:
    """Text that unfolds."""
    return tag("details", tag("summary", summary), tag("pre", esc(text, limit)))


def image(data: bytes, kind: str, alt: str) -> Html:
    """A picture inside the page; kind is png or svg+xml."""
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return Html(f'<img src="{source}" alt="{esc(alt)}">')


def figure(picture: Html, caption: object = "", is_wide: bool = False) -> Html:
    inner = tag("div", picture, class_="scroll") if is_wide else picture
    return tag("figure", inner, *([tag("figcaption", caption)] if caption else []))


def document(title: str, body: Html) -> str:
    head = (
        '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{esc(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{esc(title)}</title>\n<style>{STYLE}</style>"
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'
