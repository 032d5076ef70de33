"""Define the result of one check."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

DAY_S: Final = 86_400

Status = Literal["ok", "warn", "fail"]

_SEVERITY: dict[Status, int] = {"ok": 0, "warn": 1, "fail": 2}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the report.

    Attributes:
        name: the checked subject, as `area: subject`.
        status: fail means that a mirror would not work or would lose data; warn, that it works with the described
            loss, or only for now.
        found: the actual value or state.
        next_step: the operator's next step; empty if the status is ok.
    """

    name: str
    status: Status
    found: str
    next_step: str = ""


def ok(name: str, found: str) -> CheckResult:
    """Build the result of a check that passed."""
    return CheckResult(name, "ok", found)


def warn(name: str, found: str, next_step: str) -> CheckResult:
    """Build the result of a check that a mirror can run with."""
    return CheckResult(name, "warn", found, next_step)


def fail(name: str, found: str, next_step: str) -> CheckResult:
    """Build the result of a check that a mirror cannot run with."""
    return CheckResult(name, "fail", found, next_step)


def worst(results: Iterable[CheckResult]) -> Status:
    """Return the most severe status among `results`; ok if there are none."""
    return max((result.status for result in results), key=_SEVERITY.__getitem__, default="ok")


def days(seconds: float) -> str:
    """Write a time in days, such as "1 day" or "0.5 days"."""
    number = f"{seconds / DAY_S:.3g}"
    return f"{number} {'day' if number == '1' else 'days'}"
