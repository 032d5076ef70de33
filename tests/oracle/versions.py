"""The versions of the rows of a source table, from its changes: what a history must have."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from tests.oracle.model import Change, Key, Row, SourceTable

Place = tuple[str, int]


@dataclass(frozen=True)
class Version:
    """A row that was valid from one transaction until before another one; None if it is."""

    row: Row
    first: Place
    end: Place | None = None


def source_versions(table: SourceTable, tracked: Collection[str] | None = None) -> Iterator[Version]:
    """Yield the versions of all rows; with `tracked`, only changes of these columns make one.

    Events of one transaction have one position in the model.
    """
    now: dict[Key, Version] = {}
    for place, changes in groupby(table.changes, key=lambda c: (c.file, c.pos)):
        rows = {key: version.row for key, version in now.items()}
        for change in changes:
            _apply(rows, change, table)
        for key in [*now, *(key for key in rows if key not in now)]:
            before, row = now.get(key), rows.get(key)
            if before is not None and row is not None and _same(before.row, row, tracked):
                now[key] = replace(before, row=row)
                continue
            if before is not None:
                yield replace(now.pop(key), end=place)
            if row is not None:
                now[key] = Version(row, place)
    yield from now.values()


def _apply(rows: dict[Key, Row], change: Change, table: SourceTable) -> None:
    if change.row is None:
        rows.clear()
    elif change.kind in ("INSERT", "UPDATE_AFTER"):
        rows[table.key_of(change.row)] = change.row
    elif change.kind == "DELETE":
        rows.pop(table.key_of(change.row), None)


def _same(before: Row, now: Row, tracked: Collection[str] | None) -> bool:
    names = before.keys() | now.keys() if tracked is None else tracked
    return all(before.get(name) == now.get(name) for name in names)


def newest_rows(table: SourceTable) -> Iterator[tuple[Row, bool]]:
    """Yield the last row that each key had, and whether it was deleted."""
    last: dict[Key, Row] = {}
    for change in table.changes:
        if change.row is not None and change.kind != "UPDATE_BEFORE":
            last[table.key_of(change.row)] = change.row
    return ((row, key not in table.rows) for key, row in last.items())


def is_valid_at(version: Mapping[str, Any], place: tuple[int, int]) -> bool:
    """Return whether a row of the struct `_version` is valid before the change at a place."""
    here = (place[0] << 40) + place[1]
    end = version["to_position"]
    return bool(version["from_position"] < here and (end is None or end >= here))
