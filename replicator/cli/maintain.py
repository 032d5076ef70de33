"""`replicator maintain`: merge files and delete what is no longer needed, in all lake tables."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import time
from typing import Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile, TableOption, Tables, chosen


def maintain(
    tables: Tables = None,
    config: ConfigFile = DEFAULT_CONFIG,
    table: TableOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what may be due, without Java, and change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Merge small files; delete old snapshots and orphan files.

    `replicator run` merges files, removes deleted rows and deletes snapshots by itself between its batches, within
    limits of time and size. This command does everything that is due, without these limits, for the mirrors, the
    changelogs and the quarantine, with the settings of [maintenance]. It also rewrites manifests if there are more
    than 100, and deletes orphan files: files that the table does not reference and that are older than
    maintenance.orphan_age. With TABLES, the quarantine is skipped. `enabled = false` in the configuration stops
    only the automatic maintenance, not this command. The mirror may keep running. Exits with 1 if a step failed; a
    skipped step is no failure.

    \b
    Examples:
      replicator maintain -c shop.toml --dry-run
      replicator maintain -c shop.toml
      replicator maintain -c shop.toml shop.orders "shop.log_*"
    """
    from replicator.cli.output import progress_bar
    from replicator.cli.render import print_maintenance
    from replicator.config import load
    from replicator.operations.maintain import maintain as maintain_lake

    settings, began = load(config), time.monotonic()
    with progress_bar("reading the lake", lines=not dry_run) as show:
        reports = maintain_lake(settings, chosen(tables, table), dry_run=dry_run, on_progress=show)
    print_maintenance(reports, settings.mirror.name, as_json=as_json, seconds=time.monotonic() - began)
    raise typer.Exit(1 if any(report.problems for report in reports) else 0)
