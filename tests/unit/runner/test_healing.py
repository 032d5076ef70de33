"""Which tables are read again without a command."""

from dataclasses import replace

import pytest

from replicator.config import HealConfig
from replicator.errors import (
    EventsLost,
    EventsWrong,
    MissingKey,
    PartitionsAdded,
    UnknownValues,
    UnloggedChange,
)
from replicator.model.reread import Request, new_request
from replicator.model.table import TableId
from replicator.runner.healing import Healing

ORDERS, BILLS = TableId("shop", "orders"), TableId("shop", "bills")
HOUR_MS = 3_600_000


def no_request(_table: TableId) -> Request | None:
    return None


def paused(cause: Exception, **config: object) -> Healing:
    healing = Healing(HealConfig(**config), possible=True)  # type: ignore[arg-type]
    healing.note(ORDERS, cause)
    return healing


@pytest.mark.parametrize(
    ("cause", "wanted"),
    [
        (EventsLost("lost"), {ORDERS: "lost"}),
        (UnknownValues("odd"), {ORDERS: "odd"}),
        (PartitionsAdded("more"), {ORDERS: "more"}),
        (UnloggedChange("dropped"), {ORDERS: "dropped"}),
        (EventsWrong("wrong"), {ORDERS: "wrong"}),
        (MissingKey("no key"), {}),
    ],
)
def test_only_causes_that_a_reread_removes_are_healed(cause: Exception, wanted: dict[TableId, str]) -> None:
    assert paused(cause).due({ORDERS}, {}, no_request, 0) == wanted


def test_nothing_is_requested_if_the_operator_is_to_be_asked_or_the_source_cannot_be_read() -> None:
    asks = paused(EventsLost("lost"), mode="ask")
    impossible = Healing(HealConfig(), possible=False)
    impossible.note(ORDERS, EventsLost("lost"))
    for healing in (asks, impossible):
        assert healing.due({ORDERS}, {BILLS: ["total"]}, no_request, 0) == {}


def test_a_table_that_continues_is_not_read_again() -> None:
    assert paused(EventsLost("lost")).due(set(), {}, no_request, 0) == {}


def test_another_cause_replaces_the_former_one() -> None:
    healing = paused(EventsLost("lost"))
    healing.note(ORDERS, MissingKey("no key"))
    assert healing.due({ORDERS}, {}, no_request, 0) == {}


def test_a_table_whose_new_columns_lack_values_is_read_again_unless_it_is_paused() -> None:
    healing = Healing(HealConfig(), possible=True)
    found = healing.due({ORDERS}, {ORDERS: ["a"], BILLS: ["b", "c"]}, no_request, 0)
    assert found == {BILLS: "no event has the older values of the new column b, c"}


def test_rereads_of_a_table_have_a_least_interval() -> None:
    healing = paused(EventsLost("lost"))
    request = new_request(ORDERS, "lost")
    for newest, now, due in (
        (request, HOUR_MS * 9, False),
        (replace(request, ended_ms=1_000), HOUR_MS, False),
        (replace(request, ended_ms=1_000), HOUR_MS + 1_000, True),
    ):
        assert bool(healing.due({ORDERS}, {}, lambda _, n=newest: n, now)) is due  # type: ignore[misc]
