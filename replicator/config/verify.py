"""Define the section of the configuration about scheduled checks."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, field_validator

from replicator.config.values import STRICT, Duration, TablePattern

_SHORTEST_INTERVAL: Final = 60.0


class VerifyConfig(BaseModel):
    """`[verify]`: how often the mirror compares its tables with the source, and what follows from a difference.

    Without the section, `DEFAULT_VERIFY` applies.

    Attributes:
        enabled: whether a running mirror compares anything: recently changed rows, and tables as `every` says.
        every: seconds between two checks of a table as a whole; None means only by `replicator verify`.
        on_difference: "report" logs it, "repair" also reads the table again from the source, where rows differ.
        max_rows_per_second: the source is read at this rate at most.
        exclude: patterns of tables that are not checked on schedule.
    """

    model_config = STRICT

    enabled: bool = True
    every: Duration | None = None
    on_difference: Literal["report", "repair"] = "report"
    max_rows_per_second: Annotated[int, Field(ge=1)] = 100_000
    exclude: tuple[TablePattern, ...] = ()

    @field_validator("every")
    @classmethod
    def _not_too_often(cls, every: float | None) -> float | None:
        if every is not None and every < _SHORTEST_INTERVAL:
            raise ValueError('must be at least "1 minute"')
        return every


DEFAULT_VERIFY: Final = VerifyConfig.model_validate(
    {"every": "1 day", "on_difference": "repair", "max_rows_per_second": 400}
)
"""What applies without the section: each table about once a day, and 100 recently changed rows a second beside it."""
