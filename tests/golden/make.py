"""Files of expected values, made anew from the code as it is:

python -m tests.golden.make compiled_parts

Look at the difference before it is committed: it is what the guards would have complained about.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.golden.compiled import compiled_parts

MAKERS: dict[str, Callable[[], Any]] = {"compiled_parts": compiled_parts}


def path(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.json")


def golden(name: str) -> Any:
    """What was committed."""
    return json.loads(path(name).read_text())


def make(names: list[str]) -> None:
    """Write the files of these names."""
    unknown = [name for name in names if name not in MAKERS]
    if unknown or not names:
        sys.exit(f"Unknown: {', '.join(unknown) or 'nothing'}. Choose of {', '.join(MAKERS)}.")
    for name in names:
        path(name).write_text(json.dumps(MAKERS[name](), indent=1) + "\n")
        print(f"wrote {path(name)}")


if __name__ == "__main__":
    make(sys.argv[1:])
