"""Read a mirror's status from the lake: without Java, Spark or a running mirror process."""

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pyiceberg.table import Table

from replicator.config import Config
from replicator.lake.properties import PAUSED_KEY, RETRYING_KEY
from replicator.lake.reader import namespace_properties, newest_marker, open_catalog
from replicator.lake.row_counts import row_count, total
from replicator.lake.tag_reader import TagStatus, tag_status
from replicator.lake.tag_records import tags_in
from replicator.maintenance.table_reader import (
    QUARANTINE,
    TableCondition,
    mirror_tables,
    read_conditions,
    read_namespaces,
)
from replicator.model.clock import now_ms
from replicator.model.commit_marker import CommitMarker
from replicator.model.reread import Request, requests_in
from replicator.model.rewind import Rewind, rewinds_in, values_of
from replicator.model.table import SOURCE_KEY, TableId, topic_name
from replicator.model.verified import VerifiedTable, verified_in
from replicator.schema.changes import SCHEMA_KEY, UNFILLED_KEY, ChangeNote, SchemaState
from replicator.sources.source_view import Ends, SourceView, read_source
from replicator.sources.topic_patterns import topic_pattern

TableState = Literal["current", "behind", "paused", "gone", "excluded", "unknown"]

_WAIT = "replicator run applies them; start it if it is not running"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of one mirrored table.

    Attributes:
        table: its name in the lake, `namespace.name`; for a table with only a changelog, the changelog's name.
        source: the source table, `database.table`.
        state: current (has everything that the source had at the time of the query; if the source is not queried, all
            of the log), behind, paused, gone (the source's table was dropped or renamed, and all its changes are in the
            lake), excluded (the configuration does not include it, so it gets no changes), or unknown (the log, the
            source or the connector cannot be reached).
        rows: number of rows of the mirror; None if that is unknown, because it has equality deletes.
        changes: number of rows of the changelog; None if there is no changelog.
        events_behind: number of offsets in the log that the mirror does not contain; None if unknown.
        position: the latest source position that it contains.
        newest_change_ms: source time of the newest change that it contains, milliseconds since the epoch.
        lag_seconds: 0 if current, else the age of the newest change that is known to be applied; None if unknown.
        committed_ms: time of the last commit, milliseconds since the epoch.
        commits: number of commits of the mirror.
        quarantined: number of unresolved quarantined events of this table.
        data_files, delete_files, bytes: size of the mirror's current snapshot.
        schema_changes: changes made to the mirror because its source changed, oldest first; see `ChangeNote`.
        reason, next_step: why the table is not current, or what failed and is being retried, and what to do.
        unfilled: columns that the source added with an expression; older rows have null in them.
        snapshots: number of Iceberg snapshots of the mirror.
        equality_delete_files, equality_deletes: how many of the delete files have keys instead of positions, and their
            number of keys. Readers compare the keys with the rows of all data files of earlier commits.
    """

    table: str
    source: str
    state: TableState
    rows: int | None
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
    reason: str | None = None
    next_step: str | None = None
    unfilled: tuple[str, ...] = ()
    snapshots: int = 0
    equality_delete_files: int = 0
    equality_deletes: int = 0


@dataclass(frozen=True, slots=True)
class TableMaintenance:
    """The maintenance of one lake table: a mirror, a changelog, or the quarantine.

    Attributes:
        table: its name in the lake, `namespace.name`.
        source: the source table, `database.table`; None for the quarantine.
        data_files, delete_files, bytes: content of the current snapshot.
        snapshots: number of Iceberg snapshots.
        metadata_bytes: size of the current metadata file; None if it cannot be read.
        maintained_ms: the time of the last maintenance, milliseconds since the epoch; None if none is recorded.
        steps: each recorded step → the time of its last run.
        due: the steps that are due.
        overdue: those of them that `replicator run` does not carry out soon by itself.
        equality_delete_files, equality_deletes: as for `TableStatus`.
    """

    table: str
    source: str | None
    data_files: int
    delete_files: int
    bytes: int
    snapshots: int
    metadata_bytes: int | None
    maintained_ms: int | None
    steps: Mapping[str, int]
    due: tuple[str, ...]
    overdue: tuple[str, ...]
    equality_delete_files: int = 0
    equality_deletes: int = 0


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """The connector of a mirror, compared with its source.

    Attributes:
        name: its name; None if there is none, or Kafka Connect cannot be reached.
        state: RUNNING, FAILED, PAUSED, STOPPED, UNASSIGNED, RESTARTING, MISSING or UNREACHABLE.
        reason, next_step: why it does not run, and what to do.
        position: the position up to which all changes are in the log, as last confirmed.
        source_position: the end of the source's binlog; None if the source cannot be reached.
        transactions_behind: number of transactions between the two; None if the source does not number them.
    """

    name: str | None
    state: str
    reason: str | None
    next_step: str | None
    position: str | None
    source_position: str | None
    transactions_behind: int | None


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """The status of a whole mirror.

    `log_problem` and `source_problem` say why the log and the source could not be queried; None if they could.
    `paused` maps each paused source table to the reason. `connector` is None if none is configured.
    """

    mirror: str
    namespace: str
    tables: tuple[TableStatus, ...]
    not_started: tuple[str, ...]
    """Source tables with events in the log but without a table in the lake."""
    paused: Mapping[str, str]
    quarantined: int
    log_problem: str | None
    source_problem: str | None = None
    connector: ConnectorStatus | None = None
    empty: tuple[str, ...] = ()
    """Source tables without rows, without events in the log and without a table in the lake."""
    unread: tuple[str, ...] = ()
    """Source tables with rows but without events in the log."""
    retrying: Mapping[str, str] = field(default_factory=dict)
    """Source tables that failed and are being retried → the reason."""
    maintenance: tuple[TableMaintenance, ...] = ()
    """All lake tables of the mirror: mirrors, changelogs, and the quarantine."""
    rereads: tuple[Request, ...] = ()
    """The newest re-read of each table that was read again."""
    rewinds: tuple[Rewind, ...] = ()
    """The newest rewind for each table whose lost events were sent again."""
    tags: tuple[TagStatus, ...] = ()
    """The tags of all tables at one source position, oldest first."""
    verified: tuple[VerifiedTable, ...] = ()
    """The newest check of each table that was compared with the source."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for programs. The keys are part of version 1 of the output."""
        value = {"version": 1, **asdict(self), "rereads": [request.values() for request in self.rereads]}
        value["rewinds"] = values_of(self.rewinds)
        value["verified"] = [check.values() for check in self.verified]
        for table in value["tables"]:
            for note in table["schema_changes"]:
                note["told"] = note.pop("declared")
        return value


