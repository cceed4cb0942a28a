"""Exit codes are a promise to scripts; spelling help is a promise to people."""

from __future__ import annotations

import pytest

from pdejepa.core import errors


@pytest.mark.parametrize(
    ("cls", "code"),
    [
        (errors.UsageError, 2),
        (errors.ConfigError, 2),
        (errors.ParameterError, 2),
        (errors.DataError, 3),
        (errors.CheckpointError, 4),
        (errors.NumericalError, 5),
        (errors.ResourceError, 6),
        (errors.Interrupted, 7),
    ],
)
def test_exit_codes(cls: type[errors.PdejepaError], code: int) -> None:
    assert cls.exit_code == code
    assert issubclass(cls, errors.PdejepaError)
    assert code in {row[0] for row in errors.EXIT_CODES}


def test_parameter_and_config_errors_are_usage_errors() -> None:
    assert issubclass(errors.ConfigError, errors.UsageError)
    assert issubclass(errors.ParameterError, errors.UsageError)


def test_exit_code_table_has_each_code_once() -> None:
    codes = [code for code, _, _ in errors.EXIT_CODES]
    assert codes == list(range(8))


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("epoch", ", did you mean 'epochs'?"),
        ("Epochs", ", did you mean 'epochs'?"),
        ("EPOCH", ", did you mean 'epochs'?"),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_did_you_mean(word: str, answer: str) -> None:
    assert errors.did_you_mean(word, ["epochs", "lags", "seed"]) == answer


def test_did_you_mean_copes_with_huge_words_and_no_options() -> None:
    assert errors.did_you_mean("x" * 1_000_000, ["epochs"]) == ""
    assert errors.did_you_mean("epochs", []) == ""


def test_did_you_mean_copes_with_what_is_no_word() -> None:
    assert errors.did_you_mean(None, ["epochs"]) == ""
    assert errors.did_you_mean(b"epochs", ["epochs"]) == ", did you mean 'epochs'?"


def test_config_error_lists_its_problems() -> None:
    assert errors.ConfigError("one").problems == ("one",)
    assert errors.ConfigError("two", ["a", "b"]).problems == ("a", "b")
