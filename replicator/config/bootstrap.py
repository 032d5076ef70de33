"""Define the section of the configuration about reading tables from the source."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from replicator.config.values import STRICT


class BootstrapConfig(BaseModel):
    """`[bootstrap]`: who reads the rows that a table has when it is mirrored first, and how the mirror reads tables."""

    model_config = STRICT

    by: Literal["connector", "mirror"] = "connector"
    parallel_tables: Annotated[int, Field(ge=1, le=32)] = 2
    chunk_rows: Annotated[int, Field(ge=1)] = 250_000
    max_rows_per_second: Annotated[int, Field(ge=1)] | None = None
