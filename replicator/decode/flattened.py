"""Flattened events, which are rows with metadata (see `model.events`), as events with an envelope."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.decode.parsed import ParsedEvents, ParsedRow, Sources

_NO_TEXT: Final = pa.scalar(None, pa.string())
_REMEDY: Final = "; see `replicator check`"


def unflattened(
    op: pa.StringArray,
    deleted: pa.StringArray,
    source: Sources,
    values: Mapping[str, pa.Array],
    error: pa.StringArray,
) -> ParsedEvents:
    """Return events from the columns of flattened ones; `error` says which cannot be read.

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
