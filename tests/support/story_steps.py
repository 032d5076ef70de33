"""The steps of a random story: what happens to a mirror's source, log, process and lake."""

from dataclasses import dataclass
from typing import Literal

Where = Literal["mirror", "changelog", "both"]


@dataclass(frozen=True)
class Change:
    """The source executes random transactions: rows, keys, TRUNCATE, ALTER; the connector writes them to the log."""

    transactions: int


@dataclass(frozen=True)
class Commit:
    """The mirror reads the log up to random offsets, or to its `end`; it is killed at a failpoint before, if any."""

    end: bool
    kill_at: int | None = None


@dataclass(frozen=True)
class Restart:
    """Another process continues the mirror."""


@dataclass(frozen=True)
class Redeliver:
    """The connector is killed, and writes the last records again."""

    records: int


@dataclass(frozen=True)
class RollBack:
    """A user sets lake tables back by some snapshots."""

    table: int
    where: Where
    snapshots: int


@dataclass(frozen=True)
class Compact:
    """The files of lake tables are merged: by Spark's procedure, or by `replicator maintain`."""

    table: int
    by: Literal["spark", "maintain"]


@dataclass(frozen=True)
class UserDdl:
    """A user changes how lake tables are laid out, which changes no row; the same again undoes it."""

    table: int
    where: Where
    what: Literal["partition", "order", "properties"]


@dataclass(frozen=True)
class RecreateTopic:
    """The topic of a table is deleted with all its events, and the new one begins with a snapshot or with changes."""

    table: int
    snapshot: bool


@dataclass(frozen=True)
class AddPartition:
    """All topics get another partition. If the log does not list partitions, the mirror has read everything before."""


@dataclass(frozen=True)
class FailOver:
    """The source fails, within a transaction or between two. A replica with other binlogs becomes the source.

    The connector goes on there: it writes the last `records` again, with the replica's positions, and then the rest.

    The file number of the replica's binlog is `higher` by this much.
    """

    records: int
    higher: int


@dataclass(frozen=True)
class SnapshotAgain:
    """The connector has lost its offsets, and takes its snapshot of a replica that lags by about this many records.

    It goes on there. The file number of the replica's binlog is `higher` by this much.
    """

    records: int
    higher: int


Step = (
    FailOver
    | SnapshotAgain
    | Change
    | Commit
    | Restart
    | Redeliver
    | RollBack
    | Compact
    | UserDdl
    | RecreateTopic
    | AddPartition
)


@dataclass(frozen=True)
class Story:
    """A source with some tables, and what happens then; `seed` chooses what the steps leave open.

    If it `lists_partitions`, the log tells how many partitions a topic has now, as Kafka does; otherwise how many it
    had at its first event, as an archive does.
    """

    seed: int
    shapes: tuple[str, ...]
    partitions: int
    lists_partitions: bool
    with_schemas: bool
    strategy: str
    format_version: int
    driver_max_events: int
    gtids: bool
    steps: tuple[Step, ...]

    def text(self) -> str:
        """Return the story as a list."""
        encoding = "JSON with schemas" if self.with_schemas else "JSON without schemas"
        head = (
            f"story with seed {self.seed}: tables {', '.join(self.shapes)}; partitions {self.partitions}"
            f"{' (listed)' if self.lists_partitions else ''}; {encoding}; "
            f"strategy {self.strategy}, format version {self.format_version}; driver_max_events "
            f"{self.driver_max_events}"
        )
        lines = [head, *(f"  {number}. {step}" for number, step in enumerate(self.steps, start=1))]
        return "\n".join(lines)
