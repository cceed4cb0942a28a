"""The command line turns every failure into one sentence and a documented exit code."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

import pdejepa
from pdejepa.app.cli import COMMANDS, main, run
from pdejepa.app.commands.options import ConfigFile, Overrides, PrintConfig, configure
from pdejepa.core import errors


def app_that(action: Callable[[], object]) -> typer.Typer:
    """A small application whose command `go` performs `action`."""
    app = typer.Typer()
    app.callback()(lambda: None)

    @app.command()
    def go() -> None:
        action()

    return app


def fail_with(error: BaseException) -> Callable[[], object]:
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (errors.ConfigError("bad key"), 2, "bad key"),
        (errors.ParameterError("bad value"), 2, "bad value"),
        (errors.DataError("bad data"), 3, "bad data"),
        (errors.CheckpointError("bad file"), 4, "bad file"),
        (errors.NumericalError("not finite"), 5, "not finite"),
        (errors.ResourceError("no disk"), 6, "no disk"),
        (errors.Interrupted("saved step 3"), 7, "saved step 3"),
        (KeyboardInterrupt(), 7, "Stopped on request"),
        (typer.Abort(), 7, "Stopped on request"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 6, "Disk full"),
        (PermissionError(errno.EACCES, "Permission denied", "a.txt"), 6, "Permission denied: a.txt"),
        (PermissionError(errno.EACCES, "Permission denied", "ro/.a.png.tmp-7-9c1e-5f"), 6, "ro/a.png. Choose another"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", ".d.tmp-7-9c1e-5f", None, "d"), 6, "Is a directory: d. It"),
        (FileExistsError(errno.EEXIST, "File exists", "afile"), 6, "File exists: afile. It is in the way of a folder"),
        (MemoryError(), 6, "Out of memory"),
        (ZeroDivisionError("division by zero"), 1, "Unexpected failure: ZeroDivisionError: division by zero"),
        (typer.Exit(0), 0, ""),
        (typer.BadParameter("wrong"), 2, "wrong"),
    ],
)
def test_failures(error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app_that(fail_with(error)), ["go"]) == code
    out, err = capsys.readouterr()
    assert words in err
    assert out == ""
    assert "Traceback" not in err
    assert ".tmp-" not in err


@pytest.mark.parametrize("argv", [["--debug", "go"], ["go", "--debug"]])
def test_debug_shows_the_traceback_anywhere(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app_that(fail_with(errors.DataError("bad data"))), argv) == 3
    assert "Traceback" in capsys.readouterr().err


def test_out_of_gpu_memory(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    assert run(app_that(fail_with(torch.OutOfMemoryError("CUDA out of memory"))), ["go"]) == 6
    assert "Out of memory" in capsys.readouterr().err


def test_sigterm_unwinds_and_ends_with_seven(capsys: pytest.CaptureFixture[str]) -> None:
    unwound = []

    def action() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([], 5)
        finally:
            unwound.append(True)

    before = signal.getsignal(signal.SIGTERM)
    assert run(app_that(action), ["go"]) == 7
    assert unwound == [True]
    assert signal.getsignal(signal.SIGTERM) is before
    assert "Stopped on request" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["nonsense"], ["doctor", "--nonsense"], ["doctor", "extra"], []])
def test_usage_errors_end_with_two(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pdejepa {pdejepa.__version__}\n"
    assert main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{code} {word}" in text for code, word, _ in errors.EXIT_CODES)
    assert all(name.rstrip("_").replace("_", "-") in text for name in COMMANDS)


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; from pdejepa.app.cli import main; assert main(['--help']) == 0; "
        "heavy = {'torch', 'h5py', 'scipy', 'matplotlib'} & set(sys.modules); assert not heavy, heavy"
    )
    source = str(Path(pdejepa.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_is_no_failure() -> None:
    script = f'"{sys.executable}" -m pdejepa doctor --json | true; echo "${{PIPESTATUS[0]}}"'
    env = {**os.environ, "PYTHONPATH": str(Path(pdejepa.__file__).parents[1])}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, timeout=60)
    assert done.stdout == "0\n"
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["versions"]["pdejepa"] == pdejepa.__version__
    assert report["versions"]["torch"]
    assert report["disk_free_bytes"] > 0
    assert report["memory_free_bytes"] > 0
    assert main(["doctor"]) == 0
    assert "PyYAML" in capsys.readouterr().out


def test_doctor_tells_nothing_personal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "somebody_private")
    monkeypatch.setattr("socket.gethostname", lambda: "a_private_host")
    assert main(["doctor", "--json"]) == 0
    text = capsys.readouterr().out
    assert "somebody_private" not in text
    assert "a_private_host" not in text
    assert os.getcwd() not in text
    assert str(Path.home()) + "/" not in text


def test_doctor_reports_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pdejepa.core.doctor.REQUIRED", ("torch", "no-such-package"))
    assert main(["doctor"]) == 6
    out, err = capsys.readouterr()
    assert "not installed" in out
    assert "Not installed: no-such-package" in err


@dataclass(frozen=True)
class Job:
    size: str = "tiny"
    seed: int = 0


def config_app(seen: list[Job]) -> typer.Typer:
    app = typer.Typer()
    app.callback()(lambda: None)

    @app.command()
    def go(
        overrides: Overrides = None,
        seed: int | None = None,
        config: ConfigFile = None,
        print_config: PrintConfig = False,
    ) -> None:
        seen.append(configure(Job, config, overrides, {"seed": seed}, print_config=print_config))

    return app


def test_which_source_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Job] = []
    path = tmp_path / "job.yaml"
    path.write_text("size: small\nseed: 1\n")
    assert run(config_app(seen), ["go"]) == 0
    assert run(config_app(seen), ["go", "--config", str(path)]) == 0
    assert run(config_app(seen), ["go", "--config", str(path), "--seed", "2"]) == 0
    assert run(config_app(seen), ["go", "--config", str(path), "--seed", "2", "seed=3"]) == 0
    assert seen == [Job(), Job("small", 1), Job("small", 2), Job("small", 3)]
    assert run(config_app(seen), ["go", "seed=3", "--print-config"]) == 0
    assert capsys.readouterr().out == "size: tiny\nseed: 3\n"
    assert run(config_app(seen), ["go", "sed=3"]) == 2
    assert "override: sed: unknown key, did you mean 'seed'?" in capsys.readouterr().err
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("words", "load", "policy"),
    [("train --help", 0.1, None), ("train --help", 100.0, "PASSIVE"), ("forecast --help", 0.1, "PASSIVE")],
)
def test_threads_wait_asleep_unless_a_training_has_free_cores(
    words: str, load: float, policy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spinning on a busy machine makes a training many times slower, and so does sleeping on an idle one."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert main(words.split()) == 0
    assert os.environ.get("OMP_WAIT_POLICY") == policy
