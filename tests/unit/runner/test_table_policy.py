"""The consequences of errors for a table or for the batch."""

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from replicator.errors import (
    CommitConflict,
    ConfigError,
    DataLossError,
    DecodeError,
    FencedError,
    LakeUnavailable,
    LogUnavailable,
    RegistryRefused,
    SourceUnavailable,
    TablePaused,
    UnsupportedChange,
)
from replicator.model.table import TableId
from replicator.runner.table_policy import TableOutcome, Verdict, decide, verdict

ORDERS, USERS = TableId("shop", "orders"), TableId("shop", "users")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnsupportedChange("x"), Verdict.PAUSE),
        (DecodeError("x"), Verdict.PAUSE),
        (TablePaused("x"), Verdict.PAUSE),
        (LakeUnavailable("x"), Verdict.PROBE),
        (PySparkException("x"), Verdict.PROBE),
        (Py4JError("x"), Verdict.PROBE),
        (LogUnavailable("x"), Verdict.RAISE),
        (RegistryRefused("x"), Verdict.RAISE),
        (FencedError("x"), Verdict.RAISE),
        (ConfigError("x"), Verdict.RAISE),
        # `check_log`, which follows, finds which topic lacks events.
        (DataLossError("x"), Verdict.PROBE),
        (CommitConflict("x"), Verdict.RETRY),
        (SourceUnavailable("x"), Verdict.RETRY),
        (KeyError("x"), Verdict.PROBE),
        (OverflowError("x"), Verdict.PROBE),
        (MemoryError(), Verdict.PROBE),
    ],
)
@pytest.mark.parametrize("log_grows", [True, False])
def test_verdict_depends_on_the_class_of_the_error(
    error: Exception, expected: Verdict, log_grows: bool
) -> None:
    assert verdict(error, log_grows=log_grows) is expected


def test_decide_counts_the_events_that_pause_tables() -> None:
    paused = TablePaused("3 events", quarantined=3)
    decision = decide([TableOutcome(ORDERS, (), paused), TableOutcome(USERS, ())], log_grows=True)
    assert (decision.pause, decision.quarantined) == (((ORDERS, paused),), 3)
    assert decision.advanced == (USERS,)
    assert (decision.error, decision.outage) == (None, None)


def test_decide_reports_an_outage_only_when_all_of_several_tables_fail() -> None:
    failed = [TableOutcome(table, (), LakeUnavailable("no disk")) for table in (ORDERS, USERS)]
    outage = decide(failed, log_grows=True).outage
    assert outage is not None
    assert outage.message == "the lake refused a request of all 2 tables of the batch: no disk"
    assert decide(failed[:1], log_grows=True).outage is None
    assert decide([*failed, TableOutcome(TableId("shop", "x"), ())], log_grows=True).outage is None


def test_decide_pauses_tables_even_when_another_error_ends_the_batch() -> None:
    gone, odd = LogUnavailable("no broker"), UnsupportedChange("odd")
    decision = decide([TableOutcome(ORDERS, (), odd), TableOutcome(USERS, (), gone)], log_grows=True)
    assert decision.error is gone
    assert decision.pause == ((ORDERS, odd),)