def read_status(config: Config) -> MirrorStatus:
    """Read the lake, and the log, the connector and the source as far as they can be reached.

    Raises LakeUnavailable.
    """
    with ThreadPoolExecutor(1) as pool:
        view = pool.submit(read_source, config)
        # Whatever the lake has now it still has later, so it may be read before the log.
        lake = _read_lake(config)
        return _assemble(config, lake, view.result())


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why a table is paused or being retried, and what to do."""

    reason: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class _Lake:
    """The state of the lake: tables by name; quarantined events, pauses and failures by source table."""

    mirrors: Mapping[str, Table] = field(default_factory=dict)
    changelogs: Mapping[str, Table] = field(default_factory=dict)
    quarantined: Counter[str | None] = field(default_factory=Counter)
    paused: Mapping[str, _Trouble] = field(default_factory=dict)
    retrying: Mapping[str, _Trouble] = field(default_factory=dict)
    maintenance: tuple[TableMaintenance, ...] = ()
    rereads: tuple[Request, ...] = ()
    rewinds: tuple[Rewind, ...] = ()
    tags: tuple[TagStatus, ...] = ()
    verified: tuple[VerifiedTable, ...] = ()


def _read_lake(config: Config) -> _Lake:
    file = config.lake.catalog_file
    if file is not None and not file.exists():
        # A mirror that has not run yet is a valid state, not an error.
        return _Lake()
    with open_catalog(config.lake) as catalog:
        namespaces = read_namespaces(config, catalog)
        changelogs = namespaces[config.lake.changes_namespace]
        mirrors = namespaces[config.lake.namespace]
        alone = {
            name: table
            for name, table in changelogs.items()
            if name not in mirrors and (found := newest_marker(table)) is not None and found.alone
        }
        properties = namespace_properties(catalog, config.lake.ops_namespace)
        return _Lake(
            {**mirrors, **alone},
            changelogs,
            _quarantined(namespaces[config.lake.ops_namespace].get(QUARANTINE)),
            _troubles(properties, PAUSED_KEY),
            _troubles(properties, RETRYING_KEY),
            tuple(map(_maintenance, read_conditions(config, list(mirror_tables(config, namespaces))))),
            tuple(requests_in(properties)),
            tuple(rewinds_in(properties)),
            tag_status(tags_in(properties), mirrors.values()),
            tuple(verified_in(properties)),
        )


def _assemble(config: Config, lake: _Lake, view: SourceView) -> MirrorStatus:
    markers = {
        name: found for name, table in lake.mirrors.items() if (found := newest_marker(table)) is not None
    }
    started = {topic for marker in markers.values() for topic in marker.progress}
    pattern = topic_pattern(view.prefix.removesuffix("."), config.source.tables, config.source.exclude)
    waiting = sorted(
        {topic for (topic, _), end in (view.ends or {}).items() if end > 0 and topic not in started}
    )
    watermarks = [m.watermark_ms for m in markers.values() if m.watermark_ms is not None]
    judge = _Judge(config, lake, view, watermarks)
    sources = {
        source
        for name, marker in markers.items()
        for source in _sources(lake.mirrors[name], marker, view.prefix)
    }
    return MirrorStatus(
        mirror=config.mirror.name,
        namespace=config.lake.namespace,
        tables=tuple(judge.table(name, marker) for name, marker in markers.items()),
        not_started=tuple(
            source
            for topic in waiting
            if re.fullmatch(pattern, topic)
            if not config.source.excludes(source := topic.removeprefix(view.prefix))
        ),
        paused={source: trouble.reason for source, trouble in lake.paused.items()},
        quarantined=lake.quarantined.total(),
        log_problem=view.log_problem,
        source_problem=view.source_problem,
        connector=_connector(view),
        empty=tuple(table for table in view.empty if table not in sources),
        unread=tuple(table for table in view.unread if table not in sources),
        retrying={source: trouble.reason for source, trouble in lake.retrying.items()},
        maintenance=lake.maintenance,
        rereads=lake.rereads,
        rewinds=lake.rewinds,
        tags=lake.tags,
        verified=lake.verified,
    )


def _maintenance(found: TableCondition) -> TableMaintenance:
    facts, runs = found.facts, sorted(found.runs.items())
    return TableMaintenance(
        table=str(found.target),
        source=found.target.source,
        data_files=facts.data_files,
        delete_files=facts.delete_files,
        bytes=facts.bytes,
        snapshots=len(facts.snapshot_ms),
        metadata_bytes=found.metadata_bytes,
        maintained_ms=max((run.ms for _, run in runs), default=None),
        steps={str(step): run.ms for step, run in runs},
        due=tuple(map(str, found.due)),
        overdue=tuple(map(str, found.overdue)),
        equality_delete_files=found.equality_files,
        equality_deletes=facts.equality_deletes,
    )


def _connector(view: SourceView) -> ConnectorStatus | None:
    seen = view.connector
    if seen is None:
        return None
    behind = view.offset.transactions_behind(view.end) if view.offset and view.end else None
    return ConnectorStatus(
        name=seen.name,
        state=seen.state,
        reason=seen.reason,
        next_step=seen.next_step(),
        position=None if view.offset is None else str(view.offset),
        source_position=None if view.end is None else str(view.end),
        transactions_behind=behind,
    )


class _Judge:
    """Determine the state of each table relative to the source."""

    def __init__(self, config: Config, lake: _Lake, view: SourceView, watermarks: list[int]) -> None:
        self._config = config
        self._lake = lake
        self._view = view
        self._now_ms = now_ms()
        self._equality_files = {entry.table: entry.equality_delete_files for entry in lake.maintenance}
        read = view.offset.ts_sec * 1000 if view.offset and view.offset.ts_sec else 0
        # Changes are read in order: a table that has a change was given all older changes.
        self._read_ms = max([read, *watermarks])

    def table(self, name: str, marker: CommitMarker) -> TableStatus:
        """Return the status of one mirrored table, or of a changelog without a mirror."""
        mirror, changelog = self._lake.mirrors[name], self._lake.changelogs.get(name)
        snapshot = mirror.current_snapshot()
        sources = _sources(mirror, marker, self._view.prefix)
        topics = marker.topic_ids.keys() | _own_topic(mirror, self._view.prefix)
        behind = None if self._view.ends is None else events_behind(marker, self._view.ends, topics)
        text = mirror.properties.get(SCHEMA_KEY)
        schema = None if text is None else SchemaState.from_json(text)
        unfilled = mirror.properties.get(UNFILLED_KEY)
        state = self._state(behind, sources, gone=schema is not None and schema.gone is not None)
        reason, next_step = self._reason(state, behind, sources)
        name_in_lake = ".".join(mirror.name())
        return TableStatus(
            table=name_in_lake,
            source=", ".join(sources),
            state=state,
            rows=row_count(mirror),
            changes=None if changelog is None else total(changelog.current_snapshot(), "total-records"),
            events_behind=behind,
            position=None if marker.position is None else str(marker.position),
            newest_change_ms=marker.watermark_ms,
            lag_seconds=self._lag(state, behind, marker.watermark_ms),
            committed_ms=marker.committed_ms,
            commits=marker.sequence,
            quarantined=sum(self._lake.quarantined[source] for source in sources),
            data_files=total(snapshot, "total-data-files"),
            delete_files=total(snapshot, "total-delete-files"),
            bytes=total(snapshot, "total-files-size"),
            schema_changes=() if schema is None else schema.notes,
            reason=reason,
            next_step=next_step,
            unfilled=() if unfilled is None else tuple(json.loads(unfilled)),
            snapshots=len(mirror.metadata.snapshots),
            equality_delete_files=self._equality_files.get(name_in_lake, 0),
            equality_deletes=total(snapshot, "total-equality-deletes"),
        )

    def _state(self, behind: int | None, sources: list[str], *, gone: bool) -> TableState:
        # Of older mirrors, the tables are known only if the prefix is: an unreadable archive has none.
        if self._view.prefix and not any(map(self._config.includes, sources)):
            return "excluded"
        if not self._lake.paused.keys().isdisjoint(sources):
            return "paused"
        complete = self._view.log_is_complete
        if behind is None or complete is None:
            return "behind" if behind else "unknown"
        if behind or not complete:
            return "behind"
        return "gone" if gone else "current"

    def _reason(
        self, state: TableState, behind: int | None, sources: list[str]
    ) -> tuple[str | None, str | None]:
        if state == "excluded":
            step = f"none; or delete it: replicator drop {sources[0]}"
            return "the configuration does not include it", step
        for troubles, said in (
            (self._lake.paused, "{}"),
            (self._lake.retrying, "failed and is being retried: {}"),
        ):
            for source in sources:
                if trouble := troubles.get(source):
                    step = trouble.hint or "fix the cause, then restart replicator run"
                    return said.format(trouble.reason), step
        if state == "unknown":
            return self._unknown()
        if state != "behind":
            return None, None
        if behind:
            return self._log_behind(behind)
        return self._connector_behind()

    def _log_behind(self, behind: int) -> tuple[str, str]:
        found, seen = f"{behind:,} events of the log are not in the lake yet", self._view.connector
        step = seen.next_step() if seen else None
        return (f"{found}; {seen.describe()}", f"{step}; {_WAIT}") if seen and step else (found, _WAIT)

    def _unknown(self) -> tuple[str, str]:
        view = self._view
        if view.log_problem:
            return view.log_problem, "check that Kafka is running; run: replicator check"
        if view.source_problem:
            return f"has all of the log; {view.source_problem}", "run: replicator check"
        connector = "the connector is unknown" if view.connector is None else view.connector.describe()
        step = view.connector.next_step() if view.connector else None
        return f"has all of the log; {connector}", step or "run: replicator check"

    def _connector_behind(self) -> tuple[str, str]:
        view, seen = self._view, self._view.connector
        if view.offset is None:
            at = f"the connector has confirmed nothing yet, the source is at {view.end}"
        elif view.offset.in_snapshot:
            at = "the initial snapshot is not complete"
        else:
            count = view.offset.transactions_behind(view.end) if view.end else None
            later = f", {count:,} transactions later" if count else ""
            at = f"the connector has confirmed {view.offset}, the source is at {view.end}{later}"
        step = seen.next_step() if seen else None
        state = f"{seen.describe()}; " if seen and seen.state != "RUNNING" else ""
        return f"{state}{at}", step or "none: the connector is running, and confirms every few seconds"

    def _lag(self, state: TableState, behind: int | None, watermark_ms: int | None) -> float | None:
        if state in ("current", "gone"):
            return 0.0
        known = watermark_ms if behind else self._read_ms
        if behind is None or state in ("unknown", "excluded") or not known:
            return None
        return max(0.0, (self._now_ms - known) / 1000)


def _sources(mirror: Table, marker: CommitMarker, prefix: str) -> list[str]:
    """Return the source tables of a mirror: as recorded at its creation; for older mirrors, from its topics' names."""
    recorded = mirror.properties.get(SOURCE_KEY)
    topics = marker.progress.keys() | marker.topic_ids.keys()
    return [recorded] if recorded else sorted(topic.removeprefix(prefix) for topic in topics)


