"""Consumers of changes in tests: they store what they get together with the cursor, and may be killed anywhere."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from replicator.config import Config
from replicator.consumer import Batch, BatchKind, Cursor, FeedOptions, changes
from replicator.errors import CursorExpired
from replicator.maintenance.plan import Step
from replicator.maintenance.steps import Maintenance
from replicator.runner.scheduler import Scheduler
from tests.support.lake_schemas import validate


@dataclass
class StoredConsumer:
    """A consumer whose results and cursor are stored in one transaction.

    Attributes:
        start: where it starts if nothing is stored.
        cursor: the stored cursor, as text.
        image: the rows of the mirror that it got.
        names: id of a column → its newest name.
        steps: the schema steps that were announced.
    """

    table: str
    start: str
    options: FeedOptions = field(default_factory=lambda: FeedOptions(settle_seconds=0))
    cursor: str | None = None
    image: list[dict[str, Any]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    steps: list[Mapping[str, Any]] = field(default_factory=list)
    _changes: list[dict[Any, Any]] = field(default_factory=list)

    @property
    def changes(self) -> list[dict[str, Any]]:
        """The changes that it got, as rows of the changelog, with the newest names of columns."""
        return [
            {name: change.get(column) for column, name in self.names.items()} | {"_change": change["_change"]}
            for change in self._changes
        ]

    def read(self, config: Config, most: int | None = None) -> None:
        """Read what there is, but at most `most` batches: then the consumer is killed, and loses the last one.

        A consumer that has only a part of the mirror's rows, and finds their snapshot deleted, starts again.
        """
        try:
            for number, batch in enumerate(self.batches(config)):
                if number == most:
                    return
                self._store(batch)
        except CursorExpired:
            assert self.cursor is not None
            assert Cursor.from_json(self.cursor).image is not None
            assert not self.changes
            self.cursor, self.image = None, []
            self.read(config, most)

    def batches(self, config: Config) -> Iterator[Batch]:
        """Yield what follows the stored cursor, and store nothing."""
        start = self.start if self.cursor is None else Cursor.from_json(self.cursor)
        return changes(config, self.table, start, options=self.options)

    def _store(self, batch: Batch) -> None:
        match batch.kind:
            case BatchKind.ROWS:
                self.image += batch.rows.to_pylist()
            case BatchKind.CHANGES:
                ids: dict[str, Any] = {name: column for column, name in self.names.items()}
                ids["_change"] = "_change"
                self._changes += [{ids[n]: v for n, v in row.items()} for row in batch.rows.to_pylist()]
            case BatchKind.SCHEMA:
                assert batch.schema is not None
                self.names = {column.id: column.name for column in batch.schema.columns}
                self.steps += batch.schema.steps
        self.cursor = batch.cursor.to_json()
        validate(json.loads(self.cursor), "consumer-cursor-v1.json")


def maintained(mirror: Scheduler, name: str, chance: random.Random) -> None:
    """Carry out some maintenance of the tables of a source table; it keeps hardly any snapshots."""
    context = mirror.context
    for namespace in ("shop", "shop_changes"):
        for step in (Step.MERGE_DATA, Step.EXPIRE):
            table = context.lake.load(namespace, name)
            if table is not None and chance.random() < 0.6:
                most = chance.choice((1, 2, 5))
                settings = context.config.maintenance.model_copy(
                    update={"merge_files": 2, "max_snapshots": most}
                )
                Maintenance(context.lake, table, settings).run(step)
                context.row_locations.forget(table)
                context.small_files.forget(table)


def replayed(
    image: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]], key: Sequence[str]
) -> Counter[str]:
    """Return the rows that a consumer has which applies changes in the order in which it gets them.

    With several partitions, changes from before a TRUNCATE may come after it, and others before it: positions tell.
    """
    rows: dict[Any, tuple[Any, Mapping[str, Any]]] = {_key(row, key): ((), row) for row in image}
    emptied: Any = ()
    for row in got:
        change = row["_change"]
        number = int(change["file"].rpartition(".")[2])
        at = (number, change["pos"], change["row"])
        match change["kind"]:
            case "TRUNCATE":
                emptied = max(emptied, at)
                rows = {k: (since, known) for k, (since, known) in rows.items() if since > at}
            case "DELETE":
                rows.pop(_key(row, key), None)
            case "INSERT" | "UPDATE_AFTER" if at > emptied:
                rows[_key(row, key)] = (at, {n: v for n, v in row.items() if n != "_change"})
    return Counter(repr(sorted(row.items(), key=repr)) for _, row in rows.values())


def _key(row: Mapping[str, Any], key: Sequence[str]) -> Any:
    return tuple(row[name] for name in key)
