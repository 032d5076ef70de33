"""The signal that a table must wait although it has more events."""

from replicator.batch.context import TableTask
from replicator.model.batch_stats import BatchStats


class TableAwaits(Exception):  # noqa: N818 no error
    """A table has applied the events up to a point, and must wait there.

    Attributes:
        done: the tasks that were applied, with their statistics.
    """

    def __init__(self, done: list[tuple[TableTask, BatchStats]]) -> None:
        super().__init__()
        self.done = done
