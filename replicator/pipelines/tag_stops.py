"""Let refreshes stop at the positions of tags, so that results can have the tags too.

The position of a tag is the end of the source's binlog when it is chosen, so all results are before it then. The next
refresh that could pass it goes exactly there. Results stay there until the tag is complete or has failed; then they are
tagged as they are, and go on. No result is tagged earlier, so a tag that fails is in none.

A result that is past the position, because the mirror was not running or another process refreshed it, gets no tag.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from replicator.errors import ForeignChange, ForeignTable
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.tags import TagStore, has_tag
from replicator.model.tags import TagPoint, TagRecord, TagState
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.log_ends import LogEnds
from replicator.pipelines.inputs.tables import recorded_result
from replicator.pipelines.output.record import ResultRecord
from replicator.pipelines.query.names import TableName
from replicator.pipelines.service import Pipelines
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.pipelines")
_LONGEST_HOLD_S: Final = 60.0
"""How long results stay at the position of a tag that is not complete; then they go on, without it."""


@dataclass(slots=True)
class TagStops:
    """The positions at which refreshes stop.

    Attributes:
        passed: the tags at which they do not stop, or not again.
    """

    passed: set[tuple[str, int]] = field(default_factory=set)
    _since: dict[tuple[str, int], float] = field(default_factory=dict)

    def is_needed(self, pipelines: Pipelines) -> bool:
        """Return whether there is a tag at which refreshes have not stopped.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        return any(True for _ in self._waiting(pipelines))

    def limited(self, pipelines: Pipelines, ends: LogEnds) -> LogEnds:
        """Return ends of the log, with the position of the first tag as boundary if they reach it and results lack it.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        for tag, point in self._waiting(pipelines):
            boundary = Boundary(point.file, point.pos, point.gtids, closed=True)
            if not ends.boundary.covers(boundary):
                continue
            if self._stops(pipelines, tag, boundary, ends):
                name = tag.name if tag.state is TagState.COMPLETE else None
                return replace(ends, boundary=boundary, tag=name)
            self.passed.add(_key(tag))
        return ends

    def leave(self, name: str) -> None:
        """Do not stop at a tag again."""
        self.passed |= {key for key in self._since if key[0] == name}

    def _waiting(self, pipelines: Pipelines) -> Iterator[tuple[TagRecord, TagPoint]]:
        """Yield the tags at which refreshes have not stopped, the first position first."""
        records = TagStore(pipelines.lake, pipelines.config.lake).read()
        states = (TagState.STARTED, TagState.COMPLETE)
        found = [(tag, tag.point) for tag in records if tag.point is not None and tag.state in states]
        for tag, point in sorted(found, key=lambda pair: pair[1].position_key):
            if _key(tag) not in self.passed:
                yield tag, point

    def _stops(self, pipelines: Pipelines, tag: TagRecord, boundary: Boundary, ends: LogEnds) -> bool:
        """Return whether refreshes stop at a tag: results lack it, and none is past its position."""
        results = [
            found for name in pipelines.files.results if (found := _loaded(pipelines, name)) is not None
        ]
        if all(has_tag(table, tag.name) for table, _ in results):
            return False
        if (boundary.gtids is None) != (ends.boundary.gtids is None):
            # The record of the tag has no place for so long a set, and positions alone do not tell servers apart.
            return False
        if not all(pipelines.is_before(record, boundary) for _, record in results):
            return False
        since = self._since.setdefault(_key(tag), time.monotonic())
        if tag.state is TagState.STARTED and time.monotonic() > since + _LONGEST_HOLD_S:
            _LOG.warning("results do not wait longer for a tag", tag=tag.name)
            return False
        return True


def _loaded(pipelines: Pipelines, name: TableName) -> tuple[LakeTable, ResultRecord] | None:
    """Load a result with its record; None if there is none, or if its refresh tells what is wrong with it."""
    try:
        table = pipelines.tables.load(name)
        record = recorded_result(table)
    except (ForeignTable, ForeignChange):
        return None
    return None if table is None or record is None else (table, record)


def _key(tag: TagRecord) -> tuple[str, int]:
    return tag.name, tag.requested_ms
