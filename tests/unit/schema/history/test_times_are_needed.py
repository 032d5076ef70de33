"""Why source times decide between two origins: ordinary stories whose logs are equal but for the times.

Without the times, a rule decodes events of one story wrongly, or must refuse both. See decision 53.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from replicator.model.gtid import BLOCK
from replicator.model.position import SourcePosition
from replicator.schema.history.order import VersionStart, binlog_key

T0: Final = 1_700_000_000_000
MINUTE: Final = 60_000
START: Final = 4


@dataclass
class Server:
    """A server; its transactions have numbers of one origin and block."""

    origin: str
    number: int
    file: int
    pos: int = START

    def rotate(self) -> None:
        """Begin the next binlog file."""
        self.file, self.pos = self.file + 1, START


@dataclass(frozen=True)
class Logged:
    """A definition, or a row, as the connector sends it.

    Attributes:
        version: the number of definitions of the table that the source had executed before it.
    """

    position: SourcePosition
    ts_ms: int
    version: int

    @property
    def start(self) -> VersionStart:
        return VersionStart(binlog_key(self.position), self.position.gtid, self.ts_ms)

    @property
    def without_time(self) -> tuple[object, ...]:
        return binlog_key(self.position), self.position.gtid, self.position.server_id


@dataclass
class Source:
    """Servers that replicate each other at once, and a connector, which reads `servers[at]`: one table.

    Each transaction comes a minute after the one before, and its origin's id is in all binlogs, as with MySQL.
    """

    servers: Sequence[Server]
    at: int = 0
    definitions: list[Logged] = field(default_factory=list)
    rows: list[Logged] = field(default_factory=list)

    def define(self, server: int, size: int = 100) -> None:
        self.definitions.append(self._commit(server, size))

    def row(self, server: int, size: int = 100) -> None:
        self.rows.append(self._commit(server, size))

    def _commit(self, server: int, size: int) -> Logged:
        own, here = self.servers[server], self.servers[self.at]
        logged = [*self.definitions, *self.rows]
        position = SourcePosition(f"b.{here.file:06d}", here.pos, 0, server + 1, f"{own.origin}:{own.number}")
        own.number += 1
        for each in self.servers:
            each.pos += size
        return Logged(position, T0 + MINUTE * len(logged), len(self.definitions))


def switch_over(s: Source) -> None:
    """A table is altered, and written again only after a planned switch to a replica; later A is the source again."""
    s.define(0)
    s.row(0, size=200)
    s.define(0)
    _let_read(s, 1)
    s.row(1)
    _let_read(s, 0)
    s.row(0)


def there_and_back(s: Source) -> None:
    """A table is altered when the first server has come back from its maintenance."""
    s.define(0)
    s.row(0)
    _let_read(s, 1)
    s.row(1)
    s.at = 0
    s.define(0)
    _let_read(s, 0)
    s.row(0)


def one_binlog_of_two_primaries(s: Source) -> None:
    """One server alters a table that the other one writes (also: two sources of one replica, a replication group)."""
    s.define(0, size=200)
    s.row(1)
    s.servers[0].rotate()
    s.define(0)


def switch_over_to_lower_positions(s: Source) -> None:
    """The same, after a rotation; the table had no changes yet, so its topic shows no jump of positions."""
    s.define(0)
    s.servers[0].rotate()
    s.define(0)
    s.at = 1
    s.row(1)


def altered_while_away(s: Source) -> None:
    """A replica is the source for a while, and only alters the table."""
    s.define(0)
    s.row(0)
    _let_read(s, 1)
    s.define(1)
    _let_read(s, 0)
    s.row(0)


def altered_afterwards(s: Source) -> None:
    """A server rotates its binlog; then a replica becomes the source, and alters the table."""
    s.define(0)
    s.row(0)
    s.servers[0].rotate()
    s.row(0)
    _let_read(s, 1)
    s.define(1)


def _let_read(s: Source, server: int) -> None:
    """Let the connector go on at the beginning of a new file of a server."""
    s.servers[server].rotate()
    s.at = server


Tale = Callable[[Source], None]
PAIRS: Final[tuple[tuple[Tale, Tale, int], ...]] = (
    (switch_over, there_and_back, 6),
    (one_binlog_of_two_primaries, switch_over_to_lower_positions, 900),
    (altered_while_away, altered_afterwards, 6),
)
"""Two stories, and the file number of the second server; that of the first one is 900."""
MEMBERS: Final = {"two origins": ("a", "b", 1), "a replication group": ("g", "g", BLOCK + 1)}


@pytest.fixture(params=MEMBERS)
def members(request: pytest.FixtureRequest) -> tuple[str, str, int]:
    """Provide the origins of two servers, and the first number of the second one."""
    return MEMBERS[request.param]


def told(tale: Tale, members: tuple[str, str, int], file: int) -> Source:
    first, second, number = members
    source = Source((Server(first, 1, 900), Server(second, number, file)))
    tale(source)
    return source


def versions(source: Source, starts: Sequence[VersionStart]) -> list[int]:
    """Return the version of each row, counted from 1, as `SchemaHistory.index_of` finds it."""
    numbered = [*enumerate(starts, start=1)][::-1]
    return [
        next((i for i, start in numbered if start.is_before(row.position, row.ts_ms)), 1)
        for row in source.rows
    ]


@pytest.mark.parametrize(("one", "other", "file"), PAIRS)
def test_only_times_tell_two_ordinary_stories_apart(
    one: Tale, other: Tale, file: int, members: tuple[str, str, int]
) -> None:
    sources = [told(tale, members, file) for tale in (one, other)]
    logs = [([d.without_time for d in s.definitions], [row.without_time for row in s.rows]) for s in sources]
    assert logs[0] == logs[1]
    truths = [[row.version for row in s.rows] for s in sources]
    assert truths[0] != truths[1]
    assert [versions(s, [d.start for d in s.definitions]) for s in sources] == truths
    # Without times, one of the two is decoded with a wrong definition.
    timeless = [versions(s, [replace(d.start, ts_ms=0) for d in s.definitions]) for s in sources]
    assert timeless != truths