def _own_topic(mirror: Table, prefix: str) -> set[str]:
    """Return the topic of the source table that is recorded for a mirror; empty if none is."""
    database, _, name = mirror.properties.get(SOURCE_KEY, "").partition(".")
    return {prefix + topic_name(TableId(database, name))} if name else set()


def events_behind(marker: CommitMarker, ends: Ends, topics: Collection[str] = ()) -> int:
    """Return how many offsets of the marker's topics the table lacks. Kafka may have fewer events than offsets.

    `topics` are further ones of the table, of which the marker may have no event: it was renamed, or a topic recreated.
    """
    return sum(
        max(0, end - (marker.next_offset(topic, partition) or 0))
        for (topic, partition), end in ends.items()
        if topic in marker.progress or topic in topics
    )


def _quarantined(table: Table | None) -> Counter[str | None]:
    """Return the number of unresolved quarantined events by source table; None for events without a table."""
    if table is None:
        return Counter()
    scan = table.scan(selected_fields=("table",))
    if "state" in table.schema().column_names:
        scan = scan.filter("state IS NULL")
    tables = scan.to_arrow().column("table")
    return Counter({entry["values"]: entry["counts"] for entry in tables.value_counts().to_pylist()})


def _troubles(properties: Mapping[str, str], prefix: str) -> dict[str, _Trouble]:
    """Return the contents of the properties with this prefix, by source table."""
    return {
        key.removeprefix(prefix): _Trouble(found["reason"], found.get("hint"))
        for key, value in sorted(properties.items())
        if key.startswith(prefix) and (found := json.loads(value))
    }
