"""Parsed events: what the parsers of the formats return, and what is decoded to the frame of `event_frame`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.model.events import SOURCE_FIELDS

Sources = Mapping[str, pa.Array]
"""Name of each field in `model.events.SOURCE_FIELDS` → its values in some events."""

SOURCE_TYPES: Mapping[str, pa.DataType] = {
    name: {"string": pa.string(), "long": pa.int64(), "int": pa.int32()}[kind] for name, kind in SOURCE_FIELDS
}
"""The types of the arrays in `Sources`."""

_NO_TEXT: Final = pa.scalar(None, pa.string())
_REMEDY: Final = "; see `replicator check`"


@dataclass(frozen=True, slots=True)
class ParsedRow:
    """One image, before or after, of each of some events.

    Attributes:
        present: whether the event has the image.
        values: name of a column as the event has it → its values in wire form (see `values.wire_type`); null if the
            event has no value, or one that cannot be read.
    """

    present: pa.BooleanArray
    values: Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class ParsedEvents:
    """Events of one writer schema, as arrays of one length, in the order of their records.

    Attributes:
        op: Debezium's operation; null if the record is no change event.
        source: the source blocks.
        tx_order: number of the event in its transaction (long).
        before, after: the images.
        error: why the record cannot be read; null if it can.
    """

    op: pa.StringArray
    source: Sources
    tx_order: pa.Int64Array
    before: ParsedRow
    after: ParsedRow
    error: pa.StringArray

    @classmethod
    def unreadable(cls, source: Sources, error: pa.StringArray) -> "ParsedEvents":
        """Return events of which only the source is known."""
        nothing = ParsedRow(pa.repeat(pa.scalar(value=False), len(error)), {})
        op, tx_order = pa.nulls(len(error), pa.string()), pa.nulls(len(error), pa.int64())
        return cls(op, source, tx_order, nothing, nothing, error)

    def with_error(self, condition: pa.BooleanArray, error: str) -> "ParsedEvents":
        """Return the events, with an error where `condition` is true and there is none yet."""
        added = pc.if_else(condition, error, _NO_TEXT)
        return replace(self, error=pc.coalesce(self.error, added))


def unflattened(
    op: pa.StringArray,
    deleted: pa.StringArray,
    source: Sources,
    values: Mapping[str, pa.Array],
    error: pa.StringArray,
) -> ParsedEvents:
    """Return events from the columns of flattened ones (see `model.events`); `error` says which cannot be read.

    An event that lacks required metadata gets an error. The row is the before-image of a delete, otherwise the
    after-image.
    """
    no_position = pc.or_(pc.is_null(source["file"]), pc.is_null(source["pos"]))
    lacking = [
        pc.if_else(condition, f"{what}{_REMEDY}", _NO_TEXT)
        for condition, what in (
            (pc.is_null(op), "no __op in a flattened event"),
            (pc.is_null(deleted), "no __deleted in a flattened event: deletes would be lost"),
            (no_position, "no position in a flattened event"),
        )
    ]
    is_deleted = pc.equal(deleted, "true")
    return ParsedEvents(
        op,
        source,
        pa.nulls(len(op), pa.int64()),
        ParsedRow(pc.fill_null(is_deleted, fill_value=False), values),
        ParsedRow(pc.fill_null(pc.invert(is_deleted), fill_value=False), values),
        pc.coalesce(error, *lacking),
    )
