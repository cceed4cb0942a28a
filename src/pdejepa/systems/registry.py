"""Which systems there are, and how one is built by its name with its switches.

Beside the built-in ones a system may come from anywhere:

    pdejepa.systems.register(MySystem)                        a call, or a decorator of the class
    PDEJEPA_SYSTEMS=my_file:MySystem pdejepa generate ...     a module on the path, or a file here, for the command line
    [project.entry-points."pdejepa.systems"]                  an installed package
    my_system = "my_package.my_file:MySystem"
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pdejepa.core.errors import ConfigError, did_you_mean
from pdejepa.systems.base import System, switches_error
from pdejepa.systems.problem import Switch

NAMES = (
    "advection",
    "burgers",
    "heat",
    "wave_b",
    "combined",
    "vorticity",
    "heterns",
    "wave_2d",
    "gray_scott",
)
GROUP = "pdejepa.systems"  # of entry points
VARIABLE = "PDEJEPA_SYSTEMS"

_registered: dict[str, type[System]] = {}


# ---- systems from elsewhere --------------------------------------------------------------------------------------
def register(system: type[System]) -> type[System]:
    """Make a system known by its name; the same name again replaces the class, a built-in name is refused."""
    name = getattr(system, "name", "")
    if not (isinstance(system, type) and issubclass(system, System)):
        raise ConfigError(f"register expects a class that derives from System; got {system!r}.")
    if not re.fullmatch(r"[a-z][a-z0-9_]{1,40}", name):
        raise ConfigError(f"{system.__name__}.name must be a word such as my_system (a-z, 0-9, _); got {name!r}.")
    if name in NAMES:
        raise ConfigError(f"{system.__name__}: there is a built-in system {name!r}. Choose another name.")
    _registered[name] = system
    return system


def from_path(text: str) -> type[System]:
    """The class in `module:Class` or `file.py:Class`, registered."""
    module, _, name = text.strip().partition(":")
    if not module or not name.isidentifier():
        raise ConfigError(f"A system from elsewhere is given as module:Class or file.py:Class; got {text[:100]!r}.")
    try:
        found = getattr(_module(module), name)
    except (ImportError, AttributeError, SyntaxError, OSError) as error:
        raise ConfigError(f"{text[:100]!r} cannot be imported: {type(error).__name__}: {error}.") from error
    return register(found)


def _module(name: str) -> Any:
    """A module on the path, or a file in the current folder."""
    path = Path(name if name.endswith(".py") else f"{name.replace('.', '/')}.py")
    if not path.is_file():
        return importlib.import_module(name)
    known = path.stem
    if known in sys.modules and getattr(sys.modules[known], "__file__", None) == str(path.resolve()):
        return sys.modules[known]
    spec = importlib.util.spec_from_file_location(known, path.resolve())
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[known] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _elsewhere(name: str) -> type[System] | None:
    """The class of that name that was registered, named in the environment, or installed."""
    if name not in _registered:
        for text in filter(None, os.environ.get(VARIABLE, "").split(",")):
            from_path(text)
    if name not in _registered:
        for entry in importlib.metadata.entry_points(group=GROUP, name=name):
            register(entry.load())
    return _registered.get(name)


def names() -> tuple[str, ...]:
    """The names of all systems that are known here, the built-in ones first."""
    _elsewhere("")
    installed = [entry.name for entry in importlib.metadata.entry_points(group=GROUP)]
    return tuple(dict.fromkeys((*NAMES, *_registered, *installed)))


def is_known(name: object) -> bool:
    """Whether there is a system of that name."""
    return isinstance(name, str) and (name in NAMES or _elsewhere(name) is not None)


# ---- by name -----------------------------------------------------------------------------------------------------
def get(name: str, **switches: Any) -> System:
    """The system of that name; keyword arguments set its switches, e.g. get("combined", flux="alpha u^2")."""
    system = _class_of(str(name).replace("-", "_").lower(), name)
    known = [field.name for field in dataclasses.fields(system)]
    for switch in switches:
        if switch not in known:
            raise switches_error(system, switch, known)
    return system(**switches)


def _class_of(key: str, asked: object) -> type[System]:
    if key in NAMES:
        system: type[System] = importlib.import_module(f"pdejepa.systems.{key}").SYSTEM
        return system
    found = _elsewhere(key)
    if found is None:
        hint = did_you_mean(key, names()) or "."
        raise ConfigError(
            f"There is no system {asked!r}{hint} Systems: {', '.join(names())}. "
            f"One of your own: {VARIABLE}=file.py:Class, or pdejepa.systems.register(Class)."
        )
    return found


def build_system(name: str, size: str, switches: Mapping[str, Switch]) -> System:
    """The system as simulated for a data size; switches given by name win over what the size implies."""
    plain = get(name)
    get(name, **switches)  # refuses unknown switches and values
    chosen = {key: _as_type_of(getattr(plain, key), value, f"{plain.name}: {key}") for key, value in switches.items()}
    return dataclasses.replace(get(name, **chosen).at_size(size), **chosen)


def switch_values(system: System) -> dict[str, Switch]:
    """All switches of a system with their values."""
    return {f.name: getattr(system, f.name) for f in sorted(dataclasses.fields(system), key=lambda f: f.name)}


def _as_type_of(default: Switch, value: Switch, what: str) -> Switch:
    """`value` in the type of the default; a whole number may stand for a float, nothing else changes type."""
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise ConfigError(f"{what} must be of type {type(default).__name__}, got {value!r}.")
    return value
