"""Derives the schemas of a table's events from its definitions."""

from dataclasses import replace

from replicator.decode.event_frame import WriterSchema
from replicator.decode.schema_resolution import matching_versions
from replicator.model.table import Column, TableSchema
from replicator.model.types import Encoding
from replicator.schema.history import SchemaHistory
from replicator.schema.mysql_types import reconciled


def declared_writer_schemas(history: SchemaHistory, since: int | None = None) -> list[WriterSchema]:
    """Return the schemas of events that carry none: one for each declared version, with its range of positions.

    Versions that ended before the position key `since` are omitted.
    """
    declared = [v for v in history.versions_of_current_name if v.declared]
    writer_schemas: list[WriterSchema] = []
    for i, version in enumerate(declared):
        end = declared[i + 1].at if i + 1 < len(declared) else None
        if end is None or since is None or end > since:
            first = version.at if writer_schemas else None
            writer_schemas.append(WriterSchema(version.schema, first=first, end=end))
    return writer_schemas


def completed(
    schema: TableSchema, history: SchemaHistory, at: int | None, last_key: tuple[str, ...]
) -> TableSchema:
    """Return the schema of an event at a position, completed from definitions: fills, and the key if it has none.

    `last_key`, that of earlier events, is used if the definition has no key either, and never had this one: then the
    connector's configuration names it.
    """
    declared = _declared_at(history, schema, at)
    columns = [_completed_column(c, declared.column(c.name)) for c in schema.columns]
    dropped = any(v.declared and set(v.event_key) == set(last_key) for v in history.versions)
    return TableSchema(tuple(columns), schema.key or declared.key or (() if dropped else last_key))


def _declared_at(history: SchemaHistory, schema: TableSchema, at: int | None) -> TableSchema:
    """Return the columns of the version that an event at a position was written with, as far as it is known."""
    if not history:
        return TableSchema(())
    own = history.versions[-1 if at is None else history.index_at(at)].schema
    matching = matching_versions(history, schema)
    return (
        own if not matching or set(own.names) == set(schema.names) else history.versions[matching[-1]].schema
    )


def _completed_column(column: Column, declared: Column | None) -> Column:
    if declared is None:
        return column
    lake_type, encoding = reconciled((column.type, column.encoding), (declared.type, declared.encoding))
    return replace(
        column,
        type=lake_type,
        encoding=encoding,
        size=declared.size if encoding is Encoding.LATIN1 else column.size,
        fill=declared.fill,
        fill_unknown=declared.fill_unknown,
    )
