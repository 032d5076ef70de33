"""The state of a model source at every position between two transactions."""

import copy
from bisect import bisect_left
from dataclasses import dataclass, field

from replicator.model.binlog import BinlogEnd
from replicator.model.position import FILE_SHIFT
from tests.oracle.model import Source, SourceTable


@dataclass(frozen=True)
class Boundary:
    """A position after a transaction, and the tables there."""

    file: int
    pos: int
    tables: dict[str, SourceTable]

    @property
    def position_key(self) -> int:
        return (self.file << FILE_SHIFT) + self.pos

    @property
    def end(self) -> BinlogEnd:
        return BinlogEnd(f"mysql-bin.{self.file:06d}", self.pos)


@dataclass
class RecordedSource:
    """Executes the transactions of a source one by one, and keeps its state after each."""

    source: Source
    boundaries: list[Boundary] = field(default_factory=list)

    def run(self, transactions: int) -> None:
        self._note()
        for _ in range(transactions):
            self.source.run(1)
            self._note()

    def at_or_after(self, position_key: int) -> list[Boundary]:
        """Return the boundaries from a position on."""
        keys = [b.position_key for b in self.boundaries]
        return self.boundaries[bisect_left(keys, position_key) :]

    def _note(self) -> None:
        file, pos = self.source.position
        # An event begins at its position, so the end of the binlog is behind it.
        boundary = Boundary(file, pos + 1, {t.name: copy.deepcopy(t) for t in self.source.tables})
        if self.boundaries and self.boundaries[-1].position_key == boundary.position_key:
            self.boundaries.pop()
        self.boundaries.append(boundary)
