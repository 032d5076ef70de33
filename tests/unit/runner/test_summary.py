"""The summary of a run names the tables that were read from the source."""

from dataclasses import replace

from replicator.model.common import now_ms
from replicator.model.reread import Phase, Request
from replicator.model.table import TableId
from replicator.runner.summary import RunTotals


def request(name: str, phase: Phase, ended_ms: int | None) -> Request:
    return Request("1", TableId("shop", name), "new", 1, phase, rows=1_200, ended_ms=ended_ms)


def test_summary_has_the_tables_that_were_read_in_this_run() -> None:
    totals = RunTotals(with_before=True)
    done = request("orders", Phase.DONE, now_ms() + 1)
    others = [
        request("old", Phase.DONE, 1),
        request("broken", Phase.FAILED, now_ms() + 1),
        request("big", Phase.READING, None),
        replace(done, table=TableId("shop", "items"), rows=1),
    ]
    assert totals.summary({}, [done, *others]).reread == {"shop.items": 1, "shop.orders": 1_200}
    assert totals.summary({}).reread == {}
