"""The columns of a lake table that the engine made, by Iceberg's field ids, and what others changed in its columns.

A name does not identify a column: others may rename the engine's columns, or add columns of their own. Pure.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from replicator.model.changelog import FIRST_FIELDS
from replicator.model.recorded import checked, reading, versioned
from replicator.model.types import LakeType

COLUMNS_KEY: Final = "replicator.columns"
"""Table property: an `OwnColumns`."""
TEMPORARY: Final = "replicator_new_"
"""Name prefix of the temporary column with converted values, until it replaces the old column."""
_VERSION: Final = 1
_WHAT: Final = "the record of a table's columns"
_NOTES: Final = ("doc", "initial-default", "write-default")
"""Attributes of a nested field that are no part of its type."""


def is_temporary(column: str) -> bool:
    """Return whether a lake column is temporary: made by a conversion, possibly left by a crash."""
    return column.startswith(TEMPORARY)


@dataclass(frozen=True, slots=True)
class LakeField:
    """A column of a lake table.

    Attributes:
        id: Iceberg's field id, which a renamed column keeps.
        kind: its type: a primitive one in Iceberg's notation, another one as Iceberg's JSON.
        required: whether it cannot be null.
    """

    id: int
    name: str
    kind: str
    required: bool

    @property
    def lake_type(self) -> LakeType | None:
        """The type; None for one that the engine does not write."""
        try:
            return LakeType.parse(_list_text(self.kind))
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class ColumnDifferences:
    """How a table's columns differ from those that the engine made.

    Attributes:
        renamed: (name that the engine gave, name now).
        dropped: columns that the table lacks.
        retyped: (name, type that the engine gave, type now); a wider type holds all values, and is no difference.
        required: columns that cannot be null any more, and those of others that cannot be null.
        unwritable: (name, type) of columns of others whose type the engine does not write.
    """

    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    retyped: tuple[tuple[str, str, str], ...] = ()
    required: tuple[str, ...] = ()
    unwritable: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.renamed or self.dropped or self.retyped or self.required or self.unwritable)


@dataclass(frozen=True, slots=True)
class OwnColumns:
    """The columns that the engine made, as it left them.

    Attributes:
        fields: the columns, in order.
        identifiers: the field ids of Iceberg's identifier fields.
    """

    fields: tuple[LakeField, ...]
    identifiers: frozenset[int] = frozenset()

    @classmethod
    def of(cls, schema_json: str, names: Collection[str] | None = None) -> "OwnColumns":
        """Return the columns of a table, in Iceberg's JSON, that the engine made: those of `names`; None for all.

        A changelog's struct is always the engine's.
        """
        fields = [f for f in fields_of(schema_json) if not is_temporary(f.name)]
        own = tuple(f for f in fields if names is None or f.name in names or _is_change(f))
        return cls(own, _identifiers(schema_json))

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": _VERSION,
                "columns": [[f.id, f.name, f.kind, f.required] for f in self.fields],
                "identifiers": sorted(self.identifiers),
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> "OwnColumns":
        """Read what `to_json` wrote.

        Raises:
            ValueError: a newer version of the engine wrote it.
        """
        return _parsed(text)

    def users(self, schema_json: str) -> tuple[LakeField, ...]:
        """Return the columns of a table that others added."""
        own = {f.id for f in self.fields}
        return tuple(f for f in fields_of(schema_json) if f.id not in own and not is_temporary(f.name))

    def types(self, schema_json: str) -> dict[str, LakeType]:
        """Return the types of the source's columns, without user columns and the changelog's struct `_change`."""
        users = {f.id for f in self.users(schema_json)}
        own = [f for f in fields_of(schema_json) if f.id not in users]
        return {f.name: kind for f in own if (kind := f.lake_type) is not None}

    def differences(self, schema_json: str) -> ColumnDifferences:
        """Return how the columns of a table differ from these. Their order and their comments do not count."""
        present = {f.id: f for f in fields_of(schema_json)}
        kept = [(f, present[f.id]) for f in self.fields if f.id in present]
        users = self.users(schema_json)
        required = [now.name for was, now in kept if now.required and not was.required]
        return ColumnDifferences(
            renamed=tuple((was.name, now.name) for was, now in kept if was.name != now.name),
            dropped=tuple(f.name for f in self.fields if f.id not in present),
            retyped=tuple((was.name, was.kind, now.kind) for was, now in kept if not _holds(now, was)),
            required=(*required, *(f.name for f in users if f.required)),
            unwritable=tuple((f.name, f.kind) for f in users if f.lake_type is None),
        )

    def has_other_key(self, schema_json: str) -> bool:
        """Return whether others changed the identifier fields, or let key columns be null."""
        present = {f.id: f for f in fields_of(schema_json)}
        relaxed = any(f.required and f.id in present and not present[f.id].required for f in self.fields)
        return relaxed or _identifiers(schema_json) != self.identifiers & present.keys()

    def followed_by(self, before_json: str, after_json: str) -> "OwnColumns":
        """Return the columns after the engine changed a table's schema from `before_json` to `after_json`.

        What others changed in identifier fields and nullability stays recorded as it was, so that it remains known.
        """
        users = {f.id for f in self.users(before_json)}
        before = {f.id: f for f in fields_of(before_json)}
        recorded = {f.id: f for f in self.fields}

        def own(field: LakeField) -> LakeField:
            was, known = before.get(field.id), recorded.get(field.id)
            if was is None or known is None or was.required != field.required:
                return field
            return replace(field, required=known.required)

        fields = [f for f in fields_of(after_json) if f.id not in users and not is_temporary(f.name)]
        other_key = self.has_other_key(before_json)
        return OwnColumns(
            tuple(map(own, fields)), self.identifiers if other_key else _identifiers(after_json)
        )


@lru_cache(1024)
def fields_of(schema_json: str) -> tuple[LakeField, ...]:
    """Return the columns of a schema in Iceberg's JSON, in order."""
    return tuple(
        LakeField(f["id"], f["name"], _kind(f["type"]), f["required"])
        for f in json.loads(schema_json)["fields"]
    )


