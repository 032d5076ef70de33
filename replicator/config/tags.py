"""Define the section of the configuration about consistent points."""

from typing import Annotated, Final

from pydantic import BaseModel, Field, field_validator

from replicator.config.values import STRICT, Duration

_SHORTEST_INTERVAL: Final = 60.0


class TagsConfig(BaseModel):
    """`[tags]`: how often all tables are tagged at one source position, and how many of these tags are kept.

    `every` is in seconds; None means only on request.
    """

    model_config = STRICT

    every: Duration | None = None
    keep: Annotated[int, Field(ge=1)] = 24

    @field_validator("every")
    @classmethod
    def _not_too_often(cls, every: float | None) -> float | None:
        if every is not None and every < _SHORTEST_INTERVAL:
            raise ValueError('must be at least "1 minute": each tag adds a commit to every lake table')
        return every
