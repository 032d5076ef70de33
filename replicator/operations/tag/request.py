"""Request and list tags: without Java. The running mirror makes them; see `runner.tags`."""

import json
import time
from collections.abc import Iterable, Iterator
from typing import Final

from replicator.config import Config, KafkaLog
from replicator.errors import CheckFailed, LakeUnavailable, UsageError
from replicator.lake.properties import PAUSED_KEY
from replicator.lake.reading.catalog import MetadataCatalog, load_readable, namespace_properties, tables_in
from replicator.lake.reading.metadata_catalog import open_metadata
from replicator.lake.reading.reader import open_catalog
from replicator.lake.reading.table_metadata import TableMetadata
from replicator.lake.reading.tags import TagStatus, read_tag_records, tag_status
from replicator.model.common import ShowProgress, counted, now_ms
from replicator.model.roles import LakeRole
from replicator.model.tags import TagRecord, TagState, name_problem
from replicator.pipelines.results import result_tables

_POLL_S: Final = 0.5


def list_tags(config: Config) -> tuple[TagStatus, ...]:
    """Return the tags of the mirror, oldest first.

    Raises:
        LakeUnavailable: the catalog cannot be read.
    """
    if config.lake.is_new:
        return ()
    with open_metadata(config.lake) as catalog:
        mirrors = tables_in(catalog, config.lake.namespace).values()
        return tag_status(read_tag_records(catalog, config.lake), mirrors, _results(config, catalog))


def request_tag(config: Config, name: str, *, skip_paused: bool = False) -> None:
    """Record the request of a tag in the lake. With `skip_paused`, paused tables get none; otherwise they prevent it.

    Raises:
        UsageError: the name is no name or is taken, or no position can be proven with this configuration.
        CheckFailed: a table is paused.
        LakeUnavailable: the catalog failed.
    """
    if (problem := name_problem(name)) is not None:
        raise UsageError(problem, 'use a name like "2026-07-25" or "before-release-7"')
    _check_configuration(config)
    with open_metadata(config.lake) as known:
        _check_name(config, known, name)
        paused = _paused(config, known)
        if paused and not skip_paused:
            table, reason = paused[0]
            others = f" (and {counted(len(paused) - 1, 'more table')})" if len(paused) > 1 else ""
            raise CheckFailed(
                f"{table} is paused{others}: {reason}",
                "fix the cause and run: replicator reload; or leave paused tables out with --skip-paused",
            )
    with open_catalog(config.lake) as catalog:
        catalog.create_namespace_if_not_exists(config.lake.ops_namespace)
        record = TagRecord(name, TagState.REQUESTED, now_ms(), skip_paused=skip_paused)
        catalog.update_namespace_properties(config.lake.ops_namespace, updates={record.key: record.to_json()})


def await_tag(
    config: Config, name: str, seconds: float, on_progress: ShowProgress = lambda *_: None
) -> TagStatus | None:
    """Wait until a requested tag is complete or has failed, at most `seconds`. Return it; None if it was deleted.

    `on_progress` is called with a text, and the number of tables that are tagged and in all.

    Raises:
        LakeUnavailable: the catalog cannot be read.
    """
    deadline = time.monotonic() + seconds
    with open_metadata(config.lake) as catalog:
        while True:
            record = next((t for t in read_tag_records(catalog, config.lake) if t.name == name), None)
            if record is None:
                return None
            if not record.is_open or time.monotonic() >= deadline:
                # Results of pipelines get the tag after the tables.
                return tag_status([record], tables_in(catalog, config.lake.namespace).values(), ())[0]
            _show(config, catalog, record, on_progress)
            time.sleep(_POLL_S)


def _show(config: Config, catalog: MetadataCatalog, record: TagRecord, on_progress: ShowProgress) -> None:
    if record.point is None:
        on_progress("waiting for the mirror", 0, 1)
        return
    mirrors = tables_in(catalog, config.lake.namespace)
    (status,) = tag_status([record], mirrors.values(), ())
    on_progress(f"tagging at {record.point}", len(status.tables), len(mirrors))


def _results(config: Config, catalog: MetadataCatalog) -> list[TableMetadata]:
    """Return the results of pipelines that exist and can be read."""
    found = (load_readable(catalog, *name, {}) for name in result_tables(config, changelogs=False))
    return [table for table in found if table is not None]


def _check_configuration(config: Config) -> None:
    if not isinstance(config.log, KafkaLog):
        raise UsageError(
            "the log is an archive, and the position of a tag is read from the source",
            "tag the tables of a replayed archive with Spark: ALTER TABLE … CREATE TAG",
        )
    if config.log.connect_url is None:
        raise UsageError(
            "log.connect_url is not set: only the connector's position proves that no change is missing in a table",
            "set connect_url in [log] to the REST address of Kafka Connect, and run: replicator reload",
        )


def _check_name(config: Config, catalog: MetadataCatalog, name: str) -> None:
    """Raise UsageError if a tag or a branch has the name."""
    known = next((tag for tag in read_tag_records(catalog, config.lake) if tag.name == name), None)
    if known is not None and known.state is not TagState.FAILED:
        raise UsageError(
            f"tag {name} exists already, and is {known.state}",
            f"use another name, or delete it: replicator tag --delete {name}",
        )
    namespaces = map(config.lake.namespace_of, LakeRole)
    tables = [table for namespace in namespaces for table in tables_in(catalog, namespace).values()]
    tables += _results(config, catalog)
    if (table := next(_with_ref(tables, name), None)) is not None:
        hint = f"use another name, or delete it: replicator tag --delete {name}"
        if known is None:
            hint = "use another name: another program made it"
        raise UsageError(f"{'.'.join(table.name())} has a tag or branch {name}", hint)


def _with_ref(tables: Iterable[TableMetadata], name: str) -> Iterator[TableMetadata]:
    return (table for table in tables if name in table.refs)


def _paused(config: Config, catalog: MetadataCatalog) -> list[tuple[str, str]]:
    """Return the paused tables of the mirror and why they are paused."""
    try:
        properties = namespace_properties(catalog, config.lake.ops_namespace)
        return [
            (table, str(json.loads(text)["reason"]))
            for key, text in sorted(properties.items())
            if key.startswith(PAUSED_KEY) and config.includes(table := key.removeprefix(PAUSED_KEY))
        ]
    except (ValueError, KeyError) as error:
        raise LakeUnavailable(f"a pause cannot be read: {error}") from error
