"""Where a mirror is, read from the lake itself: no Java, no Spark, and no help from a running process."""

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table

from replicator.archive import ArchiveReader
from replicator.catalog import newest_marker, open_catalog, tables_in
from replicator.config import Config, KafkaLog
from replicator.errors import LogError, LogUnavailable
from replicator.model.commit import CommitMarker
from replicator.model.schema_change import SCHEMA_KEY, ChangeNote, SchemaState
from replicator.model.table import SOURCE_KEY
from replicator.source.pattern import topic_pattern

TableState = Literal["current", "behind", "paused", "gone", "unknown"]
Ends = Mapping[tuple[str, int], int]
"""(topic, partition) → the offset that the log's next event gets."""

_TIMEOUT = 5  # seconds
_PAUSED_KEY = "replicator.paused."
"""As the ledger writes it; taken over by value, because the ledger's module loads Spark."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One mirrored table.

    Attributes:
        table: its name in the lake, `namespace.name`; of a table that has a changelog only, the changelog's.
        source: the source table, `database.table`.
        state: current (contains all that the log holds), behind, paused (stopped at an event, see
            `MirrorStatus.paused`), gone (the source's table was dropped or renamed, and all is here), or unknown (the
            log cannot be reached).
        rows: rows of the mirror.
        changes: rows of the changelog; None without one.
        events_behind: offsets in the log that the mirror does not contain; None when unknown.
        position: the furthest source position that it contains.
        newest_change_ms: source time of the newest change that it contains, milliseconds since the epoch.
        lag_seconds: 0 when current, else the age of the newest change; None when unknown.
        committed_ms: when the last commit was made, milliseconds since the epoch.
        commits: how many commits the mirror has had.
        quarantined: events of this table that wait in quarantine.
        data_files, delete_files, bytes: what the mirror's current snapshot consists of.
        schema_changes: what was done to the mirror because its source changed, oldest first; see `ChangeNote`.
    """

    table: str
    source: str
    state: TableState
    rows: int
    changes: int | None
    events_behind: int | None
    position: str | None
    newest_change_ms: int | None
    lag_seconds: float | None
    committed_ms: int
    commits: int
    quarantined: int
    data_files: int
    delete_files: int
    bytes: int
    schema_changes: tuple[ChangeNote, ...] = ()


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """A whole mirror. `log_problem` says why the log could not be asked, and is None where it could.

    `paused` has, for each source table that is paused, the reason.
    """

    mirror: str
    namespace: str
    tables: tuple[TableStatus, ...]
    not_started: tuple[str, ...]
    """Source tables that have events in the log and no table in the lake yet."""
    paused: Mapping[str, str]
    quarantined: int
    log_problem: str | None

    def to_json(self) -> dict[str, Any]:
        """Plain values for a program."""
        return {"version": 1, **asdict(self)}


def read_status(config: Config) -> MirrorStatus:
    """Look at the lake and, where it can be reached, at the log. Raises LakeUnavailable."""
    file = config.lake.catalog_file
    if file is not None and not file.exists():
        # A mirror that has not run yet is a state, no failure.
        return _assemble(config, _Lake())
    with open_catalog(config.lake) as catalog:
        lake = _Lake(
            tables_in(catalog, config.lake.namespace),
            tables_in(catalog, config.lake.changes_namespace),
            _quarantined(catalog, config),
            _paused(catalog, config),
        )
    return _assemble(config, lake)


@dataclass(frozen=True, slots=True)
class _Lake:
    """What was read from the lake: tables by name, quarantined events and pause reasons by source table."""

    mirrors: Mapping[str, Table] = field(default_factory=dict)
    changelogs: Mapping[str, Table] = field(default_factory=dict)
    quarantined: Counter[str | None] = field(default_factory=Counter)
    paused: Mapping[str, str] = field(default_factory=dict)


def _assemble(config: Config, lake: _Lake) -> MirrorStatus:
    prefix, ends, problem = _log(config)
    now_ms = time.time_ns() // 1_000_000
    alone = {
        name: table
        for name, table in lake.changelogs.items()
        if name not in lake.mirrors and (found := newest_marker(table)) is not None and found.alone
    }
    lake = replace(lake, mirrors={**lake.mirrors, **alone})
    markers = {
        name: found for name, table in lake.mirrors.items() if (found := newest_marker(table)) is not None
    }
    started = {topic for marker in markers.values() for topic in marker.progress}
    ours = re.compile(topic_pattern(prefix.removesuffix("."), config.source.tables, config.source.exclude))
    waiting = sorted({topic for (topic, _), end in (ends or {}).items() if end > 0 and topic not in started})
    return MirrorStatus(
        mirror=config.mirror.name,
        namespace=config.lake.namespace,
        tables=tuple(_table(lake, name, marker, prefix, ends, now_ms) for name, marker in markers.items()),
        not_started=tuple(
            source
            for topic in waiting
            if ours.fullmatch(topic)
            if not config.source.excludes(source := topic.removeprefix(prefix))
        ),
        paused=lake.paused,
        quarantined=lake.quarantined.total(),
        log_problem=problem,
    )


