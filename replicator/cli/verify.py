"""`replicator verify`: compare a mirror with its source."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile, TableOption

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.verify.results import Report

_EXIT_CODES: Final = {"equal": 0, "different": 1, "undecided": 3}


def verify(  # noqa: PLR0917 - options are passed by name
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATABASE.TABLE...]",
            help='Check these source tables only, as in "shop.orders" or "shop.*".',
            show_default=False,
        ),
    ] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    table: TableOption = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE",
            dir_okay=False,
            help="Also write the report as one HTML file, which only you can read.",
        ),
    ] = None,
    as_json: AsJson = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Read the tables that differ again, which corrects them, and check them again."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --repair: only show what would be written.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", min=0, help="How long to wait until the mirror is at the position."
        ),
    ] = 300,
    max_rows_per_second: Annotated[
        int | None,
        typer.Option(
            "--max-rows-per-second",
            metavar="ROWS",
            min=1,
            help="Read the source at this rate at most, tables whose key begins with an integer or BINARY.",
        ),
    ] = None,
    first: Annotated[
        int | None,
        typer.Option("--first", metavar="KEY", help="Check keys from this value of their first column only."),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="KEY", help="Check keys up to this value of their first column only."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="POSITION",
            help='Check only keys that changed since then: "last" for the last check, if it found the table equal, '
            "a binlog position as in binlog.000012:4, or a set of GTIDs.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the check that was interrupted, with the same options.")
    ] = False,
    connections: Annotated[
        int,
        typer.Option(
            "--connections", metavar="N", min=1, max=64, help="Number of connections to the source."
        ),
    ] = 2,
    max_differences: Annotated[
        int,
        typer.Option(
            "--max-differences",
            metavar="ROWS",
            min=1,
            help="Look for this many differing rows in each table at most.",
        ),
    ] = 10_000,
    sample: Annotated[
        float,
        typer.Option(
            "--sample",
            metavar="PERCENT",
            min=0,
            max=100,
            help="Check a random share of each table only, if its key begins with an integer or BINARY.",
        ),
    ] = 100,
) -> None:
    """Compare the mirror with the source row by row.

    Both may change meanwhile. The source is read in one consistent transaction, without locks. The mirror is compared
    at its position: later changes are undone with the images in the changelog. Checksums are computed on both sides;
    where they differ, smaller parts are compared, and then single rows. Columns and types are compared too. Masked
    columns are not read.

    A check that is interrupted can be continued with --resume: tables, and parts of large tables, that are done are not
    checked again.

    --repair reads the ranges of keys in which rows differ again from the source, or the whole table if its key does not
    begin with an integer or BINARY or if its columns differ. As `replicator heal`, it writes exactly the rows that
    differ to mirror and changelog. The report is then that of a second check of these tables. --dry-run shows the
    changes first.

    The mirror must be running, and its connector too. The newest check of each table is shown by `replicator status`.
    Exits with 0 if all tables are equal, with 1 if one differs, with 3 if one could not be decided or the check failed.

    \b
    Examples:
      replicator verify -c shop.toml
      replicator verify shop.orders -c shop.toml --report orders.html
      replicator verify -c shop.toml --since last
      replicator verify shop.orders -c shop.toml --first 1000000 --last 2000000
      replicator verify -c shop.toml --json | jq '.tables[] | select(.verdict != "equal")'
    """
    from replicator.cli.output import progress_bar
    from replicator.cli.render import show_rereads
    from replicator.cli.render_verify import print_plan, print_report
    from replicator.config import load
    from replicator.errors import UsageError
    from replicator.model.common import now_ms
    from replicator.telemetry import setup_logging
    from replicator.verify.mirror_check import Wanted
    from replicator.verify.mirror_check import verify as check
    from replicator.verify.report_html import to_html
    from replicator.verify.table_check import Limits

    if dry_run and not repair:
        raise UsageError("--dry-run shows what --repair would write", "add --repair")
    setup_logging(level=logging.WARNING)
    # Each check has another sample.
    limits = Limits(max_rows_per_second, max_differences, sample / 100, now_ms(), connections)
    settings = load(config)
    wanted = Wanted((*(tables or ()), *(table or ())), wait, limits, since, first, last, resume)
    with progress_bar("reading the lake") as show:
        found = check(settings, wanted, show)
        if repair and not dry_run:
            from replicator.operations.repair import repair as repair_tables

            found = repair_tables(settings, wanted, found, partial(show_rereads, show), show)
    found = _with_results(settings, found)
    if report is not None:
        # It has values of rows.
        report.touch(0o600)
        report.write_text(to_html(found), encoding="utf-8")
    print_report(found, as_json=as_json)
    if dry_run and not as_json:
        print_plan(found)
    raise typer.Exit(_EXIT_CODES[found.verdict])


def _with_results(settings: "Config", found: "Report") -> "Report":
    """Return a report that says which results of pipelines are computed of the tables that may differ."""
    from dataclasses import replace

    from replicator.pipelines.results import results_over
    from replicator.verify.results import Verdict

    over = results_over(settings)
    return replace(
        found,
        tables=[
            table
            if table.verdict is Verdict.EQUAL
            else replace(table, results=over(table.table.partition(".")[2]))
            for table in found.tables
        ],
    )
