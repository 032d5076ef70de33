"""Notice tables that were empty when the connector took its snapshot again: no row replaces those of their mirrors.

The schema-change topic has the definitions of the snapshot. Once it has ended, and a mirror has all events from before
that, the mirror must have rows of it. If not, the table is paused, and healed as others are.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from replicator.batch import MirrorContext
from replicator.config import Config, KafkaLog
from replicator.errors import ConnectError, SchemaError, SnapshotLacksTable, UnknownPast
from replicator.lake.ledger import Progress
from replicator.model.binlog import ConnectorOffset
from replicator.model.commit_marker import CommitMarker
from replicator.model.snapshot_checks import CLOCK_SKEW_MS, Awaited, SnapshotChecks, checks_in
from replicator.model.table import TableId, topic_name
from replicator.runner.table_states import TableStates, gets_mirror
from replicator.schema.snapshot_definitions import SnapshotDefinition
from replicator.sources.connector_settings import REBUILT_AT, connect_client

_POLL_S: Final = 2.0
_LOOK_S: Final = 10.0
"""Interval at which definitions are read although there are no new events."""
_PATIENCE_S: Final = 60.0
"""How long a run that ends when it has caught up waits for the connector to confirm that its snapshot has ended."""
_READS_NO_ROWS: Final = frozenset({"no_data", "schema_only", "recovery", "schema_only_recovery", "never"})
"""The values of `snapshot.mode` with which a snapshot has definitions and no rows."""
_KEEPS_ITS_OFFSET: Final = frozenset({"recovery", "schema_only_recovery"})
"""Those with which the connector continues at its offset. With the others, it had none."""


@dataclass(frozen=True, slots=True)
class ConnectorView:
    """What Kafka Connect says of the connector.

    Attributes:
        snapshot_mode: its setting.
        offset: None if it has confirmed none.
        rebuilt_at: where it continued when it last read the definitions again for the mirror.
    """

    snapshot_mode: str
    offset: ConnectorOffset | None = None
    rebuilt_at: str | None = None

    @property
    def reads_no_rows(self) -> bool:
        """Whether its snapshots have definitions only."""
        return self.snapshot_mode in _READS_NO_ROWS

    def keeps_its_offset(self, definition: SnapshotDefinition) -> bool:
        """Return whether it read a definition again without a gap in its events."""
        at = f"{definition.position.file}:{definition.position.pos}"
        return definition.has_no_rows and (self.snapshot_mode in _KEEPS_ITS_OFFSET or at == self.rebuilt_at)

    def has_ended(self, definition: SnapshotDefinition) -> bool:
        """Return whether everything of the snapshot that has a definition is in the log.

        While a snapshot is taken, the connector may still have its earlier offset.
        """
        offset = self.offset
        if offset is None or offset.in_snapshot or offset.ts_sec is None:
            return False
        at = replace(definition.position, file=offset.file, pos=offset.pos)
        return at >= definition.position and offset.ts_sec * 1000 + CLOCK_SKEW_MS >= definition.ts_ms


def has_later_change(marker: CommitMarker | None, definition: SnapshotDefinition) -> bool:
    """Return whether a table has a change that the source made after a snapshot: then the snapshot has ended."""
    partitions = [] if marker is None else [p for found in marker.progress.values() for p in found.values()]
    changes = [p.high_water for p in partitions if p.high_water is not None]
    return any(high.ts_ms > definition.ts_ms + CLOCK_SKEW_MS for high in changes)


def checked_marker(progress: Progress) -> CommitMarker | None:
    """Return the marker of the mirror; that of the changelog if the table is configured to have no mirror."""
    return progress.changelog if progress.stands_alone else progress.mirror


class EmptySnapshots:
    """Checks that each mirror has rows of the connector's newest snapshot. For the scheduler's thread."""

    def __init__(self, context: MirrorContext, tables: TableStates) -> None:
        self._context = context
        self._tables = tables
        self._checks: SnapshotChecks | None = None
        self._revision = 0
        self._reads = 0
        self._looked = time.monotonic()
        self._due = 0.0
        self._deadline: float | None = None
        # Table → where its topic ended when the snapshot had ended, and the number of `note` then.
        self._ends: dict[TableId, tuple[Mapping[int, int], int]] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether a run should not end yet, and definitions be read although there are no new events."""
        if not self._context.log.grows or not self._awaited():
            return False
        if any(self._reads <= self._ends[table][1] for table in self._awaited() if table in self._ends):
            return True
        if self._deadline is None:
            self._deadline = time.monotonic() + _PATIENCE_S
        return self._context.config.can_read_source and time.monotonic() < self._deadline

    @property
    def is_look_due(self) -> bool:
        """Whether definitions should be read now, because a snapshot without rows begins no batch."""
        return self._context.log.grows and time.monotonic() - self._looked > _LOOK_S

    def _awaited(self) -> list[TableId]:
        """Return the tables that are checked now; a paused table is checked when it continues."""
        awaited = {} if self._checks is None else self._checks.awaited
        includes = self._context.config.includes
        return [t for t in awaited if includes(str(t)) and not self._tables.is_idle(self._mirrored_as(t))]

    def _mirrored_as(self, table: TableId) -> TableId:
        """Return the name of the mirror that has the rows of a table: it may have been renamed since."""
        ledger = self._context.ledger
        if ledger.knows(table) and ledger.progress(table).mirror is not None:
            return table
        later = self._context.schemas.later_names(table)
        return next((t for t in later if ledger.knows(t) and ledger.progress(t).mirror is not None), table)

    def note(self) -> None:
        """Note the snapshots in the schema-change topic, which was just read; no event may be applied before.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        self._reads += 1
        self._looked = time.monotonic()
        schemas, lake = self._context.schemas, self._context.lake
        if schemas.revision == self._revision:
            return
        revision, found = schemas.revision, schemas.snapshot_definitions()
        if found and self._checks is None:
            self._checks = checks_in(lake.namespace_properties(self._context.config.lake.ops_namespace))
        known_ms = 0 if self._checks is None else self._checks.known_ms
        if new := {table: d for table, d in found.items() if d.ts_ms > known_ms}:
            self._add(new, known_ms)
        self._revision = revision

    def _add(self, new: Mapping[TableId, SnapshotDefinition], known_ms: int) -> None:
        """Record which of the tables in `new` must be checked."""
        config, ledger = self._context.config, self._context.ledger
        mirrored = {table: d for table, d in new.items() if config.includes(str(table))}
        self._tables.read_unknown_markers(mirrored)
        awaited = {} if self._checks is None else dict(self._checks.awaited)
        for table, definition in mirrored.items():
            if table in awaited:
                continue
            if not ledger.knows(table):
                awaited[table] = Awaited(known_ms, None)
            elif self._must_check(table, definition):
                awaited[table] = Awaited(known_ms, self._snapshot_ms(table))
        self._ends = {t: end for t, end in self._ends.items() if t not in new}
        self._deadline = None
        self._record(SnapshotChecks(max(d.ts_ms for d in new.values()), awaited))

    def _must_check(self, table: TableId, definition: SnapshotDefinition) -> bool:
        """Return whether the mirror of a table may have, or get, rows from before the snapshot."""
        marker = checked_marker(self._context.ledger.progress(table))
        if marker is None:
            # A changelog that begins now has nothing from before the snapshot.
            return definition.is_repeated and gets_mirror(self._context, table)
        if self._checks is None:
            # An earlier version of the engine filled the mirror. Whether that was before the snapshot is not known.
            return False
        read = marker.snapshot
        # The times of rows have whole seconds.
        has_rows = read is not None and read.position == definition.position
        return not has_rows or read is None or read.ts_ms + 1000 <= definition.ts_ms

    def _snapshot_ms(self, table: TableId) -> int | None:
        marker = checked_marker(self._context.ledger.progress(table))
        return None if marker is None or marker.snapshot is None else marker.snapshot.ts_ms

    def _record(self, checks: SnapshotChecks) -> None:
        lake, config = self._context.lake, self._context.config
        lake.set_namespace_properties(config.lake.ops_namespace, checks.changes(self._checks))
        self._checks = checks

    def step(self) -> None:
        """Check the tables of which it is known now whether the snapshot has rows, and pause those without.

        Raises:
            LakeUnavailable, LogUnavailable: the lake, or the log, does not answer.
        """
        if not (awaited := self._awaited()):
            return
        grows = self._context.log.grows
        if grows and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _POLL_S
        connector = view_connector(self._context.config) if grows else None
        self._note_ends(awaited, connector)
        readable = [t for t in awaited if self._tables.is_readable(self._mirrored_as(t))]
        checked = set()
        for table in readable:
            with self._tables.alone(self._mirrored_as(table)):
                if self._is_checked(table, connector):
                    checked.add(table)
        self._settle(checked)

    def _note_ends(self, awaited: list[TableId], connector: ConnectorView | None) -> None:
        """Note where the topics of the tables end whose snapshot has ended."""
        found = self._context.schemas.snapshot_definitions()
        over = [
            t for t in awaited if t in found and t not in self._ends and self._is_over(found[t], connector)
        ]
        if over:
            ends = self._context.log.offsets()[1]
            for table in over:
                self._ends[table] = ends.get(self._topic(table), {}), self._reads

    def _is_over(self, definition: SnapshotDefinition, connector: ConnectorView | None) -> bool:
        if definition.has_no_rows or not self._context.log.grows:
            return True
        if connector is not None and connector.has_ended(definition):
            return True
        ledger = self._context.ledger
        return any(has_later_change(checked_marker(ledger.progress(t)), definition) for t in ledger.tables)

    def _is_checked(self, table: TableId, connector: ConnectorView | None) -> bool:
        """Check a table; return whether it need not be checked again."""
        definition = self._context.schemas.snapshot_definitions().get(table)
        if self._checks is None or definition is None:
            return False
        awaited, mirror = self._checks.awaited[table], self._mirrored_as(table)
        progress = self._context.ledger.progress(mirror)
        if definition.ts_ms <= awaited.since_ms:
            return True
        marker = checked_marker(progress)
        if marker is not None and awaited.has_rows(marker, definition.position, definition.ts_ms):
            return True
        if table not in self._ends or not self._has_reached(table, marker):
            return False
        if definition.has_no_rows and self._context.config.can_read_source and connector is None:
            return False  # Only the connector's settings tell whether it was to read rows.
        if (error := self._problem(mirror, definition, connector)) is None:
            return True
        self._tables.pause(mirror, error)
        # Without a source, the table is checked again at the next start, unless only the operator knows the answer.
        return self._context.log.grows or isinstance(error, UnknownPast)

    def _problem(
        self, table: TableId, definition: SnapshotDefinition, connector: ConnectorView | None
    ) -> SchemaError | None:
        """Return the error of a table that has no rows of a snapshot which has ended; None if it lacks nothing."""
        progress = self._context.ledger.progress(table)
        if connector is not None and connector.keeps_its_offset(definition):
            return None
        if definition.has_no_rows and (connector is None or connector.reads_no_rows):
            # Also an empty mirror may lack changes. A first snapshot follows nothing, and a new mirror will be read.
            if not definition.is_repeated or checked_marker(progress) is None:
                return None
        elif not progress.stands_alone and self._has_no_rows(table):
            return None
        error = _error(table, definition, connector)
        if not progress.stands_alone or not isinstance(error, SnapshotLacksTable):
            return error
        # A changelog gets the rows, but no deletes.
        has_rows = not definition.has_no_rows or not definition.is_repeated
        return None if has_rows else _lacks_changes(table, definition)

    def _has_reached(self, table: TableId, marker: CommitMarker | None) -> bool:
        """Return whether a mirror has all events from before the end of the snapshot."""
        ends, reads = self._ends[table]
        if self._context.log.grows and self._reads <= reads:
            return False  # The last definitions of the snapshot may not have been read.
        topic, next_offset = self._topic(table), {}
        if marker is not None:
            next_offset = {p: at.next_offset for p, at in marker.progress.get(topic, {}).items()}
        return all(next_offset.get(partition, 0) >= end for partition, end in ends.items() if end)

    def _has_no_rows(self, table: TableId) -> bool:
        """Return whether a table has no mirror with rows; without the job if the metadata tell it."""
        lake = self._context.lake
        found = lake.load(self._context.config.lake.namespace, table.name)
        return found is None or found.is_empty or not lake.spark.read.table(found.sql_name).take(1)

    def _settle(self, tables: Collection[TableId]) -> None:
        """Record that tables were checked, and paused before that if they lack rows."""
        if self._checks is None or not tables:
            return
        awaited = {t: a for t, a in self._checks.awaited.items() if t not in tables}
        self._record(replace(self._checks, awaited=awaited))
        for table in tables:
            self._ends.pop(table, None)

    def _topic(self, table: TableId) -> str:
        return f"{self._context.log.topic_prefix}.{topic_name(table)}"


def view_connector(config: Config) -> ConnectorView | None:
    """Return what Kafka Connect says of the mirror's connector; None if there is none, or it cannot be asked."""
    client = connect_client(config)
    if client is None or not isinstance(config.log, KafkaLog):
        return None
    try:
        if (found := client.find(config.log.topic_prefix)) is None:
            return None
        mode, offset = found.options.get("snapshot.mode", "initial"), client.offset(found.name)
        known = None if offset is None else ConnectorOffset.from_json(offset)
        return ConnectorView(mode, known, found.options.get(REBUILT_AT))
    except (ConnectError, ValueError):
        return None


