"""The configuration loader is strict, complete in its complaints, and reads back what it writes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdejepa.core.config import load_config, to_dict, to_json, to_yaml
from pdejepa.core.errors import ConfigError


@dataclass(frozen=True)
class Solver:
    rtol: float = 1e-6
    scheme: Literal["rk4", "dopri5"] = "rk4"
    max_steps: int | None = None

    def __post_init__(self) -> None:
        if self.rtol <= 0:
            raise ConfigError(f"rtol must be positive, got {self.rtol}")


@dataclass(frozen=True)
class Settings:
    system: str
    seed: int = 0
    dt: float = 0.1
    save: bool = True
    note: str | None = None
    splits: tuple[str, ...] = ("train",)
    window: tuple[float, int] = (1.0, 2)
    extra: dict[str, Any] = field(default_factory=dict)
    solver: Solver = field(default_factory=lambda: Solver(rtol=1e-3))
    second: Solver | None = None


def problems(**arguments: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_config(Settings, **arguments)
    return caught.value.problems


def yaml_file(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text)
    return path


def test_sources_in_order(tmp_path: Path) -> None:
    path = yaml_file(tmp_path, "system: heat\nseed: 1\ndt: 0.5\nsolver:\n  scheme: dopri5\n")
    got = load_config(
        Settings,
        path,
        ["seed=3", "solver.max_steps=9"],
        defaults={"system": "burgers", "note": "from defaults", "seed": 7},
        options={"seed": 2, "dt": 0.25, "note": None},
    )
    assert (got.system, got.seed, got.dt, got.note) == ("heat", 3, 0.25, "from defaults")
    assert got.solver == Solver(rtol=1e-3, scheme="dopri5", max_steps=9)


def test_defaults_may_be_an_instance() -> None:
    recipe = Settings("wave_b", solver=Solver(rtol=1e-9), second=Solver(max_steps=1))
    got = load_config(Settings, overrides=["solver.scheme=dopri5", "second.max_steps=2"], defaults=recipe)
    assert got.solver == Solver(rtol=1e-9, scheme="dopri5")
    assert got.second == Solver(max_steps=2)
    assert recipe.second == Solver(max_steps=1)


@pytest.mark.parametrize("text", ["1e-5", "1E-5", "1.0e-5", "0.00001", ".1e-4"])
def test_every_spelling_of_a_float(text: str, tmp_path: Path) -> None:
    assert load_config(Settings, overrides=["system=x", f"dt={text}"]).dt == 1e-5
    assert load_config(Settings, yaml_file(tmp_path, f"system: x\ndt: {text}\n")).dt == 1e-5


def test_an_int_is_a_float_but_a_bool_is_not_an_int() -> None:
    got = load_config(Settings, overrides=["system=x", "dt=2"])
    assert got.dt == 2.0
    assert isinstance(got.dt, float)
    assert "seed: must be an integer, got true" in problems(overrides=["system=x", "seed=true"])[0]
    assert "dt: must be a finite number" in problems(overrides=["system=x", "dt=true"])[0]


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "1e999"])
def test_floats_must_be_finite(value: str) -> None:
    assert "must be a finite number" in problems(overrides=["system=x", f"dt={value}"])[0]
    assert "must be a finite number" in problems(overrides=["system=x", f"extra.a={value}"])[0]


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("sed=1", "override: sed: unknown key, did you mean 'seed'?"),
        ("solver.rtoll=1", "override: solver.rtoll: unknown key, did you mean 'rtol'?"),
        ("solver.scheme=rk5", "override: solver.scheme: must be one of rk4, dopri5, got 'rk5'"),
        ("solver=3", "override: solver: must be a group of keys, got 3"),
        ("solver.max_steps=x", "override: solver.max_steps: must be an integer or null, got 'x'"),
        ("save=yes", "override: save: must be true or false, got 'yes'"),
        ("splits=train", "override: splits: must be a list such as [a, b], got 'train'"),
        ("splits=[1]", "override: splits: item 1 of the list must be text (put it in quotes), got [1]"),
        ("window=[1]", "override: window: must be a list of 2 values, got [1]"),
        ("seed", "override: 'seed': must look like key=value"),
        ("seed.a=1", "override: seed.a: seed holds one value and has no parts"),
        ("seed=[", "override: seed: not valid YAML"),
        ("seed=!!python/object:os.system 1", "override: seed: not valid YAML: the tag"),
        ("solver.rtol=-1", "configuration: solver: rtol must be positive, got -1.0"),
        ("system=null", "override: system: must be text, got nothing"),
    ],
)
def test_single_problems(override: str, sentence: str) -> None:
    found = problems(overrides=["system=x", override])
    assert len(found) == 1
    assert found[0].startswith(sentence)


def test_all_problems_at_once_with_their_sources(tmp_path: Path) -> None:
    path = yaml_file(tmp_path, "sed: 1\nsolver: {rtol: -1, scheme: no}\nsecond: {rtol: 0}\n")
    found = problems(file=path, overrides=["dt=abc"], options={"save": "maybe"})
    assert [text.removeprefix(f"{path}: ").partition(":")[0] for text in found] == [
        "sed",
        "solver.scheme",
        "option",
        "override",
        "system",
        "second",
    ]
    with pytest.raises(ConfigError, match=r"^6 problems in the configuration:\n  "):
        load_config(Settings, path, ["dt=abc"], options={"save": "maybe"})


def test_free_dictionaries(tmp_path: Path) -> None:
    path = yaml_file(tmp_path, "system: x\nextra: {a: 1, b: [1, {c: null}]}\n")
    got = load_config(Settings, path, ["extra.a=2", "extra.d=text"])
    assert got.extra == {"a": 2, "b": [1, {"c": None}], "d": "text"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"- 1\n- 2\n", "keys and values at the top level"),
        (b"system: \xff\n", "not UTF-8"),
        (b"a: &x 1\nb: *x\n", "anchors and aliases are not allowed"),
        (b"system: !!str x\n", "tag"),
        (b"system: x\nsystem: y\n", "occurs twice"),
        (b"a: b: c\n", "not valid YAML"),
        (b"[" * 1500, "nested too deeply"),
        (b"seed: " + b"9" * 5000, "not valid YAML"),
        (b"#" * 1_000_001, "larger than 1 MB"),
    ],
)
def test_bad_files(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    assert any(words in text and str(path) in text for text in problems(file=path))


def test_missing_file_is_named(tmp_path: Path) -> None:
    assert "none.yaml: cannot be read (No such file" in problems(file=tmp_path / "none.yaml")[0]
    assert "cannot be read" in problems(file=tmp_path)[0]


def test_round_trip_is_exact_and_deterministic(tmp_path: Path) -> None:
    config = Settings(
        "no",
        dt=1e-5,
        note="1e-5",
        splits=("true", "010", "2020-01-01", "=", ""),
        extra={"b": 1, "a": {"d": [1.5], "c": "~"}},
        second=Solver(max_steps=3),
    )
    assert load_config(Settings, yaml_file(tmp_path, to_yaml(config))) == config
    assert load_config(Settings, yaml_file(tmp_path, to_json(config))) == config
    assert list(to_dict(config)["extra"]) == ["a", "b"]
    assert json.loads(to_json(config)) == to_dict(config)
    assert to_yaml(config) == to_yaml(load_config(Settings, defaults=config))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | scalars, inner, max_size=4)
    ),
    max_leaves=12,
)
names = st.sampled_from(
    ["system", "seed", "dt", "save", "note", "splits", "window", "extra", "solver", "second"]
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(names | st.text(max_size=6), plain, max_size=6))
def test_arbitrary_data_gives_a_config_or_a_config_error(data: dict[str, Any]) -> None:
    try:
        got = load_config(Settings, defaults={"system": "x"} | data)
    except ConfigError as error:
        assert error.problems
    else:
        assert math.isfinite(got.dt)
        assert load_config(Settings, defaults=json.loads(to_json(got))) == got


@settings(max_examples=150, deadline=None)
@given(names | st.text(max_size=6), st.text(max_size=30))
def test_arbitrary_overrides_give_a_config_or_a_config_error(key: str, value: str) -> None:
    try:
        load_config(Settings, overrides=["system=x", f"{key}={value}"])
    except ConfigError as error:
        assert error.problems


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="[]{}:,-&*!|>'\"%@`#=~?. \n\tab01e", max_size=60))
def test_arbitrary_files_give_a_config_or_a_config_error(text: str) -> None:
    from pdejepa.core import yaml_subset

    try:
        data = yaml_subset.parse(text)
    except ValueError:
        return
    # What can be read can be written and read again, unless a key is no text (those never pass the loader).
    if isinstance(data, str):
        assert yaml_subset.parse(yaml_subset.dump(data)) == data


# ---- dataclasses inside lists and free dictionaries ----------------------------------------------------------------
@dataclass(frozen=True)
class Part:
    n: int
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ConfigError(f"n must be 0 or more, got {self.n}")


@dataclass(frozen=True)
class Whole:
    parts: dict[str, Part]
    listed: tuple[Part, ...] = ()


def test_dataclasses_in_lists_and_dictionaries() -> None:
    found = load_config(Whole, defaults={"parts": {"a": {"n": 1, "words": ["x"]}}, "listed": [{"n": 2}]})
    assert found == Whole({"a": Part(1, ("x",))}, (Part(2),))
    assert load_config(Whole, defaults=to_dict(found)) == found


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"n": "1"}, "key 'a' key n must be an integer"),
        ({"n": 1, "word": []}, "key 'a' has an unknown key word"),
        ({"words": []}, "key 'a' lacks the key n"),
        ({"n": -1}, "key 'a' cannot be used: n must be 0 or more, got -1"),
        (3, "key 'a' must be a group of keys"),
    ],
)
def test_what_is_wrong_inside_is_said(part: object, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        load_config(Whole, defaults={"parts": {"a": part}})
