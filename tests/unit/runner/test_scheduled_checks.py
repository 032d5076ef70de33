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
from replicator.runner.scheduled_checks import ScheduledChecks, due
from replicator.verify.interruption import Interruption
from replicator.verify.results import Kind, SchemaFinding, Severity, TableResult, Verdict
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


def test_a_table_whose_check_failed_lets_others_come_first() -> None:
    assert due([A, B], checked(b=40), set(), 100, {A: 90}) == B
    assert due([A, B], checked(b=140), set(), 100, {A: 90}) == A


@dataclass
class Requests:
    """Records what is requested."""

    any_left: bool = False
    found: list[tuple[TableId, int | None, Narrowed | None]] = field(default_factory=list)

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
    with patch.object(ScheduledChecks, "_check_next", autospec=True) as check, captured_logs() as logs:
        check.side_effect = [(A, r) if isinstance(r, TableResult) else r for r in results]
        for _ in results:
            checks._polled -= 60
            checks.step(())
            assert checks._running is not None
            checks._running.exception()
            checks.step(())
    checks.close()
    return requests, [line for line in logs if line["event"] != "reading rows"], checks


def test_a_difference_is_logged() -> None:
    requests, logs, _ = steps(different())
    assert [line["log_level"] for line in logs] == ["info", "error"]
    assert (logs[1]["missing"], logs[1]["unexpected"]) == (2, 0)
    assert "verify --table shop.a --repair" in logs[1]["next"]
    assert requests.found == []


@pytest.mark.parametrize("is_schema_wrong", [False, True])
def test_a_difference_is_repaired_if_configured(*, is_schema_wrong: bool) -> None:
    schema = [SchemaFinding(Severity.DIFFERENT, "another type")] if is_schema_wrong else []
    requests, _, _ = steps(different(schema=schema), on_difference="repair")
    assert requests.found == [(A, 9, None if is_schema_wrong else PART)]


def test_what_a_repair_leaves_is_not_repaired_again_at_once() -> None:
    requests, logs, _ = steps(different(), different(), different(), on_difference="repair")
    assert len(requests.found) == 2
    told = [line["next"] for line in logs if line["event"] == "the mirror differs from the source"]
    assert [text == "it is repaired now" for text in told] == [True, False, True]


@pytest.mark.parametrize("error", [RuntimeError("no\nway"), RuntimeError()])
def test_a_check_that_fails_does_not_end_the_mirror(error: Exception) -> None:
    requests, logs, checks = steps(error, on_difference="repair")
    assert [(line["log_level"], line["reason"]) for line in logs] == [
        ("warning", str(error)[:2] or "RuntimeError")
    ]
    assert requests.found == []
    # The next one comes later.
    with patch.object(ScheduledChecks, "_check_next", autospec=True) as check:
        checks._polled -= 60
        checks.step(())
    assert not check.called


def test_a_check_that_is_interrupted_is_no_failure() -> None:
    def check(_: ScheduledChecks, __: TableId, interruption: Interruption) -> TableResult:
        interruption.event.wait(30)
        raise SourceUnavailable("the connection was ended")

    checks = ScheduledChecks(
        minimal_config(**MIRROR, verify={"every": "1 hour"}),
        Requests(),  # type: ignore[arg-type]
        threading.Event(),
    )
    checks._polled -= 60
    with (
        patch.object(ScheduledChecks, "_next", return_value=A),
        patch.object(ScheduledChecks, "_check", autospec=True, side_effect=check),
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
        Requests(any_left=state == "re-read"),  # type: ignore[arg-type]
        threading.Event(),
    )
    checks.note_backlog(has_backlog=state == "backlog")
    if state != "too early":
        checks._polled -= 60
    with patch.object(ScheduledChecks, "_check_next", autospec=True) as check:
        checks.step(())
    checks.close()
    assert not check.called
