"""Typed configuration: frozen dataclasses filled from a YAML file, named options and dotted overrides.

A dataclass is the whole schema: its fields are the allowed keys, its annotations the allowed types, its
`__post_init__` (raising ConfigError) the rules between fields. A later source wins over an earlier one:

    defaults  <  YAML file  <  named options  <  key=value overrides

Reading is strict. An unknown key, a wrong type or a missing value is a problem; all problems are collected,
each with the source it came from, and reported in one ConfigError before anything is built.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pdejepa.core import yaml_subset
from pdejepa.core.config_types import Mismatch, as_plain, convert, dataclass_in, is_dict, show
from pdejepa.core.errors import ConfigError, UsageError, did_you_mean

__all__ = ["load_config", "to_dict", "to_json", "to_yaml"]

MAX_FILE_BYTES = 1_000_000

T = TypeVar("T")


class _Broken:
    """Marks a value that was given but could not be used, so that its group is not built."""


_BROKEN = _Broken()


@dataclasses.dataclass
class _Group:
    """Values gathered so far for one dataclass; nested dataclasses are nested groups."""

    cls: type
    values: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, instance: Any) -> _Group:
        """Open a finished instance up again, so that single fields of it can be replaced."""
        values = {f.name: getattr(instance, f.name) for f in dataclasses.fields(instance) if f.init}
        opened = {name: cls.of(v) if dataclasses.is_dataclass(v) else v for name, v in values.items()}
        return cls(type(instance), opened)


class _Reader:
    """Applies assignments to a tree of groups and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def report(self, source: str, path: str, sentence: str) -> None:
        path = path if len(path) <= 100 else f"{path[:97]}..."
        self.problems.append(": ".join(part for part in (source, path, sentence) if part))

    def assign(self, group: _Group, path: Sequence[Any], value: Any, source: str, prefix: str = "") -> None:
        """Put `value` at `path` below `group`. A mapping given for a nested dataclass is merged into it."""
        name, here = path[0], f"{prefix}{path[0]}"
        hints = _hints(group.cls)
        if name not in hints:
            self.report(source, here, f"unknown key{did_you_mean(str(name), hints) or _known(hints)}")
            return
        nested = dataclass_in(hints[name])
        if len(path) > 1 and nested is None:
            self._assign_item(group, path, hints[name], value, source, here)
        elif nested is not None and (len(path) > 1 or isinstance(value, Mapping)):
            child = _child(group, name, nested)
            pairs = [(path[1:], value)] if len(path) > 1 else [((k,), v) for k, v in value.items()]
            for rest, item in pairs:
                self.assign(child, rest, item, source, f"{here}.")
        else:
            group.values[name] = self._converted(hints[name], value, source, here)

    def _assign_item(
        self, group: _Group, path: Sequence[Any], hint: Any, value: Any, source: str, here: str
    ) -> None:
        """`field.key=value` where the field is a free dictionary: set that one key."""
        if not is_dict(hint):
            self.report(source, ".".join(map(str, path)), f"{here} holds one value and has no parts")
            return
        if len(path) > 2:
            self.report(source, here, "only one level of keys can be set this way")
            return
        before = group.values.get(path[0], _default(group.cls, path[0]))
        merged = {**(before if isinstance(before, Mapping) else {}), path[1]: value}
        group.values[path[0]] = self._converted(hint, merged, source, here)

    def _converted(self, hint: Any, value: Any, source: str, here: str) -> Any:
        try:
            return convert(hint, value)
        except Mismatch as mismatch:
            self.report(source, here, f"{mismatch}, got {show(value)}")
            return _BROKEN

    def build(self, group: _Group, source: str, prefix: str = "") -> Any:
        """Make the dataclass, innermost first; a group with a known problem is left unbuilt."""
        ready: dict[str, Any] = {}
        for field in dataclasses.fields(group.cls):
            if not field.init:
                continue
            value = group.values.get(field.name, dataclasses.MISSING)
            if isinstance(value, _Group):
                value = self.build(value, source, f"{prefix}{field.name}.")
            if value is dataclasses.MISSING and _is_required(field):
                self.report(source, f"{prefix}{field.name}", "required, but not given")
                value = _BROKEN
            if value is not dataclasses.MISSING:
                ready[field.name] = value
        if any(value is _BROKEN for value in ready.values()):
            return _BROKEN
        try:
            return group.cls(**ready)
        except UsageError as error:
            for problem in getattr(error, "problems", (str(error),)):
                self.report(source, prefix.rstrip("."), problem)
            return _BROKEN


