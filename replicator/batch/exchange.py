"""Two source tables that exchange their names: the lake's tables do the same, once both have all from before.

Both tables stop at the place of the exchange (`ExchangeAwaited`). When neither has anything left from before it, each
of the lake's tables is marked with the table that it is from then on, and takes that table's name. A table that is
marked and has another name tells the next start to go on after a crash.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from replicator import failpoints
from replicator.batch.context import MirrorContext, TableTask
from replicator.lake.catalog import LakeTable
from replicator.lake.commit import Staged, publish
from replicator.model.batch_stats import BatchStats
from replicator.model.clock import now_ms
from replicator.model.commit_marker import CommitMarker, PartitionProgress
from replicator.model.table import SOURCE_KEY, TableId
from replicator.schema.changes import SCHEMA_KEY, ChangeNote, SchemaState
from replicator.schema.history import BEGINNING, SchemaVersion

_RESTING: Final = "replicator_exchange_"
"""Before a place: the name that a lake table has while its new name is not free."""


class ExchangeAwaited(Exception):  # noqa: N818 no error
    """A table reached an exchange of names that the other table has not reached.

    Attributes:
        done: the work that lies before it, and its census.
    """

    def __init__(self, done: list[tuple[TableTask, BatchStats]]) -> None:
        super().__init__()
        self.done = done


@dataclass(frozen=True, slots=True)
class Exchange:
    """Tables `one` and `other` exchange their names at `version.at`."""

    one: TableId
    other: TableId
    version: SchemaVersion

    @property
    def at(self) -> int:
        return self.version.at

    @property
    def pair(self) -> tuple[TableId, TableId]:
        return self.one, self.other

    def partner(self, table: TableId) -> TableId:
        return self.other if table == self.one else self.one

    @property
    def resting(self) -> str:
        return f"{_RESTING}{self.at}"


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
    """Whether a crash left some of the lake's tables as before the exchange, and others as after it."""
    found = [t for namespace in _namespaces(context) for t in _tables(context, namespace, exchange).values()]
    before = [t for t in found if _state(t).at < exchange.at]
    return len(before) < len(found) and bool(before or any(_owner(t, exchange) != t.name for t in found))


def follow_exchange(context: MirrorContext, exchange: Exchange) -> None:
    """Let the lake's tables exchange their names; it may be repeated, and goes on after a crash.

    Raises:
        LakeUnavailable: the catalog failed, or cannot rename tables.
        FencedError, CommitConflict: as in `publish`.
    """
    for namespace in _namespaces(context):
        tables = _tables(context, namespace, exchange)
        if exchange.resting not in tables:
            _mark(context, exchange, tables)
        _settle(context, namespace, exchange)
    for table in exchange.pair:
        context.ledger.forget(table)
    places = {(table, exchange.at) for table in exchange.pair}
    context.exchanged.done.update(places)
    context.exchanged.standing.difference_update(places)


def _namespaces(context: MirrorContext) -> tuple[str, str]:
    return context.config.lake.changes_namespace, context.config.lake.namespace


def _tables(context: MirrorContext, namespace: str, exchange: Exchange) -> dict[str, LakeTable]:
    """The lake's tables of both, by the names that they have now."""
    names = (exchange.one.name, exchange.other.name, exchange.resting)
    found = {name: context.lake.load(namespace, name) for name in names}
    return {name: table for name, table in found.items() if table is not None}


def _mark(context: MirrorContext, exchange: Exchange, tables: Mapping[str, LakeTable]) -> None:
    """Note in the lake's tables which source tables they are of from now on, and how far these are."""
    for table in exchange.pair:
        found, partner = tables.get(table.name), exchange.partner(table)
        if found is None or _state(found).at >= exchange.at:
            continue
        others = tables.get(partner.name)
        base = found.marker()
        marker = None if base is None else _joined(base, None if others is None else others.marker())
        if base is not None and marker is not None:
            publish(context.lake, found, base, marker, Staged())
        text = _exchanged(_state(found), exchange, partner).to_json()
        context.lake.set_properties(found, {SOURCE_KEY: str(partner), SCHEMA_KEY: text})
        context.row_locations.forget(found)
        failpoints.reach("after-rename")


def _joined(own: CommitMarker, other: CommitMarker | None) -> CommitMarker | None:
    """`own` with what is known of the other's topics; None if that is nothing new.

    The lake has all from before the exchange, of either topic: what comes next of a topic is for the table that has its
    name then.
    """
    progress = {topic: dict(partitions) for topic, partitions in own.progress.items()}
    for topic, partitions in ({} if other is None else other.progress).items():
        known = progress.setdefault(topic, {})
        for number, reached in partitions.items():
            known[number] = max(known.get(number, reached), reached, key=_next_offset)
    ids = {**({} if other is None else other.topic_ids), **own.topic_ids}
    joined = replace(own, progress=progress, topic_ids=ids, truncate=None, snapshot=None)
    if joined == own:
        return None
    return replace(joined, sequence=own.sequence + 1, committed_ms=now_ms())


def _next_offset(progress: PartitionProgress) -> int:
    return progress.next_offset


def _exchanged(state: SchemaState, exchange: Exchange, partner: TableId) -> SchemaState:
    version = exchange.version
    history = f"renamed to {partner}, which took the old name"
    note = ChangeNote(str(version.position), version.ts_ms, now_ms(), (history,))
    return replace(state, at=exchange.at, gone=None, notes=(*state.notes, note))


def _settle(context: MirrorContext, namespace: str, exchange: Exchange) -> None:
    """Give each table the name of the source table that it is marked with."""
    while True:
        tables = _tables(context, namespace, exchange)
        moves = {name: to for name, table in tables.items() if (to := _owner(table, exchange)) != name}
        if not moves:
            return
        free = [name for name, to in moves.items() if to not in tables]
        name = free[0] if free else next(iter(moves))
        context.lake.rename(namespace, name, moves[name] if free else exchange.resting)
        failpoints.reach("after-rename")


def _owner(table: LakeTable, exchange: Exchange) -> str:
    """The name that a table is to have."""
    names = {str(t): t.name for t in exchange.pair}
    return names.get(table.property(SOURCE_KEY) or "", table.name)


def _state(table: LakeTable) -> SchemaState:
    return table.schema_state() or SchemaState(BEGINNING)
