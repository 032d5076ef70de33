"""Read events that are lines: of text, or of CSV."""

import csv
import io
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.config.log_tables import TEXT_COLUMN
from replicator.decode.json.duck import texts_of
from replicator.log_tables.parsed import ParsedEvents
from replicator.model.shapes import Shape

_NOT_TEXT: Final = "not text in UTF-8"


def parse_text(values: pa.BinaryArray) -> ParsedEvents:
    """Return events as text."""
    texts = texts_of(values)
    broken = pc.and_(pc.is_valid(values), pc.is_null(texts))
    return ParsedEvents({TEXT_COLUMN: texts}, {}, broken, _NOT_TEXT)


def parse_csv(values: pa.BinaryArray, shape: Shape, delimiter: str) -> ParsedEvents:
    """Return the fields of events, each of which is one row of CSV. An empty field is null."""
    count = len(shape)
    rows = [_row(text, count, delimiter) for text in texts_of(values).to_pylist()]
    columns: Sequence[Sequence[str | None]] = (
        list(zip(*(row or (None,) * count for row in rows), strict=True)) or [()] * count
    )
    fields = {
        name: pa.array([text or None for text in column], pa.string())
        for name, column in zip(shape, columns, strict=True)
    }
    broken = pa.array([row is None for row in rows], pa.bool_())
    return ParsedEvents(
        fields, {}, pc.and_(broken, pc.is_valid(values)), f"not a row of CSV with {count} fields"
    )


def _row(text: str | None, count: int, delimiter: str) -> list[str] | None:
    """Return the fields of a row; None if it is none, or has another number of fields."""
    if text is None:
        return None
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 and len(rows[0]) == count else None
