"""Flattened events: only the row, with the metadata of the change in fields whose names begin with ``__``.

Debezium's transformation ExtractNewRecordState makes them. It keeps the metadata that the engine needs only with these
options:

    add.fields=op,source.file,source.pos,source.row,source.ts_ms,source.server_id,source.gtid,source.snapshot
    delete.tombstone.handling.mode=rewrite

A delete then arrives as the deleted row with ``__deleted`` set. An update has no before-image, so the changelog gets
only the row after it. A TRUNCATE never arrives.
"""

from typing import Final

from replicator.model.source_block import SOURCE_FIELDS

SOURCE: Final = tuple(name for name, _ in SOURCE_FIELDS)
"""Fields that are read from the source block; each is named ``__source_`` plus its name."""

METADATA_FIELDS: Final = frozenset({"__op", "__deleted", *(f"__source_{name}" for name in SOURCE)})
"""Fields of a flattened event that are not columns."""

ADD_FIELDS: Final = ("op", *(f"source.{name}" for name in SOURCE if name not in ("gtid", "snapshot")))
"""Fields that the connector option `add.fields` must list."""
