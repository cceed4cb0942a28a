"""Several comparisons of truth and forecast in one picture or animation, one below the other.

    draw_comparisons([(truth, forecast, "inside"), (truth, forecast, "outside")], "p.png")

Each is drawn as `truth_and_forecast` draws it; in the animation all run together, and a shorter one rests on its last
frame.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from PIL import Image

from pdejepa.core.errors import UsageError
from pdejepa.core.files import write_aside
from pdejepa.draw import animation
from pdejepa.draw.truth_and_forecast import compare, film

if TYPE_CHECKING:
    from pdejepa.draw.trajectory import Trajectory

    Pair = tuple[Trajectory, Trajectory, str]  # truth, forecast, title

GAP = 12  # pixels between two comparisons
LINES = ((110, 60), (80, 40), (60, 30))  # (dots per inch, frames), tried until the animation is small enough
PLANES = ((90, 20), (70, 20), (50, 20), (40, 15))


def draw_comparisons(pairs: Sequence[Pair], path: str | os.PathLike[str]) -> None:
    """Write the picture, a PNG."""
    if Path(path).suffix.lower() != ".png":
        raise UsageError(f"Several comparisons are drawn into one .png; got {Path(path).name!r}.")
    picture = stack([_image(compare(truth, forecast, title)) for truth, forecast, title in pairs])
    with write_aside(path) as temporary:
        picture.save(temporary, "PNG")


def animate_comparisons(pairs: Sequence[Pair], path: str | os.PathLike[str]) -> None:
    """Write an animation of at most about 3 MB; the suffix is .gif or .webp."""
    attempts = LINES if pairs[0][0].fields.ndim == 3 else PLANES
    animation.save(lambda dpi, n_frames: _frames(pairs, dpi, n_frames), path, attempts)


def stack(images: Sequence[Image.Image]) -> Image.Image:
    """The images one below the other on white, as wide as the widest."""
    width = max(image.width for image in images)
    whole = Image.new("RGB", (width, sum(image.height for image in images) + GAP * (len(images) - 1)), "white")
    top = 0
    for image in images:
        whole.paste(image, (0, top))
        top += image.height + GAP
    return whole


def _image(figure: Figure) -> Image.Image:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", pad_inches=0.06)
    return Image.open(buffer).convert("RGB")


def _frames(pairs: Sequence[Pair], dpi: int, n_frames: int) -> Iterator[Image.Image]:
    films = [list(film(truth, forecast, title, dpi, n_frames)) for truth, forecast, title in pairs]
    for i in range(max(len(frames) for frames in films)):
        yield stack([frames[min(i, len(frames) - 1)] for frames in films])
