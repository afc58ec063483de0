"""The command line. Every command imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from reta import __version__
from reta.commands import bench, classify, coop, data, demo, doctor, features, inspect, sweep
from reta.errors import RetaError

NEXT = {
    errno.ENOSPC: "make room and run the same command again",
    errno.EDQUOT: "make room and run the same command again",
    errno.EROFS: "choose a place that can be written",
    errno.EACCES: "choose a place that can be written, or change its rights",
    errno.ENOENT: "check the path",
}
app = typer.Typer(
    name="reta",
    help="Test-time adaptation of vision-language models: CLIP that adapts while it runs, without labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("classify")(classify.classify)
app.command("sweep")(sweep.sweep)
app.command("doctor")(doctor.doctor)
app.command("models")(inspect.models)
app.add_typer(data.app, name="data")
app.add_typer(data.prompts_app, name="prompts")
app.add_typer(features.app, name="features")
app.add_typer(coop.app, name="coop")
app.add_typer(bench.app, name="bench")
app.add_typer(inspect.methods_app, name="methods")
app.add_typer(inspect.state_app, name="state")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"reta {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that go before a command."""


def main() -> None:
    """Run the command line; an error that `reta` knows is one line and an exit code, never a traceback."""
    try:
        app()
    except RetaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"error: {_plain(error)}", file=sys.stderr)
        sys.exit(1)


def _plain(error: OSError) -> str:
    """What the system says, about which file, and what to do next.

    >>> _plain(OSError(errno.ENOSPC, "No space left on device", "x.csv"))
    "No space left on device: 'x.csv'; make room and run the same command again"
    """
    place = "" if error.filename is None else f": {str(error.filename)!r}"
    return f"{error.strerror or error}{place}; {NEXT.get(error.errno or 0, 'check the path and its rights')}"
