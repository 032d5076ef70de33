"""Reasons of failed connectors, as Debezium 3.6 tells them."""

import pytest

from replicator.model.table import TableId
from replicator.sources.connector.failure import failure_in

STOPPED = "An exception occurred in the change event producer. This connector will be stopped. "
A, OTHER, DOTTED = TableId("shop", "a"), TableId("shop", "other"), TableId("shop", "a.b")


@pytest.mark.parametrize(
    ("reason", "tables"),
    [
        (
            "(Error processing row in a, internal schema size 3, but row size 1 , restart connector)",
            [A],
        ),
        ("(Failed to properly convert data value for 'shop.a.f' of type FLOAT4)", [A]),
        ("(Failed to set field default value for 'shop.a.f' of type FLOAT4, the default value is 3.5)", [A]),
        ("(Failed to properly convert data value for 'shop.a.b.f' of type FLOAT4)", [A, DOTTED]),
        ("(Encountered change event for table shop.a whose schema isn't known to this connector)", [A]),
    ],
)
def test_failure_for_an_event_names_its_table(reason: str, tables: list[TableId]) -> None:
    failure = failure_in(STOPPED + reason)
    assert failure is not None
    assert not failure.is_of_statement
    assert failure.tables([A, OTHER, DOTTED]) == tables


@pytest.mark.parametrize(
    "reason", ["Access denied for user 'x' (using password: YES)", "Connection refused", "", "unknown"]
)
def test_other_failures_are_left_to_restarts(reason: str) -> None:
    assert failure_in(reason) is None


def test_incomplete_row_names_the_setting_and_the_next_step() -> None:
    failure = failure_in("Error processing row in a, internal schema size 3, but row size 1 , restart")
    assert failure is not None
    reason, hint = failure.explain(A)
    assert "1 columns instead of 3" in reason
    assert "binlog_row_image" in reason
    assert hint.endswith("replicator heal shop.a")


@pytest.mark.parametrize(
    "reason",
    [
        "Error processing row in was, internal schema size 3, but row size 1 , restart connector)",
        "Failed to properly convert data value for 'shop.was.f' of type FLOAT4)",
        "Encountered change event for table shop.was whose schema isn't known to this connector)",
    ],
)
def test_failure_names_a_table_that_was_renamed_or_dropped_since(reason: str) -> None:
    failure = failure_in(STOPPED + reason)
    assert failure is not None
    assert failure.tables([A, OTHER]) == []
    assert failure.gone_tables(["shop"]) == [TableId("shop", "was")]


def test_unknown_table_names_the_statement_and_the_next_step() -> None:
    failure = failure_in(
        "Encountered change event for table shop.a whose schema isn't known to this connector"
    )
    assert failure is not None
    reason, hint = failure.explain(A)
    assert "no definition of shop.a" in reason
    assert hint.endswith("replicator heal shop.a")
