"""Assemble the commands, and turn every error into a clear message and an exit code."""

import os
import sys
from collections.abc import Sequence

import typer

from replicator.cli import (
    archive,
    consume,
    drop,
    inspect,
    maintain,
    pipeline,
    quarantine,
    rebuild,
    reload,
    reread,
    run,
    setup,
    stack,
    tag,
    verify,
)
from replicator.cli.next_steps import next_step_lines
from replicator.errors import ReplicatorError
from replicator.jvm.jars import report_downloads

DEBUG_VARIABLE = "REPLICATOR_DEBUG"

_HELP = """Mirror MySQL databases into Apache Iceberg tables.

The changes come from Debezium, through Kafka or a recorded archive.

\b
Try it without any server:
  replicator demo

\b
With a MySQL server, a Kafka broker and Kafka Connect:
  replicator init shop.toml --url mysql://replicator@db:3306/shop
  export SHOP_PASSWORD=…
  replicator check -c shop.toml       what is missing, and the next step
  replicator connect -c shop.toml     start Debezium for this source
  replicator run -c shop.toml         keep the mirror current

Without them, `replicator stack up` starts all three on this machine.

Exit codes: 0 success, 1 negative result, 2 invalid usage or configuration, 3 failure at run time.
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


app.command("demo")(run.demo)
app.command("init")(setup.init)
app.command("check")(inspect.check)
app.command("connect")(setup.connect)
app.command("run")(run.run)
app.command("reload")(reload.reload)
app.command("status")(inspect.status)
app.command("bootstrap")(reread.bootstrap)
app.command("heal")(reread.heal)
app.command("maintain")(maintain.maintain)
app.command("tag")(tag.tag)
app.command("rebuild")(rebuild.rebuild)
app.command("restore")(rebuild.restore)
app.command("verify")(verify.verify)
app.command("drop")(drop.drop)
app.command("consume")(consume.consume)
app.command("record")(archive.record)
app.command("replay")(archive.replay)
app.command("archive")(archive.archive)
app.add_typer(
    pipeline.app, name="pipeline", short_help="Tables that are computed from mirrors, and kept current."
)
app.add_typer(quarantine.app, name="quarantine", short_help="List, replay or drop quarantined events.")
app.add_typer(stack.app, name="stack", short_help="Start, stop or inspect a local MySQL, Kafka and Connect.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 success, 1 negative result, 2 invalid usage or configuration, 3 failure."""
    report_downloads(lambda line: typer.secho(line, err=True))
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
        hint = f"this error is unexpected; set {DEBUG_VARIABLE}=1 to see its traceback"
        _fail(f"{type(error).__name__}: {reason}", hint, ReplicatorError.exit_code)


def _fail(message: str, hint: str | None, code: int) -> None:
    typer.secho(f"error: {message}", fg=typer.colors.RED, err=True)
    for number, line in enumerate(next_step_lines(hint) if hint else ()):
        typer.secho(f"next:  {line}" if number == 0 else f"     {line}", err=True)
    sys.exit(code)
