"""Tables that a connector leaves out for some time."""

import re

import pytest

from replicator.model.table import TableId
from replicator.sources.connector.settings import set_aside, setting_aside, table_patterns

LISTED = "table.include.list"
BEFORE = {LISTED: table_patterns(["shop.*", "a,b.t?"], ["shop.tmp"]), "topic.prefix": "shop"}
A, COMMA, DOTS = TableId("shop", "a"), TableId("a,b", "t1"), TableId("shop", "x.y|z")


def includes(options: dict[str, str], table: str) -> bool:
    """Return what Debezium does: it splits the list at commas, except escaped ones, and ignores letter case."""
    items = re.split(r"(?<!\\),", options[LISTED])
    return any(re.fullmatch(item, table, re.IGNORECASE) for item in items)


@pytest.mark.parametrize("table", [A, COMMA, DOTS])
def test_table_is_left_out_alone_and_taken_in_again(table: TableId) -> None:
    out = setting_aside(BEFORE, [table])
    assert set_aside(out) == {table}
    assert not includes(out, str(table))
    for other in {A, COMMA, DOTS, TableId("shop", "other"), TableId("shop", "A2")} - {table}:
        assert includes(out, str(other)), other
    assert not includes(out, "shop.tmp")
    assert setting_aside(out, ()) == BEFORE


def test_further_tables_are_left_out_and_some_taken_in_again() -> None:
    both = setting_aside(setting_aside(BEFORE, [A]), [A, DOTS])
    assert set_aside(both) == {A, DOTS}
    one = setting_aside(both, [DOTS])
    assert set_aside(one) == {DOTS}
    assert includes(one, "shop.a")
