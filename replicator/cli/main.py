"""Assembles the commands, and turns every error into one clear line and an exit code."""

import os
import sys
from collections.abc import Sequence

import typer

from replicator.cli import engine, look, quarantine, setup, stack
from replicator.errors import ReplicatorError
from replicator.jars import tell_downloads

DEBUG_VARIABLE = "REPLICATOR_DEBUG"

_HELP = """Mirror MySQL databases into Apache Iceberg tables.

The changes are those that Debezium reads from the binlog, by way of Kafka or of a recorded archive.

\b
Try it without any server:
  replicator demo

\b
With a MySQL server, a Kafka broker and Kafka Connect at hand:
  replicator init shop.toml --url mysql://replicator@db:3306/shop
  export SHOP_PASSWORD=…
  replicator check -c shop.toml       what is missing, and how to get it
  replicator connect -c shop.toml     start Debezium for this source
  replicator run -c shop.toml         keep the mirror current

Without them, `replicator stack up` starts all three on this machine.

Exit codes: 0 done, 1 the answer is no, 2 wrong use or configuration, 3 failed while running.
"""

app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 - seldom asked for, slow to import

        typer.echo(f"replicator {version('replicator')}")
        raise typer.Exit


@app.callback()
def _root(
    _show: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Options before the command."""


app.command("demo")(engine.demo)
app.command("init")(setup.init)
app.command("check")(look.check)
app.command("connect")(setup.connect)
app.command("run")(engine.run)
app.command("status")(look.status)
app.command("record")(engine.record)
app.command("replay")(engine.replay)
app.add_typer(quarantine.app, name="quarantine", short_help="Look at, replay or drop events set aside.")
app.add_typer(stack.app, name="stack", short_help="Start, stop or look at a local MySQL, Kafka and Connect.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 the answer is no, 2 wrong use or configuration, 3 failed."""
    tell_downloads(lambda line: typer.secho(line, err=True))
    try:
        app(arguments, prog_name="replicator")
    except KeyboardInterrupt:
        _fail("stopped", None, 130)
    except ReplicatorError as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        _fail(error.message, error.hint, error.exit_code)
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        hint = f"set {DEBUG_VARIABLE}=1 to see where; this one was not foreseen"
        _fail(f"{type(error).__name__}: {reason}", hint, ReplicatorError.exit_code)


def _fail(message: str, hint: str | None, code: int) -> None:
    typer.secho(f"error: {message}", fg=typer.colors.RED, err=True)
    if hint:
        typer.secho(f"next:  {hint}", err=True)
    sys.exit(code)