def load_config(
    cls: type[T],
    file: str | Path | None = None,
    overrides: Iterable[str] = (),
    defaults: T | Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> T:
    """Build `cls` from all sources, or raise one ConfigError that lists every problem.

    `defaults` is a finished instance (a recipe) or a mapping; `options` maps dotted keys to values that came
    from named command-line options, where None means "not given"; `overrides` are `a.b=value` texts whose
    value is read as YAML.
    """
    reader = _Reader()
    root = _Group(cls)
    if defaults is not None and not isinstance(defaults, Mapping):
        root = _Group.of(defaults)
    for key, value in defaults.items() if isinstance(defaults, Mapping) else ():
        reader.assign(root, (key,), value, "defaults")
    for key, value in _read_file(Path(file), reader).items() if file is not None else ():
        reader.assign(root, (key,), value, str(file))
    for key, value in (options or {}).items():
        if value is not None:
            reader.assign(root, key.split("."), value, "option")
    for text in overrides:
        _apply_override(reader, root, text)
    config = reader.build(root, str(file) if file is not None else "configuration")
    if reader.problems:
        raise ConfigError(_summary(reader.problems), reader.problems)
    return config


def to_dict(config: Any) -> dict[str, Any]:
    """Return the configuration as plain data: fields in declared order, free dictionaries sorted by key."""
    return {f.name: as_plain(getattr(config, f.name)) for f in dataclasses.fields(config) if f.init}


def to_yaml(config: Any) -> str:
    """Return the resolved configuration as YAML that `load_config` reads back to an equal object."""
    return yaml_subset.dump(to_dict(config))


def to_json(config: Any) -> str:
    """Return the resolved configuration as JSON; equal configurations give equal bytes."""
    return json.dumps(to_dict(config), indent=2, allow_nan=False, ensure_ascii=False)


def _read_file(path: Path, reader: _Reader) -> Mapping[Any, Any]:
    """Read the mapping in a YAML file; whatever is wrong with the file becomes a problem."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise ValueError(
                f"larger than {MAX_FILE_BYTES // 1_000_000} MB; this is not a configuration file"
            )
        data = yaml_subset.parse(raw.decode("utf-8"))
    except OSError as error:
        reader.report(str(path), "", f"cannot be read ({error.strerror or error})")
        return {}
    except UnicodeDecodeError:
        reader.report(str(path), "", "not UTF-8 text")
        return {}
    except ValueError as error:
        reader.report(str(path), "", str(error))
        return {}
    if data is None or isinstance(data, Mapping):
        return data or {}
    reader.report(str(path), "", f"must hold keys and values at the top level, got {show(data)}")
    return {}


def _apply_override(reader: _Reader, root: _Group, text: str) -> None:
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        reader.report("override", show(text), "must look like key=value")
        return
    try:
        value = yaml_subset.parse(raw)
    except ValueError as error:
        reader.report("override", key, str(error))
        return
    reader.assign(root, key.strip().split("."), value, "override")


def _child(group: _Group, name: str, nested: type) -> _Group:
    """The group below `name`, opened from what is there already or from the field's default."""
    current = group.values.get(name)
    if not isinstance(current, _Group):
        default = _default(group.cls, name)
        current = _Group.of(default) if isinstance(default, nested) else _Group(nested)
        group.values[name] = current
    return current


def _hints(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}


def _default(cls: type, name: str) -> Any:
    """The default of one field, or MISSING. Factories are called: the result is only looked at."""
    field = next(f for f in dataclasses.fields(cls) if f.name == name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _known(names: Iterable[str]) -> str:
    """For a key that is near none: the list of those that exist, unless it is too long to help."""
    listed = ", ".join(names)
    return f"; known keys: {listed}" if 0 < len(listed) <= 200 else ""


def _summary(problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    return "\n  ".join([f"{len(problems)} problems in the configuration:", *problems])


def differences(before: Any, now: Any, path: str = "") -> list[str]:
    """What differs between two nested settings, as `path old -> new`."""
    if isinstance(before, dict) and isinstance(now, dict):
        found = []
        for key in sorted({*before, *now}):
            found += differences(before.get(key), now.get(key), f"{path}.{key}" if path else str(key))
        return found
    lists = isinstance(before, list | tuple) and isinstance(now, list | tuple)
    same = list(before) == list(now) if lists else before == now
    return [] if same else [f"{path} {before} -> {now}"]
