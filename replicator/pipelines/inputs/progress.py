"""How far a result has the changes of an input, as a part of what it records."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from replicator.model.recorded import Count, Part


@dataclass(frozen=True, slots=True)
class InputProgress(Part):
    """The changes of an input that a result has.

    A changelog's commit has changes from before and after a boundary. The ones after it are held: a result has all
    changes up to a commit, without those that are held. In a partition of the log, these follow all others.

    Attributes:
        table: Iceberg's UUID of the table with the changes; of the input itself if it has no changelog.
        commit: number of the newest commit of it (`CommitMarker.sequence`) of which the result has changes.
        held: partition of the log → the first offset that is held.
        held_commit: the first commit with a change that is held; None if none is.
        steps_at: binlog key of the newest statement of the source that the result has; see `SchemaSteps`.
    """

    WHAT = "the progress of an input"
    table: str
    commit: Count = 0
    held: Mapping[int, int] = field(default_factory=dict)
    held_commit: Count | None = None
    steps_at: int = -1

    @property
    def first_commit(self) -> int:
        """The first commit that may have changes that the result lacks."""
        return self.commit + 1 if self.held_commit is None else min(self.commit + 1, self.held_commit)
