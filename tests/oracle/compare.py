"""Compare the lake's contents, read by PyIceberg and not by the engine, with the oracle's."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tests.oracle.equality_deletes import has_equality_deletes, rows_without_deleted
from tests.oracle.events import ColumnSpec
from tests.oracle.model import Change, SourceTable

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - DATETIME is a wall clock


def lake_rows(catalog: Catalog, namespace: str, table: str) -> list[dict[str, Any]]:
    """Return all rows of a lake table, in no particular order; an empty list if the table does not exist."""
    try:
        return rows_of(catalog.load_table((namespace, table)))
    except NoSuchTableError:
        return []


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Return all rows of a loaded lake table."""
    if has_equality_deletes(table):
        return list(rows_without_deleted(table))
    return list(table.scan().to_arrow().to_pylist())


def tagged_rows(table: Table, tag: str) -> list[dict[str, Any]]:
    """Return all rows of a tagged snapshot, with the columns of that time."""
    snapshot = table.snapshot_by_name(tag)
    assert snapshot is not None
    return list(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist())


def lake_value(kind: str, encoding: Any) -> Any:
    """Return the value that the lake must contain for a value in an event."""
    if encoding is None:
        return None
    match kind:
        case "decimal":
            return Decimal(str(encoding)).quantize(Decimal("0.01"))
        case "datetime":
            return _EPOCH + timedelta(microseconds=encoding)
        case _:
            return encoding


def assert_mirror_equals(catalog: Catalog, namespace: str, table: SourceTable) -> None:
    """Assert that the mirror has exactly the source's rows and columns."""
    assert_rows_equal(lake_rows(catalog, namespace, table.name), table)


def assert_rows_equal(rows: Sequence[Mapping[str, Any]], table: SourceTable) -> None:
    """Assert that rows of a lake table are exactly the source's, with its columns."""
    names = [c.name for c in table.columns]
    found = Counter(_text(row, row.keys()) for row in rows)
    wanted = Counter(_text(_lake_row(row, table.columns), names) for row in table.rows.values())
    assert found == wanted, f"{table.name}: extra {found - wanted}, missing {wanted - found}"


def without_columns(table: SourceTable, gone: Collection[str]) -> SourceTable:
    """Return the table without some of its columns."""
    rows = {
        key: {name: value for name, value in row.items() if name not in gone}
        for key, row in table.rows.items()
    }
    return replace(table, columns=[c for c in table.columns if c.name not in gone], rows=rows)


def applied_order(row: Mapping[str, Any]) -> tuple[int, int, bool]:
    """Return the documented order of the changes of one key in a changelog."""
    change = row["_change"]
    return change["commit"] or 0, change["offset"], change["kind"] != "UPDATE_BEFORE"


def folded(rows: Sequence[Mapping[str, Any]], key: str = "id") -> dict[Any, Mapping[str, Any]]:
    """Return key → row after the changes in their documented order; TRUNCATE is not known."""
    state: dict[Any, Mapping[str, Any]] = {}
    for row in sorted(rows, key=applied_order):
        kind = row["_change"]["kind"]
        if kind == "DELETE":
            state.pop(row[key], None)
        elif kind != "UPDATE_BEFORE":
            state[row[key]] = {name: value for name, value in row.items() if name != "_change"}
    return state


def assert_changelog_equals(
    catalog: Catalog, namespace: str, table: SourceTable, *, ordered: bool = True
) -> None:
    """Assert that the changelog has each change once, and the changes of each key in their order in the source.

    The order of offsets is not that of the source if keys changed to other partitions; then `ordered` is false.
    """
    assert_changes_equal(lake_rows(catalog, f"{namespace}_changes", table.name), table, ordered=ordered)


def assert_changes_equal(
    rows: Sequence[Mapping[str, Any]], table: SourceTable, *, ordered: bool = True
) -> None:
    """Assert that rows of a changelog have each change once, and those of each key in their order in the source."""
    assert_changes_once(rows, table.name, table.changes)
    _assert_images(rows, table)
    if table.key and ordered:
        _assert_order(rows, table)


def assert_changes_once(
    rows: Sequence[Mapping[str, Any]], name: str, changes: Sequence[Change], *, lost: bool = False
) -> None:
    """Assert that rows of a changelog are each of these changes once, by their positions; with `lost`, some of them."""
    found = Counter(_place(row["_change"]) for row in rows)
    wanted = Counter(_place(_change_of(c)) for c in changes)
    missing = Counter[tuple[Any, ...]]() if lost else wanted - found
    assert not found - wanted, f"{name}: extra {found - wanted}, missing {missing}"
    assert not missing, f"{name}: missing {missing}"


def _assert_images(rows: Sequence[Mapping[str, Any]], table: SourceTable) -> None:
    kinds = {c.name: c.kind for c in table.columns}
    # Several rows of a snapshot have one position, so all images of a position are compared together.
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(_place(row["_change"]), []).append(row)
    wanted: dict[Any, list[Change]] = {}
    for change in table.changes:
        wanted.setdefault(_place(_change_of(change)), []).append(change)
    for place, changes in wanted.items():
        # A change has the columns of its time; values of columns that were added later are not compared.
        names = list(changes[0].row or {})
        left = Counter(_text(row, names) for row in found[place])
        right = Counter(
            _text({n: lake_value(kinds[n], v) for n, v in (c.row or {}).items()}, names) for c in changes
        )
        assert left == right, f"{table.name} at {place}"


def _assert_order(rows: Sequence[Mapping[str, Any]], table: SourceTable) -> None:
    def by_key(pairs: Sequence[tuple[tuple[Any, ...], Any]]) -> dict[tuple[Any, ...], list[Any]]:
        grouped: dict[tuple[Any, ...], list[Any]] = {}
        for key, place in pairs:
            grouped.setdefault(key, []).append(place)
        return grouped

    def log_order(row: Mapping[str, Any]) -> tuple[int, int, bool]:
        change = row["_change"]
        return (change["partition"], change["offset"], change["kind"] != "UPDATE_BEFORE")

    ordered = sorted((r for r in rows if r["_change"]["kind"] != "TRUNCATE"), key=log_order)
    found = by_key([(table.key_of(row), _place(row["_change"])) for row in ordered])
    wanted = by_key(
        [(table.key_of(c.row), _place(_change_of(c))) for c in table.changes if c.row is not None]
    )
    assert found == wanted, f"{table.name}: order"


def _change_of(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "op": change.op,
        "file": change.file,
        "pos": change.pos,
        "row": change.number,
    }


def _place(change: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(change[name] for name in ("file", "pos", "row", "op", "kind"))


def _lake_row(row: Mapping[str, Any], columns: Sequence[ColumnSpec]) -> dict[str, Any]:
    return {c.name: lake_value(c.kind, row[c.name]) for c in columns}


def _text(row: Mapping[str, Any], names: Any) -> tuple[tuple[str, str], ...]:
    """Return the values of the named columns as text, sorted by name, for comparison."""
    return tuple(sorted((name, _plain(row[name])) for name in names))


def _plain(value: Any) -> str:
    return repr(value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value)
