"""What one check found."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]

_SEVERITY: dict[Status, int] = {"ok": 0, "warn": 1, "fail": 2}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the report.

    Attributes:
        name: what was looked at, as `area: thing`.
        status: fail means that a mirror cannot work or would lose data; warn, that it works with a loss that
            is named, or only for now.
        found: what there is.
        next_step: what to do; empty when the status is ok.
    """

    name: str
    status: Status
    found: str
    next_step: str = ""


def ok(name: str, found: str) -> CheckResult:
    """A check that is content."""
    return CheckResult(name, "ok", found)


def warn(name: str, found: str, next_step: str) -> CheckResult:
    """A check that a mirror can live with."""
    return CheckResult(name, "warn", found, next_step)


def fail(name: str, found: str, next_step: str) -> CheckResult:
    """A check that a mirror cannot live with."""
    return CheckResult(name, "fail", found, next_step)


def worst(results: Iterable[CheckResult]) -> Status:
    """The gravest status among `results`; ok when there are none."""
    return max((result.status for result in results), key=_SEVERITY.__getitem__, default="ok")


def listing(names: Iterable[str], most: int = 5) -> str:
    """Names for a sentence: the first few, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
