"""Decide what a table's error in a batch means: for the table, or for the whole batch. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from replicator.batch import TableTask
from replicator.errors import (
    ConfigError,
    DataLossError,
    DecodeError,
    FencedError,
    LakeUnavailable,
    LogError,
    Remedy,
    ReplicatorError,
    SchemaError,
    TablePaused,
)
from replicator.jvm.spark import first_line
from replicator.model.batch_stats import BatchStats
from replicator.model.table import TableId

TableError = SchemaError | DecodeError | TablePaused
"""An error that a retry cannot fix, and that concerns one table only."""


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What one table's tasks in a batch resulted in.

    Attributes:
        done: the tasks that were committed, and the statistics of their events.
        error: the error that ended the others; None if all were committed, or if the others must wait.
        seconds: how long the tasks took.
    """

    table: TableId
    done: Sequence[tuple[TableTask, BatchStats]]
    error: Exception | None = None
    seconds: float = 0.0


class Verdict(Enum):
    """The consequence of an error."""

    PAUSE = auto()
    """The table is paused."""
    RETRY = auto()
    """The table is retried later."""
    PROBE = auto()
    """The table is retried later, unless the log or the lake do not answer: the cause may concern all tables."""
    RAISE = auto()
    """The error concerns all tables, and ends the batch."""


def verdict(error: Exception, *, log_grows: bool) -> Verdict:
    """Return the consequence of an error of one table's tasks; an error of no known class concerns that table only.

    If the log may still grow, a missing definition may still arrive: after an outage of the broker, a table's events
    may be written before it.
    """
    match error:
        case SchemaError(remedy=Remedy.WAIT) if log_grows:
            return Verdict.RETRY
        case SchemaError() | DecodeError() | TablePaused():
            return Verdict.PAUSE
        case ReplicatorError(remedy=Remedy.WAIT):
            return Verdict.RETRY
        case FencedError() | ConfigError():
            return Verdict.RAISE
        case LogError() if not isinstance(error, DataLossError):
            return Verdict.RAISE
    return Verdict.PROBE


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """The consequences of one batch.

    Attributes:
        advanced: tables that made progress, or have nothing left to do; their earlier failures are forgotten.
        pause, retry, probe: tables with the verdict of that name, and the error.
        error: the error that ends the batch.
        outage: the error that ends the batch unless another table shows that the lake answers, because a request to the
            lake failed for all of several tables.
        quarantined: number of quarantined events that pause their tables.
    """

    advanced: tuple[TableId, ...]
    pause: tuple[tuple[TableId, TableError], ...]
    retry: tuple[tuple[TableId, Exception], ...]
    probe: tuple[tuple[TableId, Exception], ...]
    error: Exception | None
    outage: LakeUnavailable | None
    quarantined: int


def decide(outcomes: Sequence[TableOutcome], *, log_grows: bool) -> BatchDecision:
    """Decide the consequences of a batch from the outcomes of all its tables."""
    failures = [
        (outcome.table, outcome.error, verdict(outcome.error, log_grows=log_grows))
        for outcome in outcomes
        if outcome.error is not None
    ]
    pause = [(t, e) for t, e, v in failures if v is Verdict.PAUSE and isinstance(e, TableError)]
    probe = [(t, e) for t, e, v in failures if v is Verdict.PROBE]
    return BatchDecision(
        advanced=tuple(o.table for o in outcomes if o.done or o.error is None),
        pause=tuple(pause),
        retry=tuple((t, e) for t, e, v in failures if v is Verdict.RETRY),
        probe=tuple(probe),
        error=next((e for _, e, v in failures if v is Verdict.RAISE), None),
        outage=_outage([e for _, e in probe], len(outcomes)),
        quarantined=sum(e.quarantined for _, e in pause if isinstance(e, TablePaused)),
    )


def _outage(errors: Sequence[Exception], tables: int) -> LakeUnavailable | None:
    refused = [e for e in errors if isinstance(e, LakeUnavailable)]
    if tables == 1 or len(refused) < tables:
        return None
    return LakeUnavailable(
        f"the lake refused a request of all {tables} tables of the batch: {first_line(refused[0])}",
        "check that the lake's catalog and warehouse can be written to",
    )
