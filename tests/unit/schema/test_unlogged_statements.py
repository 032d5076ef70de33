"""Statements that change rows without events, in the records of the schema-change topic."""

from dataclasses import replace

import pytest

from replicator.schema.history.builder import build_history
from replicator.schema.history.declared import table_definitions
from tests.oracle.events import ColumnSpec, Place, schema_change_event, statement_event

EXCHANGE = "ALTER TABLE orders EXCHANGE PARTITION p0 WITH TABLE old"


@pytest.mark.parametrize("is_defined", [True, False])
def test_statement_that_changed_rows_of_two_tables_is_a_definition_of_both(is_defined: bool) -> None:
    place = Place(1, 4)
    value = (
        schema_change_event(place, "orders", [ColumnSpec("id", "int")], ["id"], kind="ALTER", ddl=EXCHANGE)
        if is_defined
        else statement_event(place, "orders", EXCHANGE)
    )
    found = {d.table.name: d for d in table_definitions(value)}
    assert {name: (d.unlogged, d.only_statement, d.schema is None) for name, d in found.items()} == {
        "orders": (EXCHANGE, not is_defined, not is_defined),
        "old": (EXCHANGE, True, True),
    }


def test_table_that_was_altered_under_another_letter_case_has_the_statement() -> None:
    (found,) = table_definitions(
        schema_change_event(
            Place(1, 4),
            "orders",
            [ColumnSpec("id", "int")],
            ["id"],
            kind="ALTER",
            ddl="ALTER TABLE ORDERS TRUNCATE PARTITION p0, p1",
        )
    )
    assert found.unlogged == "ALTER TABLE ORDERS TRUNCATE PARTITION p0, p1"


COMPUTED = (
    "CREATE TABLE orders (id INT, a INT, `S` INT GENERATED ALWAYS AS (a + 1) STORED, d INT DEFAULT (a))"
)


CONVERTED = "ALTER TABLE orders …, with INT changed to VARCHAR(200) in a,"


@pytest.mark.parametrize(
    ("statements", "unlogged"),
    [
        (["ALTER TABLE orders MODIFY a VARCHAR(9)"], CONVERTED),
        (["ALTER TABLE orders MODIFY S INT, MODIFY a VARCHAR(9)"], CONVERTED),
        (["CREATE INDEX i ON orders (a)", "ALTER TABLE orders MODIFY a VARCHAR(9)"], CONVERTED),
        (
            ["ALTER TABLE orders MODIFY s INT AS (a + 2), MODIFY a VARCHAR(9)"],
            "ALTER TABLE orders MODIFY s INT AS (a + 2)",
        ),
        (["ALTER TABLE orders ADD KEY (a)"], None),
    ],
)
def test_conversion_in_a_table_with_generated_columns_changes_rows(
    statements: list[str], unlogged: str | None
) -> None:
    first = [ColumnSpec(name, "int") for name in ("id", "a", "S", "d")]
    found = table_definitions(
        schema_change_event(Place(1, 4), "orders", first, ["id"], kind="CREATE", ddl=COMPUTED)
    )
    assert found[0].generated == {"id": False, "a": False, "s": True, "d": False}
    for number, ddl in enumerate(statements, start=1):
        place = Place(1, 10 * number)
        last = [replace(c, kind="varchar") if c.name == "a" and "MODIFY a" in ddl else c for c in first]
        if ddl.startswith("CREATE INDEX"):
            found += table_definitions(statement_event(place, "orders", ddl))
        else:
            found += table_definitions(
                schema_change_event(place, "orders", last, ["id"], kind="ALTER", ddl=ddl)
            )
    assert build_history(found).versions[-1].unlogged == unlogged
