"""Resolve the writer schemas of events against a version of the table's schema.

The columns of a writer schema are renamed to their names in the newest version before anything is decoded, so that a
column keeps its identity even if it had another name when the event was written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from replicator.decode.decoding import WriterSchema
from replicator.model.column_history import ColumnHistory, history_in
from replicator.model.column_rules import ColumnRules
from replicator.model.table import Column, TableSchema
from replicator.model.transforms import Blank
from replicator.model.types import LakeType
from replicator.schema.history.versions import SchemaHistory, column_histories


@dataclass(frozen=True, slots=True)
class ResolvedSchema:
    """The mapping of a batch's writer schemas to one decoded schema.

    Attributes:
        writer_schemas: the writer schemas of the events; their columns have the names in `decoded_schema`.
        decoded_schema: the columns of all decoded images: those of `schema`, then `retired` ones.
        schema: the schema version at the end of the batch.
        retired: columns that only older events have; a changelog keeps them, a mirror does not.
        histories: column of `decoded_schema` → the names that it has or had in the source.
    """

    writer_schemas: tuple[WriterSchema, ...]
    decoded_schema: TableSchema
    schema: TableSchema
    retired: tuple[str, ...]
    histories: Mapping[str, ColumnHistory] = field(default_factory=dict)

    def with_key(self, key: tuple[str, ...]) -> "ResolvedSchema":
        """Return the schemas with a configured key, which is the key of events too; `key` has the source's names."""
        own = self.schema.with_key(key).key
        return replace(
            self,
            writer_schemas=tuple(
                replace(e, schema=replace(e.schema, key=own), event_key=own) for e in self.writer_schemas
            ),
            decoded_schema=replace(self.decoded_schema, key=own),
            schema=replace(self.schema, key=own),
        )

    def with_rules(self, rules: ColumnRules, table: str) -> "ResolvedSchema":
        """Apply column rules: exclude, mask or hash columns.

        Raises:
            UnfitColumns: as in `ColumnRules.transformed`.
        """
        decoded = rules.transformed(self.decoded_schema, table, self.histories)
        return replace(
            self,
            writer_schemas=tuple(
                _restricted(writer_schema, decoded) for writer_schema in self.writer_schemas
            ),
            decoded_schema=decoded,
            schema=rules.transformed(self.schema, table, self.histories),
            retired=tuple(name for name in self.retired if decoded.column(name) is not None),
        )


def _restricted(writer_schema: WriterSchema, decoded: TableSchema) -> WriterSchema:
    """Restrict a writer schema to the columns that must be read, with the transforms of `decoded`.

    The rules behind these transforms consider all names of a column.
    """
    transforms = {c.name: c.transform for c in decoded.columns if not isinstance(c.transform, Blank)}
    columns = [
        replace(c, transform=transforms[c.name]) for c in writer_schema.schema.columns if c.name in transforms
    ]
    return replace(
        writer_schema,
        schema=replace(writer_schema.schema, columns=tuple(columns)),
    )


def resolve(
    history: SchemaHistory, writer_schemas: Iterable[WriterSchema], first: int, target: int
) -> ResolvedSchema:
    """Resolve `writer_schemas` to version `target` of `history`.

    `first` is the oldest version that the events may have.
    """
    mapped: list[WriterSchema] = []
    newest: TableSchema | None = None
    versions = column_histories(history)
    histories = dict(versions[target])
    for writer_schema in writer_schemas:
        for version, own in _by_version(history, writer_schema, first, target):
            found = _renamed(history, version, target, own)
            _add_histories(histories, versions[version], own, found)
            if version == target:
                newest = found.schema
            if mapped and _continues(mapped[-1], found):
                mapped[-1] = replace(mapped[-1], end=found.end)
            else:
                mapped.append(found)
    schema = _target(history, target, newest, [e.schema for e in mapped])
    retired = _retired(schema, mapped)
    return ResolvedSchema(
        tuple(mapped),
        replace(schema, columns=(*schema.columns, *retired)),
        schema,
        tuple(c.name for c in retired),
        histories,
    )


def _add_histories(
    histories: dict[str, ColumnHistory],
    version: Mapping[str, ColumnHistory],
    own: WriterSchema,
    mapped: WriterSchema,
) -> None:
    """Add the names of a writer schema's columns: `own` has the names in `version`, `mapped` the current ones."""
    names = {c.written: c.name for c in own.schema.columns}
    for column in mapped.schema.columns:
        found = history_in(version, names[column.written], column, names.values())
        known = histories.get(column.name)
        histories[column.name] = found if known is None else known.with_names(found)


