"""Details of single events of a batch, which its statistics need only for few events."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replicator.model.gtid import Transaction
from replicator.model.position import PackedPosition, SourcePosition

Longs = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
"""Row numbers in the arrays of a batch."""

FetchDetails = Callable[[int, int, int], pa.Table]
"""(partition, first offset, last offset) → offset, gtid and tx_order of the events in that range."""


class EventDetail(NamedTuple):
    """What distinguishes an event from others at its position."""

    gtid: str | None
    tx_order: int | None


class EventDetails:
    """Reads file names, GTIDs and transaction orders of events.

    Those of events near the end of a range come with the statistics columns; others are fetched, at the cost of a Spark
    job if the executor is Spark's.
    """

    def __init__(self, stats_columns: pa.Table, fetch: FetchDetails) -> None:
        self._known = stats_columns.filter(pc.is_valid(stats_columns.column("file")))
        self._fetch = fetch

    def position(self, partition: int, offset: int, packed: PackedPosition, server_id: int) -> SourcePosition:
        """Return the position of an event; the file name and GTID are exact only near the end of a range."""
        row = self._row(partition, offset)
        return packed.unpack(row["file"], server_id, row["gtid"])

    def known(self, partition: int, offset: int) -> EventDetail:
        """Return the details of an event; empty ones if it is not near the end of a range."""
        row = self._row(partition, offset)
        return EventDetail(row["gtid"], row["tx_order"])

    def origin(self, gtid_origin: int) -> str | None:
        """Return the origin of transactions by its hash; None if no event near the end of a range has it."""
        same = self._known.filter(pc.equal(self._known.column("gtid_origin"), gtid_origin))
        found = Transaction.parse(same.column("gtid")[0].as_py()) if same.num_rows else None
        return None if found is None else found.origin

    def fetched(self, partition: int, offsets: Longs) -> list[EventDetail]:
        """Fetch the details of the events at `offsets` (ascending, at least one)."""
        found = self._fetch(partition, int(offsets[0]), int(offsets[-1]))
        columns = (found.column(name).to_pylist() for name in ("offset", *EventDetail._fields))
        by_offset = {offset: EventDetail(*detail) for offset, *detail in zip(*columns, strict=True)}
        return [by_offset[offset] for offset in offsets.tolist()]

    def _row(self, partition: int, offset: int) -> dict[str, Any]:
        same = pc.and_(
            pc.equal(self._known.column("partition"), partition),
            pc.equal(self._known.column("offset"), offset),
        )
        rows = self._known.filter(same).select(["file", "gtid", "tx_order"]).to_pylist()
        return rows[0] if rows else {"file": None, "gtid": None, "tx_order": None}
