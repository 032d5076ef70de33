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
from replicator.model.reread import Phase, Request, new_request
from replicator.model.table import TableId
from replicator.recovery.policy import Healing

ORDERS, BILLS = TableId("shop", "orders"), TableId("shop", "bills")
HOUR_MS = 3_600_000


def no_request(_table: TableId) -> Request | None:
    return None


def paused(cause: Exception, **config: object) -> Healing:
    healing = Healing(HealConfig(**config), possible=True)  # type: ignore[arg-type]
    healing.note(ORDERS, cause)
    return healing


def ended(at_ms: int, phase: Phase = Phase.DONE, changed: int | None = None, reason: str = "lost") -> Request:
    return replace(new_request(ORDERS, reason), phase=phase, ended_ms=at_ms, changed=changed)


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
    assert paused(cause).plan({ORDERS}, {}, no_request, 0).due == wanted


def test_nothing_is_requested_if_the_operator_is_to_be_asked_or_the_source_cannot_be_read() -> None:
    asks = paused(EventsLost("lost"), mode="ask")
    impossible = Healing(HealConfig(), possible=False)
    impossible.note(ORDERS, EventsLost("lost"))
    for healing in (asks, impossible):
        assert healing.plan({ORDERS}, {BILLS: ["total"]}, no_request, 0).due == {}


def test_another_cause_replaces_the_former_one() -> None:
    healing = paused(EventsLost("lost"))
    healing.note(ORDERS, MissingKey("no key"))
    assert healing.plan({ORDERS}, {}, no_request, 0).due == {}


def test_a_table_whose_new_columns_lack_values_is_read_again_unless_it_is_paused() -> None:
    healing = Healing(HealConfig(), possible=True)
    found = healing.plan({ORDERS}, {ORDERS: ["a"], BILLS: ["b", "c"]}, no_request, 0).due
    assert found == {BILLS: "no event has the older values of the new column b, c"}


@pytest.mark.parametrize(
    ("newest", "now_ms", "due_ms"),
    [
        (new_request(ORDERS, "lost"), HOUR_MS * 9, None),
        (ended(1_000, changed=2), HOUR_MS, HOUR_MS + 1_000),
        (ended(1_000, changed=2), HOUR_MS + 1_000, 0),
        (ended(1_000, changed=0), HOUR_MS, HOUR_MS + 1_000),
        (ended(1_000, Phase.FAILED), HOUR_MS, HOUR_MS + 1_000),
        (ended(1_000), HOUR_MS, 0),
    ],
    ids=["under way", "too early", "late enough", "nothing differed", "failed", "was a new table"],
)
def test_rereads_of_a_table_have_a_least_interval_and_its_first_copy_does_not_count(
    newest: Request, now_ms: int, due_ms: int | None
) -> None:
    plan = paused(EventsLost("lost")).plan({ORDERS}, {}, lambda _: newest, now_ms)
    assert plan.due == ({ORDERS: "lost"} if due_ms == 0 else {})
    assert plan.later == ({ORDERS: due_ms} if due_ms else {})


def test_only_a_repetition_of_the_same_cause_waits() -> None:
    healing, last = (
        paused(EventsLost("it lost offset 12")),
        ended(1_000, changed=1, reason="it lost offset 7"),
    )
    assert healing.plan({ORDERS}, {}, lambda _: last, 2_000).later == {ORDERS: HOUR_MS + 1_000}
    healing.note(ORDERS, UnloggedChange("a statement"))
    assert healing.plan({ORDERS}, {}, lambda _: last, 2_000).due == {ORDERS: "a statement"}


def test_causes_that_alternate_wait_too() -> None:
    healing, reasons = paused(EventsLost("lost")), ("lost", "a statement")
    for at_ms, reason in enumerate(reasons):
        healing.plan({ORDERS}, {}, lambda _: ended(at_ms, changed=1, reason=reason), 2_000)  # noqa: B023
    last = ended(1, changed=1, reason="a statement")
    for cause, at_ms in ((EventsLost("lost"), 0), (UnloggedChange("a statement"), 1)):
        healing.note(ORDERS, cause)
        assert healing.plan({ORDERS}, {}, lambda _: last, 2_000).later == {ORDERS: HOUR_MS + at_ms}


def test_the_time_of_a_later_reread_is_told_once_per_pause() -> None:
    healing, newest = paused(EventsLost("lost")), ended(1_000, changed=1)
    told = []
    for cause in (None, None, EventsLost("lost")):
        if cause is not None:
            healing.note(ORDERS, cause)
        later = healing.plan({ORDERS}, {BILLS: ["a"]}, lambda _: newest, 2_000).later
        told.append(dict(later))
        for table, at_ms in later.items():
            healing.note_told(table, at_ms)
    assert told == [{ORDERS: HOUR_MS + 1_000}, {}, {ORDERS: HOUR_MS + 1_000}]
