"""What maintenance steps report."""

from dataclasses import dataclass

from replicator.maintenance.plan import Step


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
