"""`replicator consume`: the history of a table and its live changes, as lines of JSON."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, ConfigFile


def consume(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Source table, as in shop.orders.")],
    config: ConfigFile = DEFAULT_CONFIG,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Where to start: mirror, changelog, or a file with a cursor.",
        ),
    ] = "mirror",
    cursor: Annotated[
        Path | None,
        typer.Option(
            "--cursor",
            metavar="FILE",
            help="Continue with the cursor in this file if it exists, and write it after each batch.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for further changes until Ctrl-C or SIGTERM.")
    ] = False,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", metavar="ROWS", min=1, help="About how many rows a batch has.")
    ] = 10_000,
    poll: Annotated[
        float,
        typer.Option(
            "--poll", metavar="SECONDS", min=0.01, help="How often the lake is asked for new commits."
        ),
    ] = 1.0,
) -> None:
    """Write the history of a table and its live changes as JSON.

    With --from mirror, first come the rows of the mirror as it is now, then the changes from exactly that point; with
    --from changelog, all changes that the changelog has, from its beginning. Nothing is missing and nothing comes
    twice, whatever the mirror does meanwhile. Everything is read from the lake: Kafka and MySQL are not needed.

    \b
    Lines:
      {"type": "schema", "columns": …, "steps": …}   columns of the changes that follow; what an ALTER did to rows
      {"type": "row", "row": …}                      a row of the mirror
      {"type": "change", "change": …, "row": …}      a change: kind, position and offset; and its row
      {"type": "cursor", "cursor": …}                everything before this line is complete

    The cursor ends a batch. A program that stores the newest cursor in one transaction with its results, and starts
    with it (--from FILE), gets each change once. With --cursor FILE, the command stores it, after the batch was written
    to standard output: after a crash, one batch may come again.

    \b
    Examples:
      replicator consume shop.orders -c shop.toml | head
      replicator consume shop.orders --follow --cursor orders.cursor | program
      replicator consume shop.orders --from changelog | jq -c 'select(.type == "change")'
    """
    from replicator.config import load
    from replicator.consumer import FeedOptions
    from replicator.operations.consume import consume as run
    from replicator.operations.consume import starting_point
    from replicator.runner.signals import stop_on_signals

    settings, stopping = load(config), threading.Event()
    options = FeedOptions(batch_rows=batch_rows, poll_seconds=poll)
    with stop_on_signals(stopping):
        try:
            run(
                settings,
                table,
                starting_point(start, cursor),
                sys.stdout,
                cursor_file=cursor,
                follow=follow,
                stop=stopping,
                options=options,
            )
        except BrokenPipeError:
            # The reader has seen enough, as `head` does. Python writes the rest at its exit, which must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