def _continues(last: WriterSchema, found: WriterSchema) -> bool:
    return last.end == found.first and replace(last, first=found.first, end=found.end) == found


def matching_versions(history: SchemaHistory, schema: TableSchema) -> list[int]:
    """Return the indexes of the versions with the columns of `schema`; if some have its types too, only those."""
    found = [i for i, v in enumerate(history.versions) if set(v.schema.names) == set(schema.names)]
    types = {c.name: c.type for c in schema.columns}
    exact = [i for i in found if {c.name: c.type for c in history.versions[i].schema.columns} == types]
    return exact or found


def _by_version(
    history: SchemaHistory, writer_schema: WriterSchema, first: int, target: int
) -> list[tuple[int, WriterSchema]]:
    """Return (version, writer schema) for each version that its events may have, with disjoint ranges of positions."""
    if writer_schema.fingerprint == 0:
        # It has the position range of its version; one that begins after the target does not concern this batch.
        version = (
            len(history.versions) - 1
            if writer_schema.end is None
            else history.index_at(writer_schema.end.at - 1)
        )
        if writer_schema.first is not None and writer_schema.first.at > history.versions[target].at:
            return []
        last = version >= target
        return [(min(version, target), replace(writer_schema, end=None) if last else writer_schema)]
    known = matching_versions(history, writer_schema.schema)
    found = [i for i in known if first <= i <= target] or [i for i in known if i <= target][-1:]
    if len(found) < 2:
        return [(found[0] if found else min(first, target), writer_schema)]
    starts = [None, *map(history.boundary, found[1:])]
    ends = [*starts[1:], None]
    return [(i, replace(writer_schema, first=a, end=b)) for i, a, b in zip(found, starts, ends, strict=True)]


def _renamed(history: SchemaHistory, version: int, target: int, writer_schema: WriterSchema) -> WriterSchema:
    """Rename the columns of a writer schema from `version` to `target`; a dropped column keeps its last name.

    A dropped column whose name another column got later is not read.
    """
    known = set(history.versions[version].schema.names)
    names: dict[str, str] = {}
    columns: list[Column] = []
    for column in writer_schema.schema.columns:
        now = history.last_name(version, target, column.name) if column.name in known else column.name
        if now is None or now in names.values():
            continue
        names[column.name] = now
        written = column.written
        columns.append(replace(column, name=now, renamed_from=None if written == now else written))
    # The schema of the key is part of the record's key, so events of one writer schema may have several keys.
    own = history.versions[version]
    key, event_key = (
        tuple(names[name] for name in found if name in names)
        for found in (own.key(writer_schema.schema.key), own.event_key or writer_schema.schema.key)
    )
    return replace(
        writer_schema,
        schema=TableSchema(tuple(columns), key),
        event_key=event_key,
    )


def _target(
    history: SchemaHistory, target: int, newest: TableSchema | None, schemas: Sequence[TableSchema]
) -> TableSchema:
    """Return the decoded schema of version `target`: the types of events, wide enough for older events too."""
    defined = history.versions[target].schema
    added, columns = history.added(target), []
    for column in defined.columns:
        observed = None if newest is None else newest.column(column.name)
        filled = added.get(column.name)
        own = column if observed is None else replace(observed, nullable=column.nullable)
        columns.append(
            replace(
                own,
                type=_wide(own.type, _types(schemas, column.name)),
                fill=None if filled is None else filled.fill,
                fill_unknown=filled is not None and filled.fill_unknown,
            )
        )
    return TableSchema(tuple(columns), history.versions[target].key(newest.key if newest is not None else ()))


def _retired(schema: TableSchema, writer_schemas: Sequence[WriterSchema]) -> list[Column]:
    present = set(schema.names)
    found = {c.name: c for e in writer_schemas for c in e.schema.columns if c.name not in present}
    schemas = [e.schema for e in writer_schemas]
    return [
        replace(c, type=_wide(c.type, _types(schemas, name)), fill=None, fill_unknown=False)
        for name, c in found.items()
    ]


def _types(schemas: Iterable[TableSchema], name: str) -> list[LakeType]:
    return [c.type for s in schemas if (c := s.column(name)) is not None]


def _wide(wanted: LakeType, others: Iterable[LakeType]) -> LakeType:
    """Return `wanted`, or the wider type of older events."""
    for other in others:
        if other.widens(wanted):
            wanted = other
    return wanted
