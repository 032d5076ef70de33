"""Define the sections of the configuration about reading tables from the source."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from replicator.config.values import STRICT, Duration, SizeLimit


class BootstrapConfig(BaseModel):
    """`[bootstrap]`: who reads the rows that a table has when it is mirrored first, and how the mirror reads tables.

    `by` is None if it is not set: see `Config.reads_new_tables`.
    """

    model_config = STRICT

    by: Literal["mirror", "connector"] | None = None
    parallel_tables: Annotated[int, Field(ge=1, le=32)] = 2
    chunk_rows: Annotated[int, Field(ge=1)] = 250_000
    max_rows_per_second: Annotated[int, Field(ge=1)] | None = None


class HealConfig(BaseModel):
    """`[heal]`: whether the mirror reads a table again if the log cannot tell what its rows are.

    Attributes:
        mode: "auto" reads it again at once, "ask" waits for `replicator heal`.
        max_rows: a table with more rows is not read without a command; None for no limit.
        min_interval: seconds between two such re-reads of a table.
        max_binlog: bytes of the source's binlogs that the connector may send again to restore events that the log
            has lost; 0: the table is read again instead.
    """

    model_config = STRICT

    mode: Literal["auto", "ask"] = "auto"
    max_rows: Annotated[int, Field(ge=1)] | None = None
    min_interval: Duration = 3600.0
    max_binlog: SizeLimit = 2_000_000_000
