"""Statements in the body of a routine or an event, which are not executed when it is created."""

import pytest

from replicator.schema.history.declared import table_definitions
from tests.oracle.events import Place, statement_event

BODY = (
    "BEGIN SET @a = 1; ALTER TABLE orders DROP PARTITION p0; DROP INDEX i ON orders; RENAME TABLE a TO b; END"
)


@pytest.mark.parametrize("head", ["CREATE PROCEDURE rotate()", "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO"])
def test_statements_in_a_body_change_nothing(head: str) -> None:
    assert table_definitions(statement_event(Place(1, 4), "orders", f"{head} {BODY}")) == []


def test_statement_that_is_executed_is_known() -> None:
    (found,) = table_definitions(
        statement_event(Place(1, 4), "orders", "ALTER TABLE orders DROP PARTITION p0")
    )
    assert (found.partitions is None, found.unlogged is None) == (False, False)
