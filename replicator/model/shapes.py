"""The shape of events that are no change events: names and types of fields, in which records may be nested.

A table's shape is that of its columns: a nested record is a struct.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final, TypeAlias

from replicator.model.table import RESERVED
from replicator.model.types import LakeType

Shape: TypeAlias = Mapping[str, "LakeType | Shape"]
Path: TypeAlias = tuple[str, ...]

MOST_FIELDS: Final = 1_000
"""Events may have any names of fields; a table with more columns than this cannot be used."""
_LONGEST_NAME: Final = 255
_NO_VALUES: Final = frozenset({"list<float>"})


def parse_shape(value: object) -> Shape:
    """Parse names and types of fields, as `{"id": "long", "device": {"os": "string"}}`.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, Mapping):
        raise ValueError('must be names and types, as in { id = "long", at = "timestamptz" }')
    found: dict[str, LakeType | Shape] = {}
    for name, kind in value.items():
        if (reason := unfit_name(name, found)) is not None:
            raise ValueError(f'"{name}" {reason}')
        found[name] = _parse_type(name, kind)
    return found


def _parse_type(name: str, kind: object) -> LakeType | Shape:
    if isinstance(kind, LakeType):
        return kind
    if isinstance(kind, Mapping):
        if not kind:
            raise ValueError(f'"{name}" has no fields')
        return parse_shape(kind)
    try:
        found = LakeType.parse(str(kind))
    except ValueError:
        found = LakeType("")
    if not isinstance(kind, str) or found.name in ("", *_NO_VALUES):
        raise ValueError(
            f'"{name}" has the type {json.dumps(kind, default=str)}; known are boolean, int, long, float, double, '
            "decimal(P, S), string, binary, date, timestamp, timestamptz, and { … } for nested fields"
        )
    return found


def unfit_name(name: str, others: Mapping[str, object]) -> str | None:
    """Return why a field cannot be a column beside others; None if it can."""
    if not name or len(name) > _LONGEST_NAME or "\x00" in name or name in RESERVED:
        return "cannot be the name of a column"
    if any(other.lower() == name.lower() and other != name for other in others):
        return "differs from another column only in letter case"
    return None


def paths(shape: Shape, above: Path = ()) -> Iterator[tuple[Path, LakeType]]:
    """Yield the place and the type of each field that is not nested."""
    for name, kind in shape.items():
        if isinstance(kind, LakeType):
            yield (*above, name), kind
        else:
            yield from paths(kind, (*above, name))


def records(shape: Shape, above: Path = ()) -> Iterator[tuple[Path, Shape]]:
    """Yield the place of each record: of the event itself, and of those that are nested in it."""
    yield above, shape
    for name, kind in shape.items():
        if not isinstance(kind, LakeType):
            yield from records(kind, (*above, name))


def merged(known: Shape, found: Shape) -> Shape:
    """Return the known fields, with their types, and after them those that are only in `found`."""
    result = dict(known)
    for name, kind in found.items():
        present = result.get(name)
        if present is None:
            result[name] = kind
        elif not isinstance(present, LakeType) and not isinstance(kind, LakeType):
            result[name] = merged(present, kind)
    return result


def unknown(known: Shape, found: Shape, above: Path = ()) -> Iterator[Path]:
    """Yield the places of fields that `found` has and `known` lacks. The fields inside of them are not told."""
    for name, kind in found.items():
        present = known.get(name)
        if present is None:
            yield (*above, name)
        elif not isinstance(present, LakeType) and not isinstance(kind, LakeType):
            yield from unknown(present, kind, (*above, name))


def lacking(known: Shape, found: Shape) -> Shape:
    """Return the fields that `found` has and `known` lacks, with the records that they are in."""
    result: dict[str, LakeType | Shape] = {}
    for name, kind in found.items():
        present = known.get(name)
        if present is None:
            result[name] = kind
        elif (
            not isinstance(present, LakeType)
            and not isinstance(kind, LakeType)
            and (inner := lacking(present, kind))
        ):
            result[name] = inner
    return result


def to_iceberg(shape: Shape) -> str:
    """Return a shape as Iceberg's JSON of a schema; all columns are optional."""
    return json.dumps({"type": "struct", "schema-id": 0} | _struct(shape, count(1)))


def _struct(shape: Shape, ids: "count[int]") -> dict[str, Any]:
    fields = [
        {
            "id": next(ids),
            "name": name,
            "required": False,
            "type": str(kind).replace(" ", "") if isinstance(kind, LakeType) else _struct(kind, ids),
        }
        for name, kind in shape.items()
    ]
    return {"type": "struct", "fields": fields}


def from_iceberg(schema: str | Mapping[str, Any]) -> Shape:
    """Return the shape of a schema in Iceberg's JSON; without columns of types that the engine does not write."""
    struct = json.loads(schema) if isinstance(schema, str) else schema
    found: dict[str, LakeType | Shape] = {}
    for field in struct["fields"]:
        kind = field["type"]
        if isinstance(kind, str):
            try:
                found[field["name"]] = LakeType.parse(kind)
            except ValueError:
                continue
        elif kind["type"] == "struct":
            found[field["name"]] = from_iceberg(kind)
    return found
