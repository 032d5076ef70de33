"""Define the sections of the configuration about maintenance."""

from typing import Annotated, Final

from pydantic import BaseModel, Field, field_validator

from replicator.config.values import STRICT, Duration, Size

_SHORTEST_ORPHAN_AGE: Final = 3600.0


class MaintenanceConfig(BaseModel):
    """`[maintenance]`: when files are merged, and when snapshots and orphan files are deleted.

    Times are in seconds, sizes in bytes. `max_share` is the part of the time that it takes at most while batches follow
    each other without a pause.
    """

    model_config = STRICT

    enabled: bool = True
    merge_files: Annotated[int, Field(ge=2)] = 10
    target_file_size: Size = 128_000_000
    delete_ratio: Annotated[float, Field(gt=0, le=1)] = 0.1
    max_snapshots: Annotated[int, Field(ge=1)] = 1000
    snapshot_age: Duration = 5 * 86_400.0
    orphan_age: Duration = 3 * 86_400.0
    slice_time: Duration = 10.0
    slice_bytes: Size = 500_000_000
    max_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    max_lag: Duration = 60.0

    @field_validator("orphan_age")
    @classmethod
    def _longer_than_a_batch(cls, age: float) -> float:
        if age < _SHORTEST_ORPHAN_AGE:
            raise ValueError(
                'must be at least "1 hour": files of a running batch have no snapshot yet, and must not be deleted'
            )
        return age


class TableMaintenanceConfig(BaseModel):
    """`[[table]] maintenance`: settings of `[maintenance]` for one table; None means the value of `[maintenance]`."""

    model_config = STRICT

    enabled: bool | None = None
    merge_files: Annotated[int, Field(ge=2)] | None = None
    target_file_size: Size | None = None
    delete_ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    max_snapshots: Annotated[int, Field(ge=1)] | None = None
    snapshot_age: Duration | None = None
