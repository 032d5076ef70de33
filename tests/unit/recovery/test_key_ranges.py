"""Where ranges of keys end."""

from typing import Any
from unittest.mock import Mock

import pytest

from replicator.model.reread import KeySpan, Narrowed
from replicator.model.table import TableId
from replicator.recovery.reader.key_ranges import KeyRanges
from replicator.schema.types.table import KeyKind
from replicator.sources.mysql.table_rows import KeyColumn, SourceTable

KEY = KeyColumn("id", "CAST(`id` AS CHAR)", KeyKind.NUMBER)


def table(rows: int, *, integer: bool = True) -> SourceTable:
    return SourceTable(TableId("shop", "orders"), (), (KEY,), rows, 100, 100, integer)


def server(*answers: tuple[str] | None) -> Any:
    """Return a connection that answers queries in this order."""
    return Mock(**{"exec_driver_sql.return_value.first.side_effect": answers})


def ends(found: KeyRanges, connection: Any) -> list[str]:
    after, result = None, list[str]()
    while after != found.last:
        after = found.end(connection, after)
        result.append(after[0])
    return result


def test_dense_integers_are_divided_without_a_walk_of_the_index() -> None:
    connection = server(("-3",))
    found = KeyRanges.of(connection, table(1_000), ("995",), 400)
    assert ends(found, connection) == ["396", "796", "995"]
    assert connection.exec_driver_sql.call_count == 1


@pytest.mark.parametrize(
    ("rows", "integer", "first"),
    [(400, True, ("1",)), (1_000, False, None), (0, True, ("1",))],
    ids=["sparse", "no integers", "no statistics"],
)
def test_other_keys_are_divided_by_a_walk_of_the_index(
    rows: int, integer: bool, first: tuple[str] | None
) -> None:
    connection = server(*([] if first is None else [first]), ("300",), ("700",), None)
    found = KeyRanges.of(connection, table(rows, integer=integer), ("1000",), 400)
    assert ends(found, connection) == ["300", "700", "1000"]


def test_a_part_of_a_table_is_divided_by_a_walk_of_the_index() -> None:
    connection = server(("300",), None)
    part = table(1_000).part(Narrowed("id", (KeySpan(200, 900, 900),)))
    found = KeyRanges.of(connection, part, ("900",), 400)
    assert ends(found, connection) == ["300", "900"]
    assert "`id` BETWEEN 200 AND 900" in connection.exec_driver_sql.call_args_list[0].args[0]
