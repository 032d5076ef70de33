"""Define the sections of the configuration about reading tables from the source."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from replicator.config.secrets import Secret
from replicator.config.values import STRICT, Duration, ReplicaUrl


class BootstrapConfig(BaseModel):
    """`[bootstrap]`: who reads the rows that a table has when it is mirrored first, and how the mirror reads tables.

    `by` is None if it is not set: see `Config.reads_new_tables`.

    Attributes:
        max_replica_lag: seconds; while a replica is further behind, no rows are read; None for no limit.
        replica_urls: the replicas that count, besides the source if it is one.
        replica_password: their password; None for that of the source.
    """

    model_config = STRICT

    by: Literal["mirror", "connector"] | None = None
    parallel_tables: Annotated[int, Field(ge=1, le=32)] = 2
    chunk_rows: Annotated[int, Field(ge=1)] = 250_000
    max_rows_per_second: Annotated[int, Field(ge=1)] | None = None
    max_replica_lag: Duration | None = None
    replica_urls: tuple[ReplicaUrl, ...] = ()
    replica_password: Secret | None = None

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if self.replica_urls and self.max_replica_lag is None:
            raise ValueError(
                'replica_urls has no effect without max_replica_lag; set it, as in max_replica_lag = "5 seconds"'
            )
        if self.replica_password is not None and not self.replica_urls:
            raise ValueError("replica_password has no effect without replica_urls; remove it")
        return self


class HealConfig(BaseModel):
    """`[heal]`: whether the mirror reads a table again if the log cannot tell what its rows are.

    Attributes:
        mode: "auto" reads it again at once, "ask" waits for `replicator heal`.
        max_rows: a table with more rows is not read without a command; None for no limit.
        min_interval: seconds after a re-read of a table before it is read again for the same cause without a
            command; its first copy does not count.
    """

    model_config = STRICT

    mode: Literal["auto", "ask"] = "auto"
    max_rows: Annotated[int, Field(ge=1)] | None = None
    min_interval: Duration = 3600.0
