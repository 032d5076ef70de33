"""Flattened events: rows alone, with what else is needed about the change in fields whose names begin with ``__``.

Debezium's transformation ExtractNewRecordState makes them. It keeps what the engine needs only where it is told to:

    add.fields=op,source.file,source.pos,source.row,source.ts_ms,source.server_id,source.gtid,source.snapshot
    delete.tombstone.handling.mode=rewrite

Deletes then arrive as the row that went, marked by ``__deleted``. An update has no before-image, so the changelog gets
only the row as it was after it. A TRUNCATE never arrives.
"""

from typing import Final

from replicator.model.source_block import SOURCE_FIELDS

SOURCE: Final = tuple(name for name, _ in SOURCE_FIELDS)
"""Fields of the source block that are wanted; each is called ``__source_`` and its name."""

MARKS: Final = frozenset({"__op", "__deleted", *(f"__source_{name}" for name in SOURCE)})
"""Fields that are no columns."""

ADD_FIELDS: Final = ("op", *(f"source.{name}" for name in SOURCE if name not in ("gtid", "snapshot")))
"""What `add.fields` has to name."""