@lru_cache(1024)
def _parsed(text: str) -> OwnColumns:
    with reading(_WHAT):
        value = versioned(text, _WHAT, _VERSION)
        columns = tuple(LakeField(*f) for f in value["columns"])
        return checked(OwnColumns(columns, frozenset(value["identifiers"])))


def _identifiers(schema_json: str) -> frozenset[int]:
    return frozenset(json.loads(schema_json).get("identifier-field-ids", ()))


def _kind(value: Any) -> str:
    if isinstance(value, str):
        # Spaces in the type of a decimal do not count.
        return value.replace(" ", "").replace(",", ", ")
    return json.dumps(_without_notes(value), sort_keys=True)


def _without_notes(value: Any) -> Any:
    match value:
        case Mapping():
            return {name: _without_notes(inner) for name, inner in value.items() if name not in _NOTES}
        case list():
            return [_without_notes(inner) for inner in value]
        case _:
            return value


def _list_text(kind: str) -> str:
    """Return a list of primitive elements in the notation of `LakeType`; any other type as it is."""
    if not kind.startswith("{"):
        return kind
    value = json.loads(kind)
    is_list = value["type"] == "list" and isinstance(value["element"], str)
    return f"list<{value['element']}>" if is_list else kind


def _is_change(field: LakeField) -> bool:
    """Return whether a column is the struct of a changelog."""
    return bool(_change_names(field))


def _change_names(field: LakeField) -> frozenset[str]:
    """Return the names of the fields of a changelog's struct; none for any other column."""
    value = json.loads(field.kind) if field.kind.startswith("{") else {}
    names = frozenset(f["name"] for f in value.get("fields", ()))
    return names if value.get("type") == "struct" and names >= FIRST_FIELDS else frozenset()


@lru_cache(1024)
def change_field(schema_json: str) -> tuple[str, frozenset[str]] | None:
    """Return the name of a changelog's struct column, and those of its fields; None for any other table."""
    found = ((f.name, _change_names(f)) for f in reversed(fields_of(schema_json)))
    return next(((name, names) for name, names in found if names), None)


def _holds(now: LakeField, was: LakeField) -> bool:
    """Return whether a column holds all values that it could hold when the engine left it."""
    if now.kind == was.kind:
        return True
    new, old = now.lake_type, was.lake_type
    return new is not None and old is not None and new.holds(old)
