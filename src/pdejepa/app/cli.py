"""The command line `pdejepa`: one place where commands are listed and failures become exit codes.

To add a command: a module in `pdejepa/app/commands/` with `register(app)`, and its name in `COMMANDS`.
Command modules import PyTorch and everything that needs it inside their functions, never at the top, so that
`pdejepa --help` answers at once.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from pdejepa import __version__
from pdejepa.core.errors import EXIT_CODES, ExtrapolationWarning, Interrupted, PdejepaError, ResourceError, UsageError
from pdejepa.core.load import is_busy

COMMANDS: tuple[str, ...] = (
    "systems",
    "check_system",
    "generate",
    "import_",
    "audit",
    "show",
    "train",
    "forecast",
    "infer",
    "sweep",
    "calibrate",
    "identify",
    "evaluate",
    "results",
    "ablate",
    "pack",
    "export",
    "report",
    "baselines",
    "compare",
    "breakeven",
    "demo",
    "doctor",
)

TRAINING = ("train", "ablate", "compare")
_STOPPED = "Stopped on request. Files that were finished are intact; unfinished ones were not kept."
_OUT_OF_MEMORY = "Out of memory. Use a smaller size, grid or batch, or a machine with more memory."
_ADVICE = {
    errno.EISDIR: " It is a folder; give the name of a file.",
    errno.EEXIST: " It is in the way of a folder; choose another name.",
    errno.ENOTDIR: " A file is in the way of a folder; choose another name.",
    errno.EACCES: " Choose another place, or change its permissions.",
    errno.EROFS: " Choose another place.",
}
_INTERRUPTED_BY_TYPER = 130  # typer turns KeyboardInterrupt into this code


def _epilog() -> str:
    """The table of exit codes as it stands under `--help`."""
    lines = (f"  {code} {word}: {meaning}" for code, word, meaning in EXIT_CODES)
    return "\n".join(("Exit codes:", *lines))


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"pdejepa {__version__}")
        raise typer.Exit(0)


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the full traceback of a failure. Works in any place.")
    ] = False,
) -> None:
    """Verified data and learned surrogates for parametric partial differential equations."""


def build_app() -> typer.Typer:
    """Make the application with every command of `COMMANDS`."""
    app = typer.Typer(
        name="pdejepa",
        epilog=_epilog(),
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in COMMANDS:
        importlib.import_module(f"pdejepa.app.commands.{name}").register(app)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; the entry point of the script `pdejepa`."""
    words = list(sys.argv[1:] if argv is None else argv)
    if is_busy() or not set(TRAINING) & set(words[:2]):
        # Read when PyTorch is loaded: threads that wait asleep, not spinning, do no harm on a busy machine. Training
        # is made of many short operations, for which waking up costs as much as the work, if the cores are free.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return run(build_app(), words)


def run(app: typer.Typer, argv: list[str]) -> int:
    """Run `app`, turning every failure into one sentence on standard error and a documented code."""
    argv, debug = _take_debug(argv)
    with _sigterm_like_ctrl_c(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # commands print what a forecast says of its support
        try:
            result = app(argv, prog_name="pdejepa", standalone_mode=False)
            sys.stdout.flush()
        except BrokenPipeError:
            return _close_stdout()
        except SystemExit as leaving:
            # Typer itself answers a closed pipe by leaving with code 1.
            if isinstance(leaving.__context__, BrokenPipeError):
                return _close_stdout()
            raise
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                traceback.print_exc()
            return _explain(error)
    if result == _INTERRUPTED_BY_TYPER:
        return _say(_STOPPED, Interrupted.exit_code)
    return result if isinstance(result, int) else 0


def _take_debug(argv: list[str]) -> tuple[list[str], bool]:
    """Take `--debug` out, wherever it stands before a `--`: people add it at the end of a failed line."""
    end = argv.index("--") if "--" in argv else len(argv)
    kept = [word for word in argv[:end] if word != "--debug"]
    return kept + argv[end:], len(kept) < end


def _explain(error: BaseException) -> int:
    """Say what went wrong in one sentence and return the exit code."""
    from pdejepa.core.files import is_disk_full

    if isinstance(error, PdejepaError):
        return _say(str(error), error.exit_code)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return _say(_STOPPED, Interrupted.exit_code)
    if _is_typer_error(error):
        error.show()  # type: ignore[attr-defined]
        return UsageError.exit_code
    if is_disk_full(error):
        return _say("Disk full. Free some space, then run the same command again.", ResourceError.exit_code)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return _say(_OUT_OF_MEMORY, ResourceError.exit_code)
    if isinstance(error, OSError) and error.strerror:
        return _say(_told(error), ResourceError.exit_code)
    text = " ".join(str(error).split())[:500]
    return _say(
        f"Unexpected failure: {type(error).__name__}: {text}. This is a mistake in pdejepa; "
        "please report it with the output of the same command and --debug.",
        1,
    )


def _told(error: OSError) -> str:
    """What the system says, of the path that the user knows and not of a temporary beside it, and what to do."""
    from pdejepa.core.atomic import without_temporary

    path = error.filename2 or error.filename
    known = without_temporary(os.fsdecode(path)) if isinstance(path, str | bytes) else ""
    return f"{error.strerror}{f': {known}' if known else ''}.{_ADVICE.get(error.errno or 0, '')}"


def _is_typer_error(error: Any) -> bool:
    """Wrong options and arguments. Typer's base class has moved between versions, its shape has not."""
    return hasattr(error, "show") and hasattr(error, "format_message")


def _say(sentence: str, code: int) -> int:
    # Standard error may be closed or full; the exit code must come out all the same.
    with contextlib.suppress(OSError, ValueError):
        print(sentence, file=sys.stderr, flush=True)
    return code


def _close_stdout() -> int:
    """The reader of our output left (`pdejepa systems | head`): that is its right, and no failure."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


@contextlib.contextmanager
def _sigterm_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that temporaries are removed and locks let go."""

    def stop(_signal: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
