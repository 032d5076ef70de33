"""`replicator bootstrap` and `replicator heal`: read tables from the source."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile, TableOption, Tables, chosen

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.model.reread import Request
    from replicator.model.table import TableId


def bootstrap(
    tables: Tables = None,
    config: ConfigFile = DEFAULT_CONFIG,
    table: TableOption = None,
    as_json: AsJson = False,
) -> None:
    """Read the tables that the lake lacks from the source.

    The rows are read in parts and without locks while the source changes. Then the changes since the start are
    applied to them, and the table appears in the lake with the state of one position of the log. A table that the
    lake has already, and that is named here, keeps its content until then, and gets the differences in one commit;
    its changelog records them with the op "h". The mirror may run meanwhile: it then does the work between its
    batches. If it does not run on this machine, this command does it. An interrupted bootstrap is continued, by this
    command or by `replicator run`.

    It needs log.connect_url, because only Kafka Connect knows what the connector has read, and a connector that reads
    no rows by itself: set by = "mirror" in [bootstrap], and run: replicator connect. A table without a key is read
    again if it changes meanwhile. [bootstrap] limits the load: rows per second, and the lag of replicas. Exits with 1
    if a table could not be read.

    \b
    Examples:
      replicator bootstrap -c shop.toml
      replicator bootstrap -c shop.toml shop.orders "shop.log_*"
    """
    from replicator.config import load
    from replicator.operations.reread import plan_bootstrap

    settings = load(config)
    _read(settings, plan_bootstrap(settings, chosen(tables, table)), "bootstrap", as_json=as_json)


def heal(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="DATABASE.TABLE...", help='Source tables, as in "shop.orders".', show_default=False
        ),
    ],
    config: ConfigFile = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Read tables again, and apply what differs from the source.

    The differences are written to mirror and changelog. For tables that pause because the log lacks changes, or that
    may differ for another reason. The same as `replicator bootstrap TABLE`: a paused table continues afterwards,
    and rows that the source no longer has are deleted. Exits with 1 if a table could not be read.

    \b
    Example:
      replicator heal shop.orders -c shop.toml
    """
    from replicator.config import load
    from replicator.operations.reread import plan_bootstrap

    settings = load(config)
    _read(settings, plan_bootstrap(settings, tables), "heal", as_json=as_json)


def _read(settings: "Config", tables: "Sequence[TableId]", reason: str, *, as_json: bool) -> None:
    from replicator.cli.output import progress_bar
    from replicator.cli.render import print_rereads, show_rereads
    from replicator.model.reread import Phase
    from replicator.operations.reread import reread
    from replicator.telemetry import setup_logging

    # Standard output has only the report; the progress bar shows the rest.
    setup_logging(level=logging.WARNING)
    ended: list[Request] = []
    if tables:
        with progress_bar("starting Spark") as show:
            ended = reread(settings, tables, reason, partial(show_rereads, show))
    print_rereads(ended, settings.mirror.name, as_json=as_json)
    raise typer.Exit(1 if any(r.phase is Phase.FAILED for r in ended) else 0)
