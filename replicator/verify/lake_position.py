"""Wait until mirrors contain all changes before a position of the source."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from replicator.config import Config
from replicator.errors import Unsettled
from replicator.lake.reading.catalog import tables_in
from replicator.lake.reading.table_metadata import newest_marker
from replicator.model.binlog import BinlogEnd
from replicator.model.commit_marker import CommitMarker
from replicator.model.common import counted
from replicator.model.table import SOURCE_KEY, TableId, topic_name
from replicator.schema.evolution.changes import PENDING_CLEAR_KEY, PENDING_FILLS_KEY
from replicator.sources.connector.settings import kafka_log
from replicator.sources.kafka.admin import PATIENT_S, KafkaAdmin
from replicator.sources.source_positions import known_offset, required_positions
from replicator.verify.later_changes import Offsets, offsets

_FEW: Final = 20
"""So many tables are loaded by their usual names; of more, all of a namespace are loaded, many at once."""
_RUN: Final = "check that `replicator run` and the connector are running: replicator status"


@dataclass(frozen=True, slots=True)
class LakeTable:
    """The lake tables of a source table, as they are at one moment.

    Attributes:
        topic: the topic of the table.
        mirror: the mirror.
        marker: the marker of its newest commit.
        changelog: the changelog; None if there is none.
    """

    topic: str
    mirror: Table
    marker: CommitMarker
    changelog: Table | None

    @property
    def offsets(self) -> Offsets:
        """Partition → the first offset that the mirror lacks."""
        return offsets(self.marker, self.topic)

    @property
    def topic_id(self) -> str | None:
        """The id of its topic."""
        return self.marker.topic_ids.get(self.topic)


def lake_tables(catalog: Catalog, config: Config, tables: Iterable[TableId]) -> dict[TableId, LakeTable]:
    """Load the lake tables of some source tables, of those that have a mirror.

    The changelog is loaded after the mirror, so it has all changes that the mirror has.

    Raises:
        LakeUnavailable: a marker cannot be read.
    """
    wanted, lake = list(tables), config.lake
    logged = [table for table in wanted if config.table(str(table)).changelog]
    mirrors = _by_source(catalog, config, lake.namespace, wanted)
    changelogs = _by_source(catalog, config, lake.changes_namespace, logged)
    found = {}
    for table in wanted:
        mirror = mirrors.get(str(table))
        marker = None if mirror is None else newest_marker(mirror)
        if mirror is not None and marker is not None:
            topic = f"{config.log.topic_prefix}.{topic_name(table)}"
            found[table] = LakeTable(topic, mirror, marker, changelogs.get(str(table)))
    return found


def _by_source(
    catalog: Catalog, config: Config, namespace: str, wanted: Sequence[TableId]
) -> dict[str, Table]:
    """Return the lake tables of a namespace by their source tables: a few by their names, or else all."""
    found: dict[str, Table] = {}
    if len(wanted) <= _FEW:
        usual = ((str(table), usual_table(catalog, config, namespace, table)) for table in wanted)
        found = {source: table for source, table in usual if table is not None}
    if len(found) < len(wanted):
        every = tables_in(catalog, namespace).values()
        found = {source: table for table in every if (source := table.properties.get(SOURCE_KEY))}
    return found


def usual_table(catalog: Catalog, config: Config, namespace: str, table: TableId) -> Table | None:
    """Load the lake table of a source table under its usual name; None if it has another one, or there is none."""
    name = table.name.casefold() if config.lake.folds_case else table.name
    try:
        found = catalog.load_table((namespace, name))
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    return found if found.properties.get(SOURCE_KEY) == str(table) else None


@dataclass(frozen=True, slots=True)
class LakePosition:
    """Waits for positions of the source in the lake.

    Attributes:
        seconds: how long to wait at most, for the connector and then for the mirrors.
        on_wait: called with what is awaited.
        poll_seconds: how often they are looked at.
    """

    config: Config
    seconds: float
    on_wait: Callable[[str], None]
    poll_seconds: float = 0.5

    def ends(self, end: BinlogEnd, tables: Mapping[TableId, LakeTable]) -> dict[TableId, Offsets]:
        """Wait until the log has all changes before `end`. Return where the topics of `tables` end then.

        Raises:
            Unsettled: the connector is not there in time.
            UsageError: Kafka Connect is not configured.
            LogError: Kafka does not answer.
        """
        positions, deadline = required_positions(self.config), time.monotonic() + self.seconds
        while (offset := known_offset(positions)) is None or not offset.covers(end):
            self.on_wait(f"the connector reads up to {end}")
            if time.monotonic() > deadline:
                raise Unsettled(f"the connector has not read up to {end} within {self.seconds:g} s", _RUN)
            time.sleep(self.poll_seconds)
        admin = KafkaAdmin(kafka_log(self.config), timeout_s=PATIENT_S)
        partitions = admin.partitions()
        wanted = [(t.topic, p) for t in tables.values() for p in partitions.get(t.topic, [])]
        found = admin.end_offsets(wanted, committed=True) if wanted else {}
        return {
            table: {p: end for (topic, p), end in found.items() if topic == known.topic}
            for table, known in tables.items()
        }

    def settled(
        self, catalog: Catalog, ends: Mapping[TableId, Offsets]
    ) -> tuple[dict[TableId, LakeTable], dict[TableId, str]]:
        """Wait until mirrors have all events before `ends`. Return them, and why others are not there in time."""
        deadline = time.monotonic() + self.seconds
        done: dict[TableId, LakeTable] = {}
        while True:
            waiting = {}
            found = lake_tables(catalog, self.config, [t for t in ends if t not in done])
            for table in ends:
                if table in done:
                    continue
                known = found.get(table)
                reason = "it has no mirror" if known is None else _unsettled(known, ends[table])
                if known is not None and reason is None:
                    done[table] = known
                else:
                    waiting[table] = reason or ""
            if not waiting or time.monotonic() > deadline:
                return done, waiting
            self.on_wait(f"{counted(len(waiting), 'table reaches', 'tables reach')} the position")
            time.sleep(self.poll_seconds)


def _unsettled(known: LakeTable, ends: Offsets) -> str | None:
    """Return why a mirror cannot be compared yet; None if it can."""
    lacks = [p for p, end in ends.items() if end and known.offsets.get(p, 0) < end]
    if lacks:
        return f"the mirror lacks events that the log has; {_RUN}"
    if known.mirror.properties.keys() & {PENDING_FILLS_KEY, PENDING_CLEAR_KEY}:
        return "the mirror is being changed to another schema"
    if known.marker.snapshot is not None and known.marker.snapshot.replaces_rows:
        return "the connector is taking a new snapshot of the table"
    return None
