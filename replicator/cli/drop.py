"""`replicator drop`: remove the lake tables of one source table, or a log table."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import sys
from typing import Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile
from replicator.errors import UsageError


def drop(
    table: Annotated[
        str,
        typer.Argument(
            metavar="DATABASE.TABLE",
            help='The source table, as in "shop.orders", or the log table, as in "logs.clicks".',
            show_default=False,
        ),
    ],
    config: ConfigFile = DEFAULT_CONFIG,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete the files too. Otherwise they stay in their folders.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop the lake tables of a source table, or a log table.

    The tables are removed from the catalog at once. With --purge, everything in their folders is then deleted, many
    files at a time; if the command is interrupted, the same command deletes the rest. A folder that another table
    of the catalog uses is refused. Events in quarantine stay. The source is not changed.

    The mirror must not run, also not on other machines. If the configuration still selects the table, the next
    `replicator run` creates it again: from the source or, if the mirror reads no new tables, from the first event
    that the log still has, as a log table. Asks for confirmation; without a terminal, --yes is required. Exits with
    1 if the lake has no such table, or if the answer is no.

    \b
    Examples:
      replicator drop shop.orders -c shop.toml
      replicator drop shop.orders --purge
      replicator drop shop.orders --purge --yes --json
    """
    from replicator.cli.output import confirmed, progress_bar
    from replicator.cli.render import print_drop_plan, print_dropped
    from replicator.config import load
    from replicator.operations.drop import drop as drop_tables
    from replicator.operations.drop import nothing_dropped, plan_drop

    settings = load(config)
    if not yes and not sys.stdin.isatty():
        raise UsageError("drop asks for confirmation, but standard input is not a terminal", "add --yes")
    with progress_bar("reading the lake"):
        plan = plan_drop(settings, table, purge=purge)
    if not plan:
        print_dropped(nothing_dropped(plan), as_json=as_json)
        raise typer.Exit(1)
    if not yes:
        print_drop_plan(plan)
        if not confirmed(f"Drop {table} and delete its files?" if purge else f"Drop {table}?"):
            raise typer.Exit(1)
    with progress_bar("reading the lake") as show:
        report = drop_tables(settings, plan, show)
    print_dropped(report, as_json=as_json)
