"""Follows an exchange of names by two source tables: their lake tables exchange names too.

Both tables stop at the position of the exchange (`ExchangeAwaited`). Once both have applied all earlier events, each
lake table records in its properties which source table it belongs to from now on, and is then renamed to that table's
name. After a crash, a lake table whose recorded source differs from its name shows that the exchange must be completed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from replicator import failpoints
from replicator.batch.awaiting import TableAwaits
from replicator.batch.context import MirrorContext
from replicator.lake.catalog import LakeTable
from replicator.lake.commit import Staged
from replicator.lake.ledger import LakeRole
from replicator.lake.ownership import refuse_foreign
from replicator.lake.table_writer import WriteTarget
from replicator.model.clock import now_ms
from replicator.model.commit_marker import CommitMarker, PartitionProgress
from replicator.model.table import SOURCE_KEY, TableId
from replicator.schema.changes import SCHEMA_KEY, ChangeNote, SchemaState
from replicator.schema.history import BEGINNING, SchemaVersion

_TEMPORARY: Final = "replicator_exchange_"
"""Prefix, before the binlog key of the exchange, of a lake table's name while its new name is not free."""


class ExchangeAwaited(TableAwaits):
    """A table reached an exchange of names that the other table has not reached."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Tables `one` and `other` exchange their names at `version.at`."""

    one: TableId
    other: TableId
    version: SchemaVersion

    @property
    def at(self) -> int:
        """The binlog key of the exchange."""
        return self.version.at

    @property
    def pair(self) -> tuple[TableId, TableId]:
        """Both tables."""
        return self.one, self.other

    def partner(self, table: TableId) -> TableId:
        """Return the other table."""
        return self.other if table == self.one else self.one

    @property
    def temporary_name(self) -> str:
        """The name of a lake table while its new name is not free."""
        return f"{_TEMPORARY}{self.at}"


def exchanges(context: MirrorContext, table: TableId) -> list[Exchange]:
    """Return the exchanges of a table's name with another table that is mirrored, oldest first."""
    return [
        Exchange(table, other, version)
        for version in context.schemas.history(table).versions_of_current_name[1:]
        if (other := version.exchanged_with) is not None and context.config.includes(str(other))
    ]


def next_exchange(context: MirrorContext, table: TableId) -> Exchange | None:
    """Return the first exchange that the lake's tables of `table` have not followed; None if there is none."""
    known = context.ledger.progress(table).schema_at
    return next(
        (
            e
            for e in exchanges(context, table)
            if (known is None or e.at > known) and (e.one, e.at) not in context.exchanged.done
        ),
        None,
    )


def last_exchange(context: MirrorContext, table: TableId) -> Exchange | None:
    """Return the last exchange that the lake's tables of `table` have followed; None if there is none."""
    known = context.ledger.progress(table).schema_at
    followed = [
        e
        for e in exchanges(context, table)
        if (known is not None and e.at <= known) or (e.one, e.at) in context.exchanged.done
    ]
    return followed[-1] if followed else None


def is_begun(context: MirrorContext, exchange: Exchange) -> bool:
    """Return whether a crash interrupted the exchange: some lake tables have followed it and others have not."""
    found = [
        t
        for namespace in _namespaces(context).values()
        for t in _tables(context, namespace, exchange).values()
    ]
    before = [t for t in found if _state(t).at < exchange.at]
    return len(before) < len(found) and bool(before or any(_final_name(t, exchange) != t.name for t in found))


def follow_exchange(context: MirrorContext, exchange: Exchange) -> None:
    """Exchange the names of the lake tables. It can be repeated, and completes an exchange that a crash interrupted.

    Raises:
        ForeignTable: a lake table of one of the names is not the mirror's.
        LakeUnavailable: the catalog failed, or cannot rename tables.
        FencedError, CommitConflict: as `publish`.
    """
    for role, namespace in _namespaces(context).items():
        tables = _tables(context, namespace, exchange)
        if exchange.temporary_name not in tables:
            _record_new_owners(context, role, exchange, tables)
        _rename(context, namespace, exchange)
    for table in exchange.pair:
        context.ledger.forget(table)
    followed = {(table, exchange.at) for table in exchange.pair}
    context.exchanged.done.update(followed)
    context.exchanged.standing.difference_update(followed)


