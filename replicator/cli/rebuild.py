"""`replicator rebuild` and `replicator restore`: make mirrors from their changelogs again."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile, TableOption, Tables, chosen, moment
from replicator.errors import UsageError

_To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="NAMESPACE", help="Write new tables there, and leave the mirrors as they are."
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the rows, and change nothing.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def rebuild(
    tables: Tables = None,
    config: ConfigFile = DEFAULT_CONFIG,
    table: TableOption = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="MOMENT", help="Position, GTID or time; default: all changes."),
    ] = None,
    to: _To = None,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild mirrors from their changelogs.

    The changelog has every change, so the result equals the mirror, now or at the moment of --as-of: rows, columns,
    and for a table without a key the number of copies. MOMENT is a position in the binlog ("binlog.000123:4567", as
    `status --positions` shows it), a GTID (UUID:NUMBER, the state after that transaction), or a time in ISO
    8601 (UTC without an offset; the state before the first transaction with a later change).

    Without --to, each mirror is replaced in one atomic commit, and `replicator run` continues it. The mirror must not
    run, also not on other machines. As of an earlier moment, `replicator run` then applies the later events again,
    which the log must still have. With --to, new tables are written; the mirror may run. They are ordinary tables,
    which no mirror continues.

    If one of the tables cannot be rebuilt, none is. If the command is interrupted, repeat it. Asks for confirmation
    before mirrors are replaced; without a terminal, --yes is required.

    \b
    Examples:
      replicator rebuild shop.orders --dry-run
      replicator rebuild shop.orders --yes
      replicator rebuild --as-of 2026-07-25T10:00:00Z --to shop_before
    """
    _run(config, chosen(tables, table), as_of, to, dry_run=dry_run, yes=yes, as_json=as_json)


def restore(
    as_of: Annotated[
        str, typer.Option("--as-of", metavar="MOMENT", help="Position, GTID or time.", show_default=False)
    ],
    config: ConfigFile = DEFAULT_CONFIG,
    to: _To = None,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild all mirrors as of one moment of the source.

    The same as `replicator rebuild --as-of MOMENT` of all tables with a changelog: all have the state of one
    position, so joins of them see one state of the database, if the position is the end of a transaction. A GTID and
    a time always are, if the source has GTIDs.

    \b
    Examples:
      replicator restore --as-of 2026-07-25T10:00:00Z --to shop_before
      replicator restore --as-of 3e11fa47-71ca-11e1-9e33-c80aa9429562:77 --dry-run
    """
    _run(config, (), as_of, to, dry_run=dry_run, yes=yes, as_json=as_json)


def _run(
    config: Path,
    patterns: Sequence[str],
    as_of: str | None,
    to: str | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    from replicator.cli.output import progress_bar
    from replicator.cli.render import print_rebuilt
    from replicator.config import load
    from replicator.operations.rebuild.rebuild import rebuild as rebuild_mirrors

    settings = load(config)
    then = moment("--as-of", as_of)
    if to is None and not dry_run and not yes:
        _confirm(settings.mirror.name, patterns, as_of)
    with progress_bar("starting Spark") as show:
        reports = rebuild_mirrors(settings, patterns, as_of=then, to=to, dry_run=dry_run, on_progress=show)
    print_rebuilt(reports, as_json=as_json)


def _confirm(mirror: str, patterns: Sequence[str], as_of: str | None) -> None:
    from replicator.cli.output import confirmed

    if not sys.stdin.isatty():
        raise UsageError(
            "the command replaces mirrors and asks for confirmation, but standard input is not a terminal",
            "add --yes; or write new tables with --to NAMESPACE",
        )
    what = ", ".join(patterns) or f"all mirrors of {mirror}"
    question = f"Replace {what}" + ("?" if as_of is None else f" by their state as of {as_of}?")
    if not confirmed(question):
        raise typer.Exit(1)
