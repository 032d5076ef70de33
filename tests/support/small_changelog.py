"""A changelog and a mirror that tests write themselves with PyIceberg: commits with markers, without Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType

from replicator.consumer.feed import Feed, FeedOptions
from replicator.model.changelog import CHANGE_FIELDS, RESTATED_KEY
from replicator.model.commit_marker import COMMIT_KEY, CommitMarker, PartitionProgress
from replicator.model.table import SOURCE_KEY
from tests.support.config import minimal_config

TOPIC = "shop.shop.orders"
_TYPES = {"string": StringType(), "timestamptz": TimestamptzType(), "long": LongType(), "int": IntegerType()}
_CHANGE = StructType(
    *(NestedField(10 + i, name, _TYPES[kind], False) for i, (name, kind) in enumerate(CHANGE_FIELDS))
)


@dataclass(frozen=True)
class Event:
    """A row of the changelog."""

    id: int
    offset: int
    partition: int = 0
    kind: str = "INSERT"
    op: str = "c"

    def row(self) -> dict[str, Any]:
        change = dict.fromkeys((name for name, _ in CHANGE_FIELDS), None) | {
            "kind": self.kind,
            "op": self.op,
            "partition": self.partition,
            "offset": self.offset,
        }
        return {"id": self.id, "_change": change}


@dataclass
class SmallChangelog:
    """The lake tables of the source table shop.orders."""

    folder: Path
    catalog: SqlCatalog
    marker: CommitMarker = field(default_factory=lambda: CommitMarker("shop", 0, 0, topic_ids={TOPIC: "t"}))

    def table(self, namespace: str = "shop_changes") -> Table:
        return self.catalog.load_table((namespace, "orders"))

    def commit(self, *events: Event, restated: str | None = None) -> None:
        """Append rows in one commit with the marker after them; in one file."""
        reached: dict[int, int] = {p: r.next_offset for p, r in self.marker.progress.get(TOPIC, {}).items()}
        for event in events:
            reached[event.partition] = max(reached.get(event.partition, 0), event.offset + 1)
        progress = {TOPIC: {p: PartitionProgress(offset) for p, offset in reached.items()}}
        self.marker = replace(self.marker, sequence=self.marker.sequence + 1, progress=progress)
        table, properties = self.table(), _texts(self.marker)
        if restated is not None:
            properties[RESTATED_KEY] = restated
        with table.transaction() as transaction:
            if events:
                rows = pa.Table.from_pylist([e.row() for e in events], schema=table.schema().as_arrow())
                transaction.append(rows, snapshot_properties={COMMIT_KEY: str(self.marker.sequence)})
            transaction.set_properties(properties)

    def mirror(self, *ids: int) -> None:
        """Let the mirror have these rows, and the marker of the changelog."""
        table = self.table("shop")
        with table.transaction() as transaction:
            if table.current_snapshot() is not None:
                transaction.delete(AlwaysTrue())
            transaction.append(pa.table({"id": pa.array(ids, pa.int64())}))
            restated = self.table().properties.get(RESTATED_KEY)
            more = {} if restated is None else {RESTATED_KEY: restated}
            transaction.set_properties(_texts(self.marker) | more)

    def expire(self) -> None:
        """Delete all snapshots but the newest one."""
        for namespace in ("shop", "shop_changes"):
            table = self.table(namespace)
            newest = table.current_snapshot()
            old = [s.snapshot_id for s in table.snapshots() if newest and s.snapshot_id != newest.snapshot_id]
            if old:
                table.maintenance.expire_snapshots().by_ids(old).commit()

    def feed(self, options: FeedOptions | None = None) -> Feed:
        config = minimal_config(self.folder)
        return Feed(self.catalog, config, "shop.orders", options=options or FeedOptions(settle_seconds=0))


def _texts(marker: CommitMarker) -> dict[str, str]:
    return {name: text for name, text in marker.properties().items() if text is not None}


@contextmanager
def small_changelog(folder: Path) -> Iterator[SmallChangelog]:
    """Create the tables, without rows."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/small.db", warehouse=f"file://{folder}/small")
    key = NestedField(1, "id", LongType(), False)
    change = NestedField(2, "_change", _CHANGE, False)
    try:
        for namespace, fields in (("shop", [key]), ("shop_changes", [key, change])):
            catalog.create_namespace(namespace)
            catalog.create_table(
                (namespace, "orders"), Schema(*fields), properties={SOURCE_KEY: "shop.orders"}
            )
        yield SmallChangelog(folder, catalog)
    finally:
        catalog.close()


def events_in(rows: Sequence[pa.Table]) -> list[Event]:
    """Return the rows of the changelog as events."""
    return [
        Event(row["id"], change["offset"], change["partition"], change["kind"], change["op"])
        for part in rows
        for row in part.to_pylist()
        for change in [row["_change"]]
    ]
