"""Which table a mirror checks next, and what follows from a check."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest

from replicator.errors import SourceUnavailable
from replicator.model.reread import KeySpan, Narrowed
from replicator.model.table import TableId
from replicator.model.verified import VerifiedTable
from replicator.verify.interruption import Interruption
from replicator.verify.results import Kind, SchemaFinding, Severity, TableResult, Verdict
from replicator.watch.check_thread import CheckThread, Ended, due
from replicator.watch.differences import Differences
from replicator.watch.scheduled_checks import ScheduledChecks
from tests.support.config import minimal_config
from tests.support.logs import captured_logs

A, B, C = (TableId("shop", name) for name in "abc")
MIRROR: dict[str, Any] = {
    "source": {"url": "mysql://reader@127.0.0.1:1/shop", "tables": ["shop.*"]},
    "log": {
        "kind": "kafka",
        "bootstrap_servers": "127.0.0.1:1",
        "topic_prefix": "shop",
        "connect_url": "http://127.0.0.1:1",
    },
}
PART = Narrowed("id", (KeySpan(1, 2, 2),))


def checked(**ended: int) -> Mapping[TableId, VerifiedTable]:
    return {
        TableId("shop", name): VerifiedTable(TableId("shop", name), "equal", "b.1:4", at, 1, 0)
        for name, at in ended.items()
    }


def test_the_table_whose_check_is_oldest_is_due() -> None:
    assert due([A, B, C], {}, set(), 100) == A
    assert due([A, B, C], checked(a=50), set(), 100) == B
    assert due([A, B, C], checked(a=50, b=20, c=40), set(), 100) == B
    assert due([A, B, C], checked(a=150, b=120, c=101), set(), 100) is None
    assert due([A, B, C], checked(a=150, b=120, c=101), {A}, 100) == A
    assert due([], {}, {A}, 100) is None


@dataclass
class Requests:
    """Records what is requested."""

    is_busy: bool = False
    found: list[tuple[TableId, int | None, Narrowed | None]] = field(default_factory=list)
    paused: list[tuple[TableId, Exception]] = field(default_factory=list)

    def pause(self, table: TableId, cause: Exception) -> None:
        self.paused.append((table, cause))

    def request(
        self, tables: Sequence[TableId], _: str, max_rows: int | None, narrowed: Mapping[TableId, Narrowed]
    ) -> None:
        self.found += [(table, max_rows, narrowed.get(table)) for table in tables]


def different(**options: Any) -> TableResult:
    return TableResult("shop.a", Verdict.DIFFERENT, counts={Kind.MISSING: 2}, narrowed=PART, **options)


def steps(
    *results: TableResult | Exception | None, on_difference: str = "report"
) -> tuple[Requests, list[Any], ScheduledChecks]:
    """Let checks end with results, and return what followed."""
    config = minimal_config(
        **MIRROR, heal={"max_rows": 9}, verify={"every": "1 hour", "on_difference": on_difference}
    )
    requests = Requests()
    checks = ScheduledChecks(config, requests, threading.Event())  # type: ignore[arg-type]
    with (
        patch.object(CheckThread, "check_next", autospec=True) as check,
        patch.object(CheckThread, "record", autospec=True) as record,
        captured_logs() as logs,
    ):
        record.side_effect = lambda thread: Ended([]) if thread._differences.take_changed() else None
        check.side_effect = [Ended([(A, r)]) if isinstance(r, TableResult) else r for r in results]
        for _ in results:
            checks._polled -= 60
            checks.step(())
            assert checks._running is not None
            checks._running.exception()
            checks.step(())
            if checks._differences.is_unrecorded:
                checks.step(())
                checks._running.result(10)
                checks.step(())
                assert not checks._differences.is_unrecorded
    checks.close()
    return requests, [line for line in logs if line["event"] != "reading rows"], checks


@pytest.mark.parametrize("is_schema_wrong", [False, True])
def test_a_difference_is_repaired_if_configured(*, is_schema_wrong: bool) -> None:
    schema = [SchemaFinding(Severity.DIFFERENT, "another type")] if is_schema_wrong else []
    requests, _, _ = steps(different(schema=schema), on_difference="repair")
    assert requests.found == [(A, 9, None if is_schema_wrong else PART)]


def test_a_table_that_differs_again_within_an_hour_is_paused() -> None:
    requests, logs, _ = steps(different(), different(), on_difference="repair")
    assert len(requests.found) == 1
    told = [line["next"] for line in logs if line["event"] == "the mirror differs from the source"]
    assert told == ["it is repaired now", "run: replicator heal shop.a"]
    assert [(table, "2 rows missing" in str(cause)) for table, cause in requests.paused] == [(A, True)]


def test_a_check_of_the_whole_table_may_find_more_than_the_rows_that_changed_recently() -> None:
    requests = Requests()
    found = Differences(minimal_config(**MIRROR), requests)  # type: ignore[arg-type]
    found.found(A, different(), is_look=True)
    found.found(A, different())
    assert (len(requests.found), requests.paused) == (2, [])
    found.found(A, different())
    assert (len(requests.found), [table for table, _ in requests.paused]) == (2, [A])
    record = found.of(A)
    assert (record.differences, record.cause) == (3, "2 rows missing")
    other = Differences(minimal_config(**MIRROR), requests)  # type: ignore[arg-type]
    other.load(found.take_changed())
    assert other.of(A) == record


def test_rows_that_changed_recently_are_compared_unless_they_are_being_corrected() -> None:
    checks = ScheduledChecks(minimal_config(**MIRROR), Requests(), threading.Event())  # type: ignore[arg-type]
    checks._differences.corrected[B] = True
    checks.note_committed({A, B, C})
    checks._next_look -= 60
    with patch.object(CheckThread, "look", autospec=True, return_value=None) as look:
        checks.step({C})
        checks.close()
    assert look.call_args.args[1] == {A}


@pytest.mark.parametrize("error", [RuntimeError("no\nway"), RuntimeError()])
def test_a_check_that_fails_does_not_end_the_mirror(error: Exception) -> None:
    requests, logs, checks = steps(error, on_difference="repair")
    assert [(line["log_level"], line["reason"]) for line in logs] == [
        ("warning", str(error)[:2] or "RuntimeError")
    ]
    assert requests.found == []
    # The next one comes later.
    with patch.object(CheckThread, "check_next", autospec=True) as check:
        checks._polled -= 60
        checks.step(())
    assert not check.called


def test_a_check_that_is_interrupted_is_no_failure() -> None:
    def check(_: CheckThread, __: TableId, interruption: Interruption) -> TableResult:
        interruption.event.wait(30)
        raise SourceUnavailable("the connection was ended")

    checks = ScheduledChecks(
        minimal_config(**MIRROR, verify={"every": "1 hour"}),
        Requests(),  # type: ignore[arg-type]
        threading.Event(),
    )
    checks._polled -= 60
    with (
        patch.object(CheckThread, "_next", return_value=A),
        patch.object(CheckThread, "_check", autospec=True, side_effect=check),
        captured_logs() as logs,
    ):
        checks.step(())
        checks.note_backlog(has_backlog=True)
        assert checks._running is not None
        assert checks._running.result(10) is None
        checks.step(())
    assert [line for line in logs if line["log_level"] != "info"] == []
    checks.close()


def test_lake_and_source_are_asked_less_often_while_nothing_is_due() -> None:
    _, logs, checks = steps(None)
    assert logs == []
    # A tenth of an hour is more than five minutes.
    assert 290 < checks._polled - time.monotonic() <= 300


@pytest.mark.parametrize("state", ["backlog", "re-read", "too early"])
def test_no_check_begins_while_there_is_other_work(state: str) -> None:
    checks = ScheduledChecks(
        minimal_config(**MIRROR, verify={"every": "1 hour"}),
        Requests(is_busy=state == "re-read"),  # type: ignore[arg-type]
        threading.Event(),
    )
    checks.note_backlog(has_backlog=state == "backlog")
    if state != "too early":
        checks._polled -= 60
    with patch.object(CheckThread, "check_next", autospec=True) as check:
        checks.step(())
    checks.close()
    assert not check.called


def test_looks_and_checks_of_whole_tables_take_turns() -> None:
    checks = ScheduledChecks(minimal_config(**MIRROR), Requests(), threading.Event())  # type: ignore[arg-type]
    begun = []
    with (
        patch.object(CheckThread, "look", return_value=Ended([], is_look=True)),
        patch.object(CheckThread, "check_next", return_value=Ended([])),
    ):
        for _ in range(4):
            checks.note_committed({A})
            checks._polled -= 60
            checks._next_look -= 60
            checks.step(())
            begun.append(checks._is_look)
            assert checks._running is not None
            checks._running.result(10)
            checks.step(())
    checks.close()
    assert begun == [True, False, True, False]