def _namespaces(context: MirrorContext) -> dict[LakeRole, str]:
    lake = context.config.lake
    return {LakeRole.CHANGELOG: lake.changes_namespace, LakeRole.MIRROR: lake.namespace}


def _tables(context: MirrorContext, namespace: str, exchange: Exchange) -> dict[str, LakeTable]:
    """Return the lake tables of both source tables by their present names."""
    names = (exchange.one.name, exchange.other.name, exchange.temporary_name)
    found = {name: context.lake.load(namespace, name) for name in names}
    tables = {name: table for name, table in found.items() if table is not None}
    for table in tables.values():
        refuse_foreign(table, context.config.mirror.name)
    return tables


def _record_new_owners(
    context: MirrorContext, role: LakeRole, exchange: Exchange, tables: Mapping[str, LakeTable]
) -> None:
    """Record in the lake tables to which source tables they belong from now on, and the progress in both topics."""
    for table in exchange.pair:
        found, partner = tables.get(table.name), exchange.partner(table)
        if found is None or _state(found).at >= exchange.at:
            continue
        other = tables.get(partner.name)
        base = found.marker()
        marker = None if base is None else _merged(base, None if other is None else other.marker())
        if marker is not None:
            # The base is the table's own marker: after a crash, the ledger may not have read the table under this name.
            context.writer.commit(WriteTarget(table, role, found, base), Staged(), marker)
        text = _followed(_state(found), exchange, partner).to_json()
        context.lake.set_properties(found, {SOURCE_KEY: str(partner), SCHEMA_KEY: text})
        context.row_locations.forget(found)
        failpoints.reach("after-rename")


def _merged(own: CommitMarker, other: CommitMarker | None) -> CommitMarker | None:
    """Return `own` with the other marker's progress in its topics; None if that changes nothing.

    The lake has all events from before the exchange, of both topics. Later events of a topic belong to the table that
    has its name then, so that table continues with the other's offsets.
    """
    progress = {topic: dict(partitions) for topic, partitions in own.progress.items()}
    for topic, partitions in ({} if other is None else other.progress).items():
        known = progress.setdefault(topic, {})
        for number, reached in partitions.items():
            known[number] = max(known.get(number, reached), reached, key=_next_offset)
    ids = {**({} if other is None else other.topic_ids), **own.topic_ids}
    counts = {**({} if other is None else other.partition_counts), **own.partition_counts}
    merged = replace(
        own, progress=progress, topic_ids=ids, truncate=None, snapshot=None, partition_counts=counts
    )
    if merged == own:
        return None
    return replace(merged, sequence=own.sequence + 1, committed_ms=now_ms())


def _next_offset(progress: PartitionProgress) -> int:
    return progress.next_offset


def _followed(state: SchemaState, exchange: Exchange, partner: TableId) -> SchemaState:
    """Return the schema state of a lake table that has followed the exchange."""
    version = exchange.version
    history = f"renamed to {partner}, which took the old name"
    note = ChangeNote(str(version.position), version.ts_ms, now_ms(), (history,))
    return replace(state, at=exchange.at, gone=None, notes=(*state.notes, note))


def _rename(context: MirrorContext, namespace: str, exchange: Exchange) -> None:
    """Rename each lake table to the source table to which it belongs."""
    while True:
        tables = _tables(context, namespace, exchange)
        moves = {name: to for name, table in tables.items() if (to := _final_name(table, exchange)) != name}
        if not moves:
            return
        free = [name for name, to in moves.items() if to not in tables]
        name = free[0] if free else next(iter(moves))
        context.lake.rename(namespace, name, moves[name] if free else exchange.temporary_name)
        failpoints.reach("after-rename")


def _final_name(table: LakeTable, exchange: Exchange) -> str:
    """Return the name that a lake table must have after the exchange."""
    names = {str(t): t.name for t in exchange.pair}
    return names.get(table.property(SOURCE_KEY) or "", table.name)


def _state(table: LakeTable) -> SchemaState:
    return table.schema_state() or SchemaState(BEGINNING)
