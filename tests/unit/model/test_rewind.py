"""What is recorded of rewinds."""

from dataclasses import replace

import pytest

from replicator.model.rewind import REWIND_KEY, Rewind, RewindPhase, rewinds_in
from replicator.model.table import TableId

ORDERS = Rewind(TableId("shop", "orders"), "the log begins at 9", "binlog.000007", 1_000, 5)


def test_rewind_is_read_as_it_was_written() -> None:
    done = replace(
        ORDERS, phase=RewindPhase.DONE, end_file="binlog.000008", end_pos=157, events=3, ended_ms=9
    )
    assert [Rewind.from_json(rewind.to_json()) for rewind in (ORDERS, done)] == [ORDERS, done]
    assert (ORDERS.has_ended, done.has_ended) == (False, True)


def test_rewind_fits_into_a_property_of_any_catalog() -> None:
    assert len(replace(ORDERS, reason="r" * 5_000, problem="p" * 5_000).to_json()) < 1_000


def test_rewinds_that_this_version_cannot_read_are_left_out() -> None:
    properties = {
        f"{REWIND_KEY}shop.orders": ORDERS.to_json(),
        f"{REWIND_KEY}shop.later": '{"version": 2}',
        f"{REWIND_KEY}shop.broken": "{",
        "owner": "x",
    }
    assert rewinds_in(properties) == [ORDERS]
    with pytest.raises(ValueError, match="version 2"):
        Rewind.from_json('{"version": 2}')
