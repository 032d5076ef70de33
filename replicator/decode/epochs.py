"""Events of several schemas → one frame: each event's columns under the names that they have in the newest version.

An epoch's columns are renamed before anything is decoded, so that a column goes where its identity is, whatever it was
called when the event was written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from replicator.decode.envelope import Epoch
from replicator.model.columns import Blank, ColumnRules
from replicator.model.lineage import Lineage
from replicator.model.table import Column, TableSchema
from replicator.model.types import LakeType


@dataclass(frozen=True, slots=True)
class Aligned:
    """How to decode a batch.

    Attributes:
        epochs: to decode with; their columns have the names of `frame`.
        frame: the columns of all images: those of `schema`, then `retired` ones.
        schema: the version of the source that the batch ends with.
        retired: columns that only older events have; a changelog keeps them, a mirror does not.
    """

    epochs: tuple[Epoch, ...]
    frame: TableSchema
    schema: TableSchema
    retired: tuple[str, ...]

    def with_key(self, key: tuple[str, ...]) -> "Aligned":
        """Rows told apart by other columns, as configured; `key` has the source's names."""
        own = self.schema.with_key(key).key
        return replace(
            self,
            epochs=tuple(replace(e, schema=replace(e.schema, key=own)) for e in self.epochs),
            frame=replace(self.frame, key=own),
            schema=replace(self.schema, key=own),
        )

    def ruled(self, rules: ColumnRules, table: str) -> "Aligned":
        """What is left where columns are left out, masked or hashed.

        Raises:
            UnfitColumns: a key column is left out or masked.
        """
        frame = rules.shielded(self.frame, table)
        return replace(
            self,
            epochs=tuple(_read(rules, epoch, frame) for epoch in self.epochs),
            frame=frame,
            schema=rules.shielded(self.schema, table),
            retired=tuple(name for name in self.retired if frame.column(name) is not None),
        )


def _read(rules: ColumnRules, epoch: Epoch, frame: TableSchema) -> Epoch:
    """The columns of an event that have to be read, by their old names and by those that they have now."""
    shields = {c.name: c.shield for c in frame.columns if not isinstance(c.shield, Blank)}
    own = rules.read(epoch.schema.columns)
    columns = [replace(c, shield=shields[c.name]) for c in own if c.name in shields]
    gone = [*rules.read(epoch.unseen), *(c for c in own if c.name not in shields)]
    unseen = [replace(c, shield=rules.shield(c.written)) for c in gone]
    return replace(epoch, schema=replace(epoch.schema, columns=tuple(columns)), unseen=tuple(unseen))


def align(line: Lineage, epochs: Iterable[Epoch], first: int, target: int) -> Aligned:
    """Decode `epochs` so that all of them look as version `target` of `line`.

    `first` is the oldest version that the events may have.
    """
    mapped: list[Epoch] = []
    newest: TableSchema | None = None
    for epoch in epochs:
        for version, own in _placed(line, epoch, first, target):
            found = _as_of(line, version, target, own)
            if version == target:
                newest = found.schema
            if mapped and _continues(mapped[-1], found):
                mapped[-1] = replace(mapped[-1], end=found.end)
            else:
                mapped.append(found)
    schema = _target(line, target, newest, [e.schema for e in mapped])
    retired = _retired(schema, mapped)
    return Aligned(
        tuple(mapped),
        replace(schema, columns=(*schema.columns, *retired)),
        schema,
        tuple(c.name for c in retired),
    )


def _continues(last: Epoch, found: Epoch) -> bool:
    return last.end == found.first and replace(last, first=found.first, end=found.end) == found


def known_as(line: Lineage, schema: TableSchema) -> list[int]:
    """The versions that events with this schema may be of; those with the same types where there are any."""
    found = [i for i, v in enumerate(line.versions) if set(v.schema.names) == set(schema.names)]
    types = {c.name: c.type for c in schema.columns}
    exact = [i for i in found if {c.name: c.type for c in line.versions[i].schema.columns} == types]
    return exact or found


def _placed(line: Lineage, epoch: Epoch, first: int, target: int) -> list[tuple[int, Epoch]]:
    """(version, epoch) for each version that events of `epoch` may have, told apart by their places."""
    if epoch.fingerprint == 0:
        # Its span is that of its version; what begins after the target is not for this batch.
        version = len(line.versions) - 1 if epoch.end is None else line.index_at(epoch.end - 1)
        if epoch.first is not None and epoch.first > line.versions[target].at:
            return []
        last = version >= target
        return [(min(version, target), replace(epoch, end=None) if last else epoch)]
    known = known_as(line, epoch.schema)
    found = [i for i in known if first <= i <= target] or [i for i in known if i <= target][-1:]
    if len(found) < 2:
        return [(found[0] if found else min(first, target), epoch)]
    starts = [None, *(line.versions[i].at for i in found[1:])]
    ends = [*starts[1:], None]
    return [(i, replace(epoch, first=a, end=b)) for i, a, b in zip(found, starts, ends, strict=True)]


def _as_of(line: Lineage, version: int, target: int, epoch: Epoch) -> Epoch:
    """`epoch`, of events of `version`, with the names of version `target`; what went meanwhile keeps its last one.

    A column that went and whose name was another column's later is seen no more.
    """
    known = set(line.versions[version].schema.names)
    names: dict[str, str] = {}
    columns: list[Column] = []
    unseen: list[Column] = []
    for column in epoch.schema.columns:
        now = line.last_name(version, target, column.name) if column.name in known else column.name
        if now is None or now in names.values():
            unseen.append(column)
            continue
        names[column.name] = now
        written = column.written
        columns.append(replace(column, name=now, renamed_from=None if written == now else written))
    # The key's schema is in the record's key, so events of one schema may have several keys.
    key = line.versions[version].schema.key or epoch.schema.key
    schema = TableSchema(tuple(columns), tuple(names[name] for name in key if name in names))
    return replace(epoch, schema=schema, unseen=tuple(unseen))


def _target(
    line: Lineage, target: int, newest: TableSchema | None, schemas: Sequence[TableSchema]
) -> TableSchema:
    """Version `target` as it is decoded to: types of the events, wide enough for the older ones too."""
    defined = line.versions[target].schema
    added, columns = line.added(target), []
    for column in defined.columns:
        seen = None if newest is None else newest.column(column.name)
        filled = added.get(column.name)
        own = column if seen is None else replace(seen, nullable=column.nullable)
        columns.append(
            replace(
                own,
                type=_wide(own.type, _types(schemas, column.name)),
                fill=None if filled is None else filled.fill,
                fill_unknown=filled is not None and filled.fill_unknown,
            )
        )
    return TableSchema(tuple(columns), defined.key or (newest.key if newest is not None else ()))


def _retired(schema: TableSchema, epochs: Sequence[Epoch]) -> list[Column]:
    present = set(schema.names)
    found = {c.name: c for e in epochs for c in e.schema.columns if c.name not in present}
    schemas = [e.schema for e in epochs]
    return [
        replace(c, type=_wide(c.type, _types(schemas, name)), fill=None, fill_unknown=False)
        for name, c in found.items()
    ]


def _types(schemas: Iterable[TableSchema], name: str) -> list[LakeType]:
    return [c.type for s in schemas if (c := s.column(name)) is not None]


def _wide(wanted: LakeType, others: Iterable[LakeType]) -> LakeType:
    """`wanted`, or the type of older events that it became narrower than."""
    for other in others:
        if other.widens(wanted):
            wanted = other
    return wanted
