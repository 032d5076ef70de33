"""Find the lake tables behind the names of inputs."""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, assert_never

from replicator.config import Config
from replicator.errors import Unsettled
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.spark_tables import columns_of
from replicator.lake.others import refuse_foreign
from replicator.model.changelog import RESTATED_KEY, change_column, restated
from replicator.model.commit_marker import CommitMarker
from replicator.model.common import now_ms
from replicator.model.table import LOG_TOPIC_KEY
from replicator.pipelines.files import readable_namespaces
from replicator.pipelines.output.record import RECORD_KEY, ResultRecord, record_of
from replicator.pipelines.query.names import TableName
from replicator.schema.evolution.steps import STEPS_KEY, SchemaSteps

_RUN: Final = "it is settled after the next batch of `replicator run`"
_AGAIN_S: Final = 0.05
_SETTLES_MS: Final = 1_000
"""How long a batch may be between its commits; it takes some tenths of a second."""


class InputKind(StrEnum):
    """What the table of an input is."""

    MIRROR = "mirror"
    CHANGELOG = "changelog"
    RESULT = "result"
    """The result of another pipeline."""
    LOG = "log table"
    """A table to which the events of a topic are appended."""


@dataclass(frozen=True)
class InputTable:
    """A lake table that pipelines may read, as it was loaded.

    Attributes:
        table: the table itself.
        changelog: the table with its changes: of a changelog, itself; None if it has none.
    """

    name: TableName
    kind: InputKind
    table: LakeTable
    changelog: LakeTable | None

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of a mirror or of a result; empty if none do."""
        match self.kind:
            case InputKind.MIRROR:
                return self.table.required_columns()
            case InputKind.CHANGELOG | InputKind.LOG:
                return ()
            case InputKind.RESULT:
                record = recorded_result(self.table)
                return () if record is None else record.key
            case _:
                assert_never(self.kind)

    @cached_property
    def change(self) -> str | None:
        """The struct column of the changelog; None if there is no changelog."""
        return None if self.changelog is None else change_column(self.changelog.columns())

    @cached_property
    def uuid(self) -> str:
        """Iceberg's UUID of the table with the changes, of the table itself if there is no changelog."""
        return (self.changelog or self.table).uuid

    def columns(self, lake: Lake) -> dict[str, str]:
        """Return column → its type in Spark SQL, in their order, without those that others added."""
        others = set(self.table.user_columns())
        fields = columns_of(lake, self.table).fields
        return {f.name: f.dataType.simpleString() for f in fields if f.name not in others}

    def marker(self) -> CommitMarker:
        """Return the newest marker of the table.

        Raises:
            Unsettled: it has none.
        """
        marker = self.table.marker()
        if marker is None:
            raise Unsettled(f"{self.name} has no rows yet", _RUN)
        return marker

    @property
    def is_between_commits(self) -> bool:
        """Whether a mirror and its changelog are at different offsets: a batch commits one after the other."""
        if self.kind is not InputKind.MIRROR or self.changelog is None:
            return False
        markers = self.table.marker(), self.changelog.marker()
        offsets = [None if marker is None else dict(_offsets(marker)) for marker in markers]
        return offsets[0] != offsets[1]

    @property
    def logged_ms(self) -> int:
        """When the newest commit of the changelog was made, milliseconds since the epoch; 0 without one."""
        marker = None if self.changelog is None else self.changelog.marker()
        return 0 if marker is None else marker.committed_ms or 0

    def check_settled(self) -> None:
        """Check that a mirror has exactly the changes that its changelog says.

        Raises:
            Unsettled: that is not so at the moment.
        """
        if self.kind is not InputKind.MIRROR:
            return
        marker = self.marker()
        if self.table.has_pending_rows():
            raise Unsettled(f"the mirror {self.name} is being changed to another schema", _RUN)
        if marker.snapshot is not None and marker.snapshot.replaces_rows:
            raise Unsettled(
                f"the connector is taking a new snapshot of {self.name}",
                "it is settled when the snapshot is complete",
            )
        if self.changelog is None:
            return
        ids = [restated(table.property(RESTATED_KEY)) for table in (self.table, self.changelog)]
        if len({None if found is None else found.id for found in ids}) > 1:
            raise Unsettled(f"the mirror {self.name} lacks changes that its changelog has", _RUN)
        if self.is_between_commits:
            raise Unsettled(f"the mirror {self.name} and its changelog are at different offsets", _RUN)
        states = [table.schema_state() for table in (self.table, self.changelog)]
        if len({None if state is None else state.at for state in states}) > 1:
            raise Unsettled(f"the mirror {self.name} and its changelog have different schema versions", _RUN)

    def steps(self) -> SchemaSteps | None:
        """Return what statements of the source did to the table; None if nothing is known."""
        text = None if self.changelog is None else self.changelog.property(STEPS_KEY)
        return None if text is None else SchemaSteps.from_json(text)


def recorded_result(table: LakeTable | None) -> ResultRecord | None:
    """Return what the table of a result records; None without a table, or if no refresh has committed to it.

    Raises:
        ForeignTable: the record cannot be read.
    """
    return None if table is None else record_of(table.property(RECORD_KEY), f"{table.namespace}.{table.name}")


def _offsets(marker: CommitMarker) -> Iterator[tuple[str, dict[int, int]]]:
    for topic, partitions in marker.progress.items():
        yield topic, {number: reached.next_offset for number, reached in partitions.items()}


@dataclass(frozen=True, slots=True)
class InputTables:
    """Finds the tables that pipelines read.

    Attributes:
        results: the names of the tables that pipelines write.
    """

    config: Config
    lake: Lake
    results: Collection[TableName]

    def every(self) -> list[TableName]:
        """Return the names of all tables that pipelines may read, sorted."""
        known = readable_namespaces(self.config, self.results) & set(self.lake.namespaces())
        return sorted(TableName(space, name) for space in known for name in self.lake.tables(space))

    def matching(self, name: TableName) -> list[TableName]:
        """Return the names of the tables that a name or pattern means, sorted."""
        return [known for known in self.every() if name.names(known)]

    def load(self, name: TableName) -> InputTable | None:
        """Load a table; None if there is none.

        Raises:
            ForeignTable: it is not one of the mirror's.
        """
        # A changelog is committed before its mirror, so what is loaded after the mirror has all of its changes.
        if (table := self.lake.load(name.namespace, name.name)) is None:
            return None
        refuse_foreign(table, self.config.mirror.name)
        kind = InputKind.LOG if table.property(LOG_TOPIC_KEY) is not None else self._kind(name)
        if kind in (InputKind.CHANGELOG, InputKind.LOG):
            return InputTable(name, kind, table, table if kind is InputKind.CHANGELOG else None)
        changes = self.lake.load(name.changes.namespace, name.changes.name)
        if kind is InputKind.RESULT and changes is not None:
            # One that the result was written without tells nothing.
            changes = changes if recorded_result(changes) == recorded_result(table) else None
        return InputTable(name, kind, table, changes)

    def load_settled(self, name: TableName) -> InputTable | None:
        """Load a table as `load` does; again while a batch is between its commits, for about a second.

        Raises:
            ForeignTable: it is not one of the mirror's.
        """
        table = self.load(name)
        while table is not None and table.is_between_commits and table.logged_ms > now_ms() - _SETTLES_MS:
            time.sleep(_AGAIN_S)
            table = self.load(name)
        return table

    def _kind(self, name: TableName) -> InputKind:
        if name in self.results:
            return InputKind.RESULT
        return (
            InputKind.CHANGELOG if name.namespace == self.config.lake.changes_namespace else InputKind.MIRROR
        )
