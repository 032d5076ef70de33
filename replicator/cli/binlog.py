"""The part of the command `record` that imports binary logs."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from replicator.model.common import counted

if TYPE_CHECKING:
    from replicator.operations.binlog import Imported, ImportRequest, Progress


def import_files(config: Path, request: "ImportRequest", *, until_caught_up: bool, as_json: bool) -> None:
    """Import binary logs into an archive, and print the result. Raises UsageError if the options do not fit."""
    from replicator.cli.output import progress_bar
    from replicator.config import load
    from replicator.errors import UsageError
    from replicator.operations.binlog import import_binlog
    from replicator.runner.signals import stop_on_signals

    if until_caught_up:
        raise UsageError("an import ends at the end of the files", "omit --until-caught-up")
    settings = load(config)
    stop = threading.Event()
    with stop_on_signals(stop), progress_bar("checking the files") as show:

        def report(progress: "Progress") -> None:
            show(progress.phase, progress.done, progress.total)

        done = import_binlog(settings, request, on_progress=report, stop=stop)
    _print(done, request.to, as_json=as_json)
    if not done.complete:
        raise typer.Exit(1)


def _print(done: "Imported", to: Path | str, *, as_json: bool) -> None:
    from replicator.cli.output import print_json

    if as_json:
        print_json(_document(done))
        return
    if done.files:
        first, last = done.files[0], done.files[-1]
        size = sum(file.size for file in done.files)
        typer.echo(
            f"Read {first.name} to {last.name} ({size / 1e6:,.1f} MB, {counted(done.transactions, 'transaction')}),"
            f" recorded {counted(done.events, 'event')} into {to}."
        )
        if last.cut_at is not None:
            typer.echo(
                f"{last.name} is incomplete from offset {last.cut_at}; a transaction there was left out."
            )
    if not done.complete:
        typer.echo("The import was stopped; run the same command to continue.")


def _document(done: "Imported") -> dict[str, Any]:
    return {
        "events": done.events,
        "complete": done.complete,
        "transactions": done.transactions,
        "files": [
            {"name": file.name, "bytes": file.size, "version": file.version, "cut_at": file.cut_at}
            for file in done.files
        ],
    }
