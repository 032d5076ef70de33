"""Count the rows of a result that do not meet its checks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.pipelines.query.definition import Action, Expectation


@dataclass(frozen=True, slots=True)
class CheckCounts:
    """What a check found.

    Attributes:
        rows: number of rows that were checked.
        failed: number of those that do not meet the condition.
    """

    name: str
    action: Action
    rows: int
    failed: int


def count_checks(rows: DataFrame, checks: Sequence[Expectation]) -> Iterator[CheckCounts]:
    """Yield what each check finds in rows."""
    meets = [F.coalesce(F.expr(f"({check.condition})"), F.lit(False)) for check in checks]
    counts = [F.count_if(~met).alias(f"n{i}") for i, met in enumerate(meets)]
    found = rows.agg(F.count(F.lit(1)).alias("rows"), *counts).collect()[0]
    for i, check in enumerate(checks):
        yield CheckCounts(check.name, check.action, int(found["rows"]), int(found[f"n{i}"]))
