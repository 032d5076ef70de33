"""Check an import: the topics have each event once, and Debezium skipped no statement that defines a table.

Kafka Connect and Debezium deliver at least once: a connector that connects again, or whose task is started again,
begins at an earlier event. If events come twice, later ones have other offsets than in another import of these files.

A running mirror compares definitions with the source; an import has none. Of a statement that Debezium cannot parse,
the schema-change topic has the text and no definition.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from replicator.decode.schemas.versions import Longs, Mask, Places
from replicator.errors import BinlogError
from replicator.model.events import RawRecord
from replicator.model.position import FILE_SHIFT, MOST_POS, binlog_number
from replicator.model.table import TableId
from replicator.sources.archive.format import PartitionKey
from replicator.sources.archive.pending import Records
from replicator.sources.archive.positions import PositionReader
from replicator.sources.binlog.scan import BinlogFile

_RUN_HEADER: Final = "__debezium.context.runId"
"""Debezium's header with the id of the connector's task, which is another one after each start."""

_MANY: Final = 400
"""So many events of a partition are read at once; fewer are faster one by one."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """Those events of a partition that have a position, in their order: columns of one length.

    Attributes:
        offsets, keys: of the events.
        places: file and offset in the binlog, packed as in `PackedPosition`.
        rows: number of the row among those of the place.
    """

    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    places: Longs
    rows: Longs

    def after(self, earlier: "_Placed") -> "_Placed":
        """Return these events after earlier ones."""
        return _Placed(
            [*earlier.offsets, *self.offsets],
            [*earlier.keys, *self.keys],
            np.concatenate([earlier.places, self.places]),
            np.concatenate([earlier.rows, self.rows]),
        )

    def last(self) -> "_Placed":
        """Return the last event."""
        return _Placed(self.offsets[-1:], self.keys[-1:], self.places[-1:].copy(), self.rows[-1:].copy())


class EventOrder:
    """Refuses an event that is not after the one before it in its partition, and events of a second start.

    In a partition, positions never decrease, and one position has each row once. There are two exceptions: an UPDATE of
    a key is a delete and a create with one position, which have different keys, and all changes of a compressed
    transaction have one position, at which each statement numbers its rows from zero.

    Args:
        files: the imported files.
        schema_topic: the topic of schema changes, of which one statement may have several.
        sources: reads the source blocks of many events.
    """

    def __init__(
        self,
        files: Iterable[BinlogFile],
        schema_topic: str,
        sources: Callable[[pa.BinaryArray], Mapping[str, pa.Array]],
    ) -> None:
        self._files = {binlog_number(file.name): file for file in files}
        self._compressed = [number for number, file in self._files.items() if file.compressed]
        self._schema_topic = schema_topic
        self._sources = sources
        self._last: dict[PartitionKey, _Placed] = {}
        self._run: bytes | None = None
        self._positions = PositionReader()

    def check(self, partition: PartitionKey, records: Records) -> None:
        """Check the next events of a partition.

        Raises:
            BinlogError: one of them is, or may be, an event that was written before.
        """
        self._check_run(partition, records)
        placed = self._placed(records)
        if not placed.offsets:
            return
        if (before := self._last.get(partition)) is not None:
            placed = placed.after(before)
        repeated = min(self._misplaced(partition, placed), default=None)
        if repeated is not None:
            this, last = (self._shown(int(placed.places[i])) for i in (repeated, repeated - 1))
            raise _refusal(partition, placed.offsets[repeated], f"{this} comes after {last}")
        self._last[partition] = placed.last()

    def _check_run(self, partition: PartitionKey, records: Records) -> None:
        for headers in dict.fromkeys(records.headers):
            run = next((value for name, value in headers if name == _RUN_HEADER), None)
            if run is not None and self._run not in (None, run):
                offset = records.offsets[records.headers.index(headers)]
                raise _refusal(partition, offset, "the connector was started a second time")
            self._run = run or self._run

    def _placed(self, records: Records) -> _Placed:
        given = [i for i, value in enumerate(records.values) if value]
        if len(given) >= _MANY:
            places = Places.of(self._sources(pa.array([records.values[i] for i in given], pa.binary())))
            if places.is_known.all():
                return _Placed(
                    [records.offsets[i] for i in given],
                    [records.keys[i] for i in given],
                    places.key,
                    places.row,
                )
        read = {i: self._positions.read(records.values[i]) for i in given}
        known = {i: position for i, position in read.items() if position is not None}
        return _Placed(
            [records.offsets[i] for i in known],
            [records.keys[i] for i in known],
            np.array([position.key for position in known.values()], np.int64),
            np.array([min(position.row, MOST_POS) for position in known.values()], np.int64),
        )

    def _misplaced(self, partition: PartitionKey, placed: _Placed) -> Iterator[int]:
        """Yield the indices of events that do not follow the one before them."""
        places, rows, keys = placed.places, placed.rows, placed.keys
        earlier = places[1:] < places[:-1]
        same = (places[1:] == places[:-1]) & ~np.isin(places[1:] >> FILE_SHIFT, self._compressed)
        if partition[0] == self._schema_topic:
            same[:] = False
        yield from _seconds(earlier | (same & (rows[1:] < rows[:-1])))
        again = _seconds(same & (rows[1:] == rows[:-1]))
        yield from (i for i in again if keys[i] == keys[i - 1])

    def _shown(self, place: int) -> str:
        number = place >> FILE_SHIFT
        file = self._files.get(number)
        return f"{number if file is None else file.name}:{place & MOST_POS}"


def _seconds(pairs: Mask) -> list[int]:
    """Return the indices of the second events of pairs of neighbours."""
    found: list[int] = (np.flatnonzero(pairs) + 1).tolist()
    return found


def _refusal(partition: PartitionKey, offset: int, reason: str) -> BinlogError:
    topic, number = partition
    return BinlogError(
        f"Debezium wrote events twice, at {topic}-{number} offset {offset}: {reason}",
        "repeat the command: the archive has only events from before that one, and is continued",
    )


_DEFINES_TABLE: Final = re.compile(
    r"\s*+(?:/\*(?:[^*]++|\*(?!/))*+\*/\s*+)*+(?:CREATE|ALTER|DROP|RENAME)\s++(?!TEMPORARY\b)[^(]*?\b(?:TABLES?|INDEX)\b",
    re.IGNORECASE,
)
_SHOWN: Final = 200


class SkippedStatements:
    """Checks the events of an import. `tables` are those that it imports; `schema_topic` has their definitions."""

    def __init__(self, schema_topic: str, tables: Iterable[TableId]) -> None:
        self._schema_topic = schema_topic
        names = "|".join(sorted({re.escape(table.name) for table in tables}))
        self._names = re.compile(rf"(?<![\w$])(?:{names})(?![\w$])", re.IGNORECASE) if names else None

    def check(self, event: RawRecord) -> None:
        """Check one event.

        Raises:
            BinlogError: it is a statement without a definition, which may define an imported table.
        """
        if event.topic != self._schema_topic or event.value is None or self._names is None:
            return
        value: dict[str, Any] = json.loads(event.value)
        value = value.get("payload", value)
        ddl = str(value.get("ddl") or "")
        if value.get("tableChanges") or not _DEFINES_TABLE.match(ddl):
            return
        if (found := self._names.search(ddl)) is not None:
            raise BinlogError(
                f"Debezium cannot parse a statement that may define the table {found[0]}: {ddl[:_SHOWN]}",
                "import the files before that statement, and begin another archive after it",
            )
