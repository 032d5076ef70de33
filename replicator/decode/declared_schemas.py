"""Derives the schemas of a table's events from its definitions."""

import itertools
from dataclasses import replace

from replicator.decode.event_frame import WriterSchema
from replicator.decode.schema_resolution import matching_versions
from replicator.model.table import Column, TableSchema
from replicator.model.types import Encoding
from replicator.schema.history import SchemaHistory
from replicator.schema.mysql_types import reconciled


def declared_writer_schemas(history: SchemaHistory, since: int | None = None) -> list[WriterSchema]:
    """Return the schemas of events that carry none: one for each declared version, with its range of positions.

    Versions before the one in effect at `since`, which is the `at` of a version, are omitted.
    """
    declared = [i for i in range(history.own, len(history.versions)) if history.versions[i].declared]
    writer_schemas: list[WriterSchema] = []
    for i, end_index in itertools.zip_longest(declared, declared[1:]):
        end = None if end_index is None else history.boundary(end_index)
        if end is None or since is None or end.at > since:
            first = history.boundary(i) if writer_schemas else None
            writer_schemas.append(WriterSchema(history.versions[i].schema, first=first, end=end))
    return writer_schemas


def completed(
    schema: TableSchema, history: SchemaHistory, version: int | None, last_key: tuple[str, ...]
) -> TableSchema:
    """Return the schema of an event of a version, completed from definitions: fills, and the key if it has none.

    `last_key`, that of earlier events, is used if the definition has no key either, and never had this one: then the
    connector's configuration names it.
    """
    declared = _declared_at(history, schema, version)
    columns = [_completed_column(c, declared.column(c.name)) for c in schema.columns]
    dropped = any(v.declared and set(v.event_key) == set(last_key) for v in history.versions)
    return TableSchema(tuple(columns), schema.key or declared.key or (() if dropped else last_key))


def _declared_at(history: SchemaHistory, schema: TableSchema, version: int | None) -> TableSchema:
    """Return the columns of the version that an event was written with, as far as it is known."""
    if not history:
        return TableSchema(())
    own = history.versions[-1 if version is None else version].schema
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
