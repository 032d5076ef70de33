"""Decode raw records to the decoded frame of `event_frame`: on the driver, or in Spark's Python workers.

Records are columns of Arrow: partition, offset, timestamp, key and value.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.event_format import EventParser
from replicator.decode.event_frame import frame, frame_schema, in_range_end
from replicator.decode.parsed import ParsedEvents
from replicator.decode.records import SparkRecords, each_part, values_of, without_tombstones
from replicator.decode.row_images import Images, images
from replicator.decode.schemas.versions import Mask, Places, is_in_range
from replicator.model.commit_marker import OffsetRange
from replicator.sources.change_log import SCHEMA_PREFIX

_MOST_ROWS: Final = 20_000
_MOST_BYTES: Final = 64 << 20
"""Records are decoded in pieces of at most this size."""

Rows = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes records of one table; it can be pickled.

    Attributes:
        ranges: the offset ranges of the records; if there are none, every event counts as one of the last of its range.
    """

    parser: EventParser
    decoding: Decoding
    ranges: tuple[OffsetRange, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The schema of the decoded frame."""
        return frame_schema(self.decoding.target, for_changelog=self.decoding.for_changelog)

    def decode(self, records: pa.Table) -> pa.Table:
        """Return the decoded frame of records; tombstones are omitted, and the others keep their order.

        Of records that are payloads (see `SCHEMA_PREFIX`), the frame has these in place of undecodable events.
        """
        prefix = (records.schema.metadata or {}).get(SCHEMA_PREFIX)
        if prefix is not None:
            of_payloads = replace(self, decoding=self.decoding.of_payloads(prefix.decode()))
            return of_payloads.decode(records.replace_schema_metadata())
        schema = self.schema
        found = [self._decode_piece(piece, schema) for piece in _pieces(records)]
        return pa.concat_tables([schema.empty_table(), *found])

    def frame(self, records: SparkRecords) -> DataFrame:
        """Return the decoded frame of records, decoded by Spark's workers."""
        return records.run(partial(each_part, self.decode), self.schema)

    def _decode_piece(self, records: pa.Table, schema: pa.Schema) -> pa.Table:
        last = in_range_end(records, self.ranges)
        found, order = [], []
        for writer_schema, rows in self._by_writer_schema(values_of(records)):
            own = records if len(rows) == len(records) else records.take(rows)
            events, decoded = self._events(values_of(own), writer_schema, schema)
            key = () if writer_schema is None else writer_schema.schema.key
            wide = self.decoding.for_changelog
            found.append(frame(own, events, decoded, key, schema, last[rows], for_changelog=wide))
            order.append(rows)
        if len(found) == 1:
            return found[0]
        return pa.concat_tables(found).take(np.argsort(np.concatenate(order)))

    def _events(
        self, values: pa.BinaryArray, writer_schema: WriterSchema | None, schema: pa.Schema
    ) -> tuple[ParsedEvents, Images]:
        """Parse and decode events of a writer schema, or of none that is known."""
        if writer_schema is None:
            error = self.parser.unknown(values, self.decoding)
            nothing = [pa.nulls(len(values), schema.field(name).type) for name in ("before", "after")]
            source = self.parser.sources(values)
            return ParsedEvents.unreadable(source, error), Images(
                nothing[0], nothing[1], pa.nulls(len(values), pa.bool_())
            )
        events = self.parser.parse(values, writer_schema, self.decoding)
        found = images(events, writer_schema, self.decoding.target, for_changelog=self.decoding.for_changelog)
        verdict = self.parser.unreadable(writer_schema.schema, self.decoding)
        return events.with_error(found.unreadable, verdict), found

    def _by_writer_schema(self, values: pa.BinaryArray) -> Iterator[tuple[WriterSchema | None, Rows]]:
        """Divide events, by their indices, by their writer schemas; None for those of no known schema."""
        left = np.ones(len(values), np.bool_)
        groups: dict[int, list[WriterSchema]] = {}
        for writer_schema in self.decoding.writer_schemas:
            groups.setdefault(writer_schema.fingerprint, []).append(writer_schema)
        for group in groups.values():
            own = left & _mask(self.parser.belongs(values, group[0]))
            left &= ~own
            rows = np.flatnonzero(own)
            yield from _by_position(group, rows, partial(self._places, values)) if len(rows) else ()
        if left.any():
            yield None, np.flatnonzero(left)

    def _places(self, values: pa.BinaryArray, rows: Rows) -> Places:
        return Places.of(self.parser.sources(values.take(pa.array(rows))))


def _by_position(
    group: Sequence[WriterSchema], rows: Rows, places_of: Callable[[Rows], Places]
) -> Iterator[tuple[WriterSchema, Rows]]:
    """Divide events of one schema by the ranges of its versions; those without a position belong to the last one."""
    if len(group) == 1:
        yield group[0], rows
        return
    places, left = places_of(rows), np.ones(len(rows), np.bool_)
    for writer_schema in group[:-1]:
        own = left & is_in_range(places, writer_schema.first, writer_schema.end)
        left &= ~own
        if own.any():
            yield writer_schema, rows[own]
    if left.any():
        yield group[-1], rows[left]


def _pieces(records: pa.Table) -> Iterator[pa.Table]:
    """Divide records without their tombstones into pieces that fit into one array each."""
    events = without_tombstones(records)
    ends = np.cumsum(pc.binary_length(events.column("value")).to_numpy(), dtype=np.int64)
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        fitting = int(np.searchsorted(ends, before + _MOST_BYTES, side="right")) - start
        count = min(max(fitting, 1), _MOST_ROWS)
        yield events.slice(start, count)
        start += count


def _mask(values: pa.BooleanArray) -> Mask:
    return np.asarray(pc.fill_null(values, fill_value=False).to_numpy(zero_copy_only=False))
