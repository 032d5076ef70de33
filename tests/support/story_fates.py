"""What happened to the tables of a story, and the reasons for which they may pause."""

from dataclasses import dataclass, field
from typing import Final

ROLLED_BACK: Final = "was rolled back or replaced"
NO_SNAPSHOT: Final = "does not begin with a snapshot"
ADDED_PARTITION: Final = "changes of one row may be in two of them"
INTERRUPTED: Final = "interrupted when another server became the source"
NOT_READ: Final = ("its topic has several partitions",)
"""Part of the reason for which a table of a divided topic pauses at a repeated snapshot without a source."""


@dataclass
class Fate:
    """What happened to a table, and what it therefore may be.

    Attributes:
        pauses: parts of the reasons for which it may pause.
        must_pause: the reason if nothing but a pause is right.
        lost: whether the log lost events that the changelog may lack.
        unsettled: whether its rows are older than its marker until the mirror notices a rollback.
        since: number of records of the source before the first one of its topic.
        ended: the transactions that a fail-over may have interrupted: the last ones of a binlog file.
    """

    pauses: set[str] = field(default_factory=set)
    must_pause: str | None = None
    lost: bool = False
    unsettled: bool = False
    since: int = 0
    ended: set[str] = field(default_factory=set)

    def note_repeated_snapshot(self, *, is_divided: bool) -> None:
        """Note that the connector took its snapshot again; `is_divided`: the topic has several partitions."""
        if self.must_pause == NO_SNAPSHOT:
            # The mirror may not have noticed that rows were missing, and the snapshot has them.
            self.must_pause = None
        if is_divided:
            self.pauses |= set(NOT_READ)

    def note_recreated_topic(self, since: int, *, is_divided: bool) -> None:
        """Note that the topic was recreated; `since` is the number of records of the source before its first one."""
        self.lost, self.since = True, since
        if is_divided:
            self.pauses |= set(NOT_READ)
