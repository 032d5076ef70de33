"""Read events in JSON: the texts of their fields, and the names and types of those that they have.

DuckDB's parser reads all events at once. What is no JSON object does not disturb the others.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.decode.json.duck import queried, queried_objects, texts_of
from replicator.log_tables.parsed import ParsedEvents, Values
from replicator.model.shapes import Path, Shape, merged, records
from replicator.model.types import BOOLEAN, DOUBLE, LONG, STRING, LakeType

NOT_JSON: Final = "not a JSON object"
_ANY_OBJECT: Final = "{}"
_LEARNT: Final = {
    "BOOLEAN": BOOLEAN,
    "BIGINT": LONG,
    "UBIGINT": LONG,
    "HUGEINT": LONG,
    "DOUBLE": DOUBLE,
}
"""What DuckDB calls the type of values → the type of a column that is learnt from them; others become text."""


def parse(values: pa.BinaryArray, shape: Shape) -> ParsedEvents:
    """Return the texts of the fields in `shape`; null for those that an event lacks."""
    wanted = json.dumps(_structure(shape) or {"": "VARCHAR"}, ensure_ascii=False)
    found, objects, good = queried_objects("json_transform(text, ?)", texts_of(values), wanted)
    fields, misplaced = _fields(found, shape, objects, ())
    return ParsedEvents(fields, misplaced, pc.and_not(pc.is_valid(values), good), NOT_JSON)


def _structure(shape: Shape) -> dict[str, Any]:
    return {
        name: "VARCHAR" if isinstance(kind, LakeType) else _structure(kind) for name, kind in shape.items()
    }


def _fields(
    found: pa.StructArray, shape: Shape, objects: pa.StringArray, above: Path
) -> tuple[dict[str, Values], dict[Path, pa.BooleanArray]]:
    """Return the texts of fields, and where a value is present that should be a record and is none."""
    fields: dict[str, Values] = {}
    misplaced: dict[Path, pa.BooleanArray] = {}
    for name, kind in shape.items():
        part = pc.struct_field(found, name)
        if isinstance(kind, LakeType):
            fields[name] = part
            continue
        path = (*above, name)
        inner, further = _fields(part, kind, objects, path)
        present, wrong = _presence(part, inner, objects, path)
        fields[name] = (present, inner)
        misplaced |= further | ({path: wrong} if wrong is not None else {})
    return fields, misplaced


def _presence(
    part: pa.StructArray, inner: Mapping[str, Values], objects: pa.StringArray, path: Path
) -> tuple[pa.BooleanArray, pa.BooleanArray | None]:
    """Return where a record is, and where something else is in its place: DuckDB returns nulls for that."""
    present = pc.is_valid(part)
    nulls = [
        pc.is_null(values) if isinstance(values, pa.Array) else pc.invert(values[0])
        for values in inner.values()
    ]
    doubtful = reduce(pc.and_, nulls, present)
    if not pc.any(doubtful).as_py():
        return present, None
    kinds = queried("json_type(text, ?)", pc.if_else(doubtful, objects, _ANY_OBJECT), pointer(path))
    wrong = pc.fill_null(pc.not_equal(kinds, "OBJECT"), fill_value=False)
    is_null = pc.fill_null(pc.equal(kinds, "NULL"), fill_value=False)
    return pc.and_not(present, wrong), pc.and_(doubtful, pc.and_not(wrong, is_null))


def pointer(path: Path) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)


def unknown_fields(values: pa.BinaryArray, shape: Shape, *, nested: bool) -> Shape:
    """Return the shape of the events' fields that `shape` lacks, inside of records that it has too.

    It is empty for most events, and the names alone tell that. Fields that are always null are not known yet.
    """
    found: Shape = {}
    for path, known in records(shape):
        names, objects, _ = queried_objects("json_keys(text, ?)", texts_of(values), pointer(path))
        if set(pc.unique(names.flatten()).to_pylist()) - set(known):
            types = learnt(_records_at(objects, path), nested=nested)
            new = {name: kind for name, kind in types.items() if name not in known}
            found = merged(found, _inside(path, new)) if new else found
    return found


def may_have_others(values: pa.BinaryArray, parsed: ParsedEvents) -> pa.BooleanArray:
    """Return which events may have further fields than those that were parsed.

    Each name is a quote and a colon in the text. If there are as many as fields with a value, there is no other name.
    That is not known if space may be between a name and its colon.
    """
    names, spaced = _colons(texts_of(values))
    return pa.array((names != _present(parsed.fields, len(values))) | (spaced > 0))


def _present(fields: Mapping[str, Values], count: int) -> Any:
    """Return how many fields each event has, those of records too, whose value is not null."""
    found = np.zeros(count, np.int64)
    for values in fields.values():
        if isinstance(values, tuple):
            found += values[0].to_numpy(zero_copy_only=False) + _present(values[1], count)
        else:
            found += pc.is_valid(values).to_numpy(zero_copy_only=False)
    return found


def _colons(texts: pa.StringArray) -> tuple[Any, Any]:
    """Return how many colons of each text follow a quote, and how many follow space."""
    _, ends, content = texts.buffers()
    places = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(content or b"", np.uint8)[places[0] : places[-1]]
    before = np.flatnonzero(letters[1:] == ord(":"))
    kinds = letters[before]
    quoted, spaced = before[kinds == ord('"')], before[kinds <= ord(" ")]
    counts = (np.diff(np.searchsorted(found, places - places[0])) for found in (quoted, spaced))
    return next(counts), next(counts)


def _records_at(objects: pa.StringArray, path: Path) -> pa.StringArray:
    """Return the records at a place; something else there would hide their fields from `learnt`."""
    if not path:
        return objects
    at = pointer(path)
    query = "CASE json_type(text, ?) WHEN 'OBJECT' THEN json_extract(text, ?)::VARCHAR END"
    return queried(query, objects, at, at).drop_null()


def _inside(path: Path, shape: Shape) -> Shape:
    return reduce(lambda inner, name: {name: inner}, reversed(path), shape)


def learnt(objects: pa.StringArray, *, nested: bool) -> Shape:
    """Return the shape of JSON objects. With `nested`, records are shapes, otherwise text as lists are."""
    if not len(objects):
        return {}
    structures = queried("json_group_structure(text::JSON)", objects)
    structure = json.loads(structures[0].as_py() or "{}")
    return _shape(structure, nested=nested) if isinstance(structure, dict) else {}


def _shape(structure: Mapping[str, Any], *, nested: bool) -> Shape:
    found: dict[str, LakeType | Shape] = {}
    for name, kind in structure.items():
        if kind == "NULL":
            continue
        inner = _shape(kind, nested=True) if nested and isinstance(kind, dict) else {}
        found[name] = inner or (STRING if not isinstance(kind, str) else _LEARNT.get(kind, STRING))
    return found


def having(values: pa.BinaryArray, places: Sequence[Path]) -> pa.BooleanArray:
    """Return which events have one of some fields, with any value but null."""
    if len(places) > 1:
        wanted = set(places)
        return pa.array([_has_any(text, wanted) for text in texts_of(values).to_pylist()], pa.bool_())
    kinds, _, _ = queried_objects("json_type(text, ?)", texts_of(values), pointer(places[0]))
    return pc.fill_null(pc.not_equal(kinds, "NULL"), fill_value=False)


def _has_any(text: str | None, wanted: set[Path]) -> bool:
    """Return whether an event has one of many fields: events may have any number of them."""
    try:
        return text is not None and any(path in wanted for path in _places(json.loads(text), ()))
    except (ValueError, RecursionError):
        return False


def _places(value: Any, above: Path) -> Iterator[Path]:
    """Yield the places of all fields that are not null, those in records too."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if inner is not None:
                yield (*above, name)
                yield from _places(inner, (*above, name))