def _table(
    lake: _Lake, name: str, marker: CommitMarker, prefix: str, ends: Ends | None, now_ms: int
) -> TableStatus:
    mirror, changelog = lake.mirrors[name], lake.changelogs.get(name)
    behind = None if ends is None else events_behind(marker, ends)
    summary = _summary(mirror)
    sources = _sources(mirror, marker, prefix)
    paused = not lake.paused.keys().isdisjoint(sources)
    text = mirror.properties.get(SCHEMA_KEY)
    schema = None if text is None else SchemaState.from_json(text)
    return TableStatus(
        table=".".join(mirror.name()),
        source=", ".join(sources),
        state=_state(behind, paused=paused, gone=schema is not None and schema.gone is not None),
        # Position deletes never name a row twice, so what is left can be counted without reading it.
        rows=summary["total-records"] - summary["total-position-deletes"],
        changes=None if changelog is None else _summary(changelog)["total-records"],
        events_behind=behind,
        position=None if marker.position is None else str(marker.position),
        newest_change_ms=marker.watermark_ms,
        lag_seconds=_lag(behind, marker.watermark_ms, now_ms),
        committed_ms=marker.committed_ms,
        commits=marker.sequence,
        quarantined=sum(lake.quarantined[source] for source in sources),
        data_files=summary["total-data-files"],
        delete_files=summary["total-delete-files"],
        bytes=summary["total-files-size"],
        schema_changes=()
        if (text := mirror.properties.get(SCHEMA_KEY)) is None
        else SchemaState.from_json(text).notes,
    )


def _sources(mirror: Table, marker: CommitMarker, prefix: str) -> list[str]:
    """The source tables of a mirror: as recorded when it was made; else, of older ones, as its topics are called."""
    recorded = mirror.properties.get(SOURCE_KEY)
    return [recorded] if recorded else sorted(topic.removeprefix(prefix) for topic in marker.progress)


def _state(behind: int | None, *, paused: bool, gone: bool) -> TableState:
    if paused or behind is None:
        return "paused" if paused else "unknown"
    if behind:
        return "behind"
    return "gone" if gone else "current"


def events_behind(marker: CommitMarker, ends: Ends) -> int:
    """How many offsets of the marker's topics the table lacks. Kafka may have fewer events there."""
    return sum(
        max(0, end - (marker.next_offset(topic, partition) or 0))
        for (topic, partition), end in ends.items()
        if topic in marker.progress
    )


def _lag(behind: int | None, watermark_ms: int | None, now_ms: int) -> float | None:
    if behind == 0:
        return 0.0
    if behind is None or watermark_ms is None:
        return None
    return max(0.0, (now_ms - watermark_ms) / 1000)


def _summary(table: Table) -> Counter[str]:
    """The totals of the current snapshot; 0 for what it does not say."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return Counter()
    return Counter(
        {
            key: int(value)
            for key, value in snapshot.summary.additional_properties.items()
            if key.startswith("total-")
        }
    )


def _quarantined(catalog: Catalog, config: Config) -> Counter[str | None]:
    """Events that wait in quarantine by source table; None for records that are of no table."""
    name = (config.lake.ops_namespace, "quarantine")
    if not catalog.table_exists(name):
        return Counter()
    table = catalog.load_table(name)
    scan = table.scan(selected_fields=("table",))
    if "state" in table.schema().column_names:
        scan = scan.filter("state IS NULL")
    tables = scan.to_arrow().column("table")
    return Counter({entry["values"]: entry["counts"] for entry in tables.value_counts().to_pylist()})


def _paused(catalog: Catalog, config: Config) -> dict[str, str]:
    """Why a table is paused, by source table."""
    try:
        properties = catalog.load_namespace_properties(config.lake.ops_namespace)
    except NoSuchNamespaceError:
        return {}
    return {
        key.removeprefix(_PAUSED_KEY): json.loads(value)["reason"]
        for key, value in sorted(properties.items())
        if key.startswith(_PAUSED_KEY)
    }


def _log(config: Config) -> tuple[str, Ends | None, str | None]:
    """What data topics begin with, the ends of their partitions, and why those are not known."""
    log = config.log
    try:
        if isinstance(log, KafkaLog):
            return f"{log.topic_prefix}.", _kafka_ends(log), None
        archive = ArchiveReader(log.path)
        return f"{log.topic_prefix or archive.manifest.topic_prefix}.", archive.end_offsets(), None
    except LogError as error:
        return f"{log.topic_prefix}." if log.topic_prefix else "", None, error.message


def _kafka_ends(log: KafkaLog) -> Ends:
    admin = AdminClient(log.client_options() | {"socket.timeout.ms": _TIMEOUT * 1000, "log_level": 0})
    try:
        topics = admin.list_topics(timeout=_TIMEOUT).topics
        places = [
            TopicPartition(name, partition)
            for name, topic in topics.items()
            if name.startswith(f"{log.topic_prefix}.")
            for partition in topic.partitions
        ]
        asked = admin.list_offsets({place: OffsetSpec.latest() for place in places}, request_timeout=_TIMEOUT)
        return (
            {(p.topic, p.partition): answer.result(_TIMEOUT).offset for p, answer in asked.items()}
            if places
            else {}
        )
    except KafkaException as error:
        raise LogUnavailable(
            f"cannot reach Kafka at {log.bootstrap_servers}: {error.args[0].str()}"
        ) from error
