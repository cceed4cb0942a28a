"""Scripts beside the package (benchmarks, documents) as modules, without leaving their folders on the search path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load_script(relative: str, *beside: str) -> ModuleType:
    """The script as a module; `beside` names the scripts of its folder that it imports, which are forgotten again."""
    path, name = ROOT / relative, f"script_{Path(relative).stem}"
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = before
        for other in beside:
            sys.modules.pop(other, None)
    return module
