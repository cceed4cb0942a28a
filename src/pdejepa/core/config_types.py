"""Which plain value fits which annotation: the type rules behind `pdejepa.core.config`.

Supported annotations: bool, int, float, str, Literal, tuple[X, ...], tuple[X, Y], dict[str, X], Any, unions
of these, and one dataclass (or a union of it with None), also as an item of a tuple. Anything else is a mistake in
our own code and raises TypeError.

Deliberate choices: a bool is not a number; an int is accepted where a float is wanted; NaN and infinity are
refused everywhere, because neither survives JSON and both make a poor setting.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pdejepa.core.errors import UsageError

_NUMBER = "must be a finite number"


class Mismatch(Exception):
    """The value does not fit; the message says what is expected ("must be an integer")."""


def convert(hint: Any, value: Any) -> Any:
    """Return `value` in the form that `hint` asks for, or raise Mismatch."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(hint, value)
    if origin is Literal:
        return _convert_literal(get_args(hint), value)
    if origin is tuple:
        return _convert_tuple(get_args(hint), value)
    if is_dict(hint):
        return _convert_dict(hint, value)
    if hint is Any:
        return _checked_plain(value)
    if dataclasses.is_dataclass(hint):
        return _convert_dataclass(hint, value)
    return _convert_scalar(hint, value)


def dataclass_in(hint: Any) -> type | None:
    """The dataclass named by `hint`, alone or as `Dataclass | None`; None if there is none."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    found = [o for o in options if isinstance(o, type) and dataclasses.is_dataclass(o)]
    if len(found) > 1:
        raise TypeError(f"a configuration field can hold one dataclass, not a choice of them: {hint}")
    return found[0] if found else None


def is_dict(hint: Any) -> bool:
    """Whether the field is a free dictionary (`dict` or `dict[str, X]`), optional or not."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return any(o is dict or get_origin(o) is dict for o in options)


def as_plain(value: Any) -> Any:
    """Turn a configuration value into what JSON and YAML know; free dictionaries are sorted by key."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, Mapping):
        return {key: as_plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return value


def show(value: Any) -> str:
    """A short form of a value for a message: nobody wants a megabyte of it on the screen."""
    if isinstance(value, Mapping) and value:
        return "a group of keys"
    text = {None: "nothing", True: "true", False: "false"}.get(value) if _is_word(value) else None
    text = repr(value) if text is None else text
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _convert_union(hint: Any, value: Any) -> Any:
    expected: list[str] = []
    for option in get_args(hint):
        if option is types.NoneType:
            if value is None:
                return None
            expected.append("null")
            continue
        try:
            return convert(option, value)
        except Mismatch as mismatch:
            expected.append(str(mismatch).removeprefix("must be "))
    raise Mismatch("must be " + " or ".join(expected))


def _convert_literal(choices: tuple[Any, ...], value: Any) -> Any:
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    raise Mismatch("must be one of " + ", ".join(str(choice) for choice in choices))


def _convert_tuple(parts: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise Mismatch("must be a list such as [a, b]")
    if len(parts) == 2 and parts[1] is Ellipsis:
        parts = (parts[0],) * len(value)
    if len(parts) != len(value):
        raise Mismatch(f"must be a list of {len(parts)} values")
    items = []
    for number, (part, item) in enumerate(zip(parts, value, strict=True), start=1):
        try:
            items.append(convert(part, item))
        except Mismatch as mismatch:
            raise Mismatch(f"item {number} of the list {mismatch}") from None
    return tuple(items)


def _convert_dict(hint: Any, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Mismatch("must be a group of keys")
    part = (get_args(hint) or (str, Any))[1]
    if not all(isinstance(key, str) for key in value):
        raise Mismatch("must have text keys only")
    items = {}
    for key, item in value.items():
        try:
            items[key] = convert(part, item)
        except Mismatch as mismatch:
            raise Mismatch(f"key {show(key)} {mismatch}") from None
    return items


def _convert_dataclass(cls: Any, value: Any) -> Any:
    """An item of a list; mappings for single dataclass fields are merged key by key by the loader instead."""
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise Mismatch("must be a group of keys")
    hints = get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls) if f.init}
    unknown = [str(key) for key in value if key not in known]
    missing = [name for name, f in known.items() if name not in value and _has_no_default(f)]
    if unknown or missing:
        raise Mismatch(f"has an unknown key {unknown[0][:60]}" if unknown else f"lacks the key {missing[0]}")
    items = {}
    for name, item in value.items():
        try:
            items[name] = convert(hints[name], item)
        except Mismatch as mismatch:
            raise Mismatch(f"key {name} {mismatch}") from None
    try:
        return cls(**items)
    except UsageError as error:
        raise Mismatch(f"cannot be used: {error}") from None


def _has_no_default(f: dataclasses.Field[Any]) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


def _convert_scalar(kind: Any, value: Any) -> Any:
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(value)
    if kind is str and isinstance(value, str):
        return value
    words = {bool: "true or false", int: "an integer", float: "a finite number", str: "text"}
    if kind not in words:
        raise TypeError(f"configuration fields cannot be of type {kind}")
    hint = " (put it in quotes)" if kind is str and isinstance(value, int | float) else ""
    raise Mismatch(f"must be {words[kind]}{hint}")


def _finite(value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise Mismatch(_NUMBER) from None
    if not math.isfinite(number):
        raise Mismatch(_NUMBER)
    return number


def _checked_plain(value: Any) -> Any:
    """Accept any plain data, but nothing that could not be written back."""
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, list | tuple):
        return [_checked_plain(item) for item in value]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise Mismatch("must have text keys only")
        return {key: _checked_plain(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    raise Mismatch("must be plain data")