def _lacks_changes(table: TableId, definition: SnapshotDefinition) -> SnapshotLacksTable:
    """Return the error for a table without a mirror: reading it again cannot restore changes that no event has."""
    return SnapshotLacksTable(
        f"the connector lost its offset, and began again at {definition.position} without rows: the changelog "
        f"of {table} may lack changes from before, and without a mirror it cannot be read again",
        f'give it a mirror: set keyless = "identity" under [[table]] name = "{table}", start the mirror again, and '
        f"run: replicator heal {table}",
    )


def _error(table: TableId, definition: SnapshotDefinition, connector: ConnectorView | None) -> SchemaError:
    heal = f"read the table again: replicator heal {table}"
    if definition.has_no_rows and connector is None:
        return UnknownPast(
            f"the connector took a snapshot at {definition.position} that has no rows: either {table} is empty, "
            "or the connector was not to read rows, and changes may be missing",
            f"if the connector only recovered its schema history, start the mirror again; else {heal}",
        )
    if definition.has_no_rows and connector is not None and connector.reads_no_rows:
        return SnapshotLacksTable(
            f"the connector lost its offset, and began again at {definition.position} without reading rows: changes of "
            f"{table} from before may be missing",
            heal,
        )
    return SnapshotLacksTable(
        f"the connector took a snapshot again, at {definition.position}, in which {table} has no rows; "
        "the mirror has rows from before",
        heal,
    )
