"""Tags in the lakes of tests: a source whose positions the test sets, and requests."""

from dataclasses import dataclass

from replicator.batch import MirrorContext
from replicator.errors import SourceUnavailable
from replicator.lake.tags import TagStore
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.common import now_ms
from replicator.model.tags import TagRecord, TagState
from replicator.runner.scheduler import Scheduler
from replicator.sources.source_positions import SourcePositions
from tests.support.lake_harness import LakeHarness


@dataclass
class GivenPositions(SourcePositions):
    """Positions of a source and its connector; None if MySQL does not answer, or nothing is confirmed."""

    binlog_end: BinlogEnd | None = None
    confirmed_end: BinlogEnd | None = None

    def end(self) -> BinlogEnd:
        if self.binlog_end is None:
            raise SourceUnavailable("MySQL does not answer")
        return self.binlog_end

    def confirmed(self) -> ConnectorOffset | None:
        end = self.confirmed_end
        return None if end is None else ConnectorOffset(end.file, end.pos)


def with_positions(lake: LakeHarness, positions: GivenPositions) -> None:
    """Let the mirrors of a lake read these positions."""

    def schedule(context: MirrorContext) -> Scheduler:
        context.quarantine.watch(context.ledger.resume_all())
        return Scheduler(context, source=positions)

    lake.schedule = schedule


def store_of(mirror: Scheduler) -> TagStore:
    return TagStore(mirror.context.lake, mirror.context.config.lake)


def request(mirror: Scheduler, name: str, *, skip_paused: bool = False) -> None:
    """Record a request as the command does. The mirror finds it in its next batch."""
    store_of(mirror).write(TagRecord(name, TagState.REQUESTED, now_ms(), skip_paused=skip_paused))
    mirror.tags.poll_now()


def recorded(mirror: Scheduler, name: str) -> TagRecord:
    return next(tag for tag in store_of(mirror).read() if tag.name == name)
