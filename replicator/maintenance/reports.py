"""What maintenance steps report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from replicator.maintenance.plan import Step
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.maintenance")


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did.

    Attributes:
        rewritten: number of files that were replaced; of snapshots or orphan files that were deleted.
        added: number of files that replaced them.
        bytes: size of the replaced files, if known.
        complete: False if a limit stopped the step early.
        skipped: why the step does not apply to the table; None if it does.
    """

    step: Step
    rewritten: int
    added: int = 0
    bytes: int = 0
    complete: bool = True
    skipped: str | None = None


def log_steps(table: str, reports: Sequence[StepReport], seconds: float) -> None:
    """Log what was done for a lake table."""
    _LOG.info(
        "maintained",
        table=table,
        steps={str(report.step): f"{report.rewritten} -> {report.added}" for report in reports},
        bytes=sum(report.bytes for report in reports),
        seconds=round(seconds, 3),
    )
