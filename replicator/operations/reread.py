"""Read tables again from the source on request: by the running mirror, or in this process if none runs here."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from replicator.config import Config, KafkaLog
from replicator.errors import MirrorRuns, UsageError
from replicator.lake.reading.catalog import namespace_properties, tables_in
from replicator.lake.reading.reader import open_catalog
from replicator.lake.reading.source_names import mirrored_tables
from replicator.lake.reading.table_metadata import newest_marker
from replicator.model.reread import REREAD_KEY, Narrowed, Request, new_request, requests_in
from replicator.model.table import SOURCE_KEY, TableId
from replicator.runner.lock import only_one
from replicator.sources.mysql.tables import selected_tables

OnProgress = Callable[[Sequence[Request]], None]
"""Called with the requests as they are now."""

_POLL_S: Final = 1.0


def plan_bootstrap(config: Config, patterns: Collection[str]) -> list[TableId]:
    """Return the tables to read: those of the source that the lake lacks, or those that `patterns` match.

    Raises:
        UsageError: a pattern matches no mirrored table of the source, or the log is an archive.
        SourceError, LakeUnavailable: source or lake cannot be read.
    """
    if not isinstance(config.log, KafkaLog):
        raise UsageError(
            "a mirror of an archive cannot read the source, because the archive has no later changes",
            'set log.kind = "kafka"',
        )
    tables = mirrored_tables(config)
    if not patterns:
        present = _present(config)
        return [table for table in tables if str(table) not in present]
    return selected_tables(tables, patterns)


def reread(
    config: Config,
    tables: Sequence[TableId],
    reason: str,
    on_progress: OnProgress,
    narrowed: Mapping[TableId, Narrowed] | None = None,
) -> list[Request]:
    """Read `tables` again, and return the requests once they have ended. Of those in `narrowed`, read a part only.

    Raises:
        ReplicatorError: the requests could not be made, or the mirror could not be started for them.
    """
    try:
        # If the mirror runs here, it is known at once, without Spark.
        with only_one(config):
            pass
        from replicator.runner.process import reread_tables  # noqa: PLC0415 - loads Spark

        return reread_tables(config, tables, reason, on_progress, narrowed)
    except MirrorRuns:
        return _let_mirror_read(config, tables, reason, on_progress, narrowed or {})


def _let_mirror_read(
    config: Config,
    tables: Sequence[TableId],
    reason: str,
    on_progress: OnProgress,
    narrowed: Mapping[TableId, Narrowed],
) -> list[Request]:
    """Request re-reads of the mirror that runs on this machine, and wait for their end."""
    namespace = config.lake.ops_namespace
    wanted = {table: new_request(table, reason, narrowed=narrowed.get(table)) for table in tables}
    followed: dict[TableId, Request | None] = dict.fromkeys(wanted)
    with open_catalog(config.lake) as catalog:
        catalog.create_namespace_if_not_exists(namespace)
    while True:
        with open_catalog(config.lake) as catalog:
            found = {r.table: r for r in requests_in(namespace_properties(catalog, namespace))}
            followed = {t: _followed(r, followed[t], found.get(t)) for t, r in wanted.items()}
            missing = {REREAD_KEY + str(t): r.to_json() for t, r in wanted.items() if followed[t] is r}
            if missing:
                catalog.update_namespace_properties(namespace, updates=missing)
        requests = [followed[table] or request for table, request in wanted.items()]
        on_progress(requests)
        if all(request.has_ended for request in requests):
            return requests
        time.sleep(_POLL_S)


def _followed(wanted: Request, known: Request | None, newest: Request | None) -> Request | None:
    """Return the request to wait for; `wanted` itself if it must be recorded, None if another one must end before that.

    `known` is the request that was waited for until now, and `newest` the table's newest one in the lake. If it has not
    ended, and reads as much as `wanted`, it is the answer: nothing is read twice.
    """
    if known is not None and known.has_ended:
        return known
    if newest is None:
        return wanted
    if newest.id in (wanted.id, None if known is None else known.id):
        return newest
    reads_as_much = newest.covers(wanted.narrowed)
    if not newest.has_ended:
        return newest if reads_as_much else None
    # The mirror replaces a request by a new one, for instance if the table pauses meanwhile.
    return newest if known is not None and reads_as_much else wanted


def _present(config: Config) -> set[str]:
    """Return the source tables that have a mirror with a commit."""
    if config.lake.is_new:
        return set()
    with open_catalog(config.lake) as catalog:
        tables = tables_in(catalog, config.lake.namespace).values()
        return {
            source
            for table in tables
            if newest_marker(table) is not None and (source := table.properties.get(SOURCE_KEY))
        }
