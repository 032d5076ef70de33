"""The changelog's columns and kinds of changes, and which of its rows do not follow the earlier ones.

Usually each commit of a changelog adds changes of later offsets, and the next commit of the mirror applies them. Three
kinds of commits differ: a re-read adds the differences that it found, a replay of quarantined events adds changes of
earlier offsets, and a topic that was recreated begins at offset 0 again. These are restatements. Readers that continue
by offsets must know of them, and so must readers that join the rows of a mirror with later changes. So the changelog
has its newest restatement as a property, and the mirror that of the changelog whose rows it has.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from replicator.model.recorded import Record


class RowKind(StrEnum):
    """The kinds of changelog rows: four with a row image, and TRUNCATE without one."""

    INSERT = "INSERT"
    UPDATE_BEFORE = "UPDATE_BEFORE"
    UPDATE_AFTER = "UPDATE_AFTER"
    DELETE = "DELETE"
    TRUNCATE = "TRUNCATE"


NET: Final = "net"
"""Column in the net changes of a table without a key: number of insertions of a row minus number of its deletions."""

CHANGE_FIELDS: Final = (
    ("kind", "string"),
    ("op", "string"),
    ("source_ts", "timestamptz"),
    ("file", "string"),
    ("pos", "long"),
    ("row", "int"),
    ("server_id", "long"),
    ("gtid", "string"),
    ("partition", "int"),
    ("offset", "long"),
    ("commit", "long"),
)
"""Names and lake types of the fields of the struct column that a changelog has beside the source's columns.

`commit` is the number of the changelog's commit (`CommitMarker.sequence`): changes of one key were applied in the order
of `commit` and `offset`, whatever topic they came from, and whether or not they are differences that a re-read found.
"""

FIRST_FIELDS: Final = frozenset(name for name, _ in CHANGE_FIELDS[:-1])
"""The fields that changelogs of all versions have; those of earlier versions lack `commit` until they are written."""

NOT_APPLIED: Final = 0
"""`commit` of a replayed change that the mirror did not get, because its key had changed since."""


def change_column(names: Iterable[str]) -> str:
    """Return the name of the changelog's struct column.

    It is ``_change``, prefixed with further underscores while a source column has that name.
    """
    taken = {name.lower() for name in names}
    name = "_change"
    while name in taken:
        name = "_" + name
    return name


RESTATED_KEY: Final = "replicator.restated"
"""Table property of a changelog and its mirror: the newest `Restatement` that the table contains."""
RECREATED_TOPIC: Final = "topic"
"""`kind` of a restatement without rows: a topic was recreated, and its offsets begin again."""


@dataclass(frozen=True, slots=True)
class Restatement(Record):
    """A commit of a changelog whose rows do not follow the earlier ones in the order of the log.

    Attributes:
        kind: what it was, such as ``reread-1a2b``.
        commit: number of the changelog's commit (`CommitMarker.sequence`).
        before: `id` of the restatement before it; None for the first one.
        topics: how often a topic was recreated so far.
    """

    WHAT = "the record of a re-read in a table"
    SEPARATORS = (",", ":")
    kind: str
    commit: int
    before: str | None = None
    topics: int = 0
    number: int = 0

    @property
    def id(self) -> str:
        """Identifies it in the changelog."""
        return f"{self.kind}@{self.number}"


def restated(text: str | None) -> Restatement | None:
    """Return the restatement in a table property; None if the table has none."""
    return None if text is None else Restatement.from_json(text)


def next_restatement(
    changelog: str | None, mirror: str | None, kind: str, commit: int, *, recreates_topic: bool = False
) -> str:
    """Return the property of a changelog whose commit number `commit` is a restatement.

    `changelog` and `mirror` are the properties of both tables before. If the mirror never got the rows of the same
    restatement, because the process was killed, this commit continues it.
    """
    last, known = restated(changelog), restated(mirror)
    if last is not None and last.kind == kind and last != known:
        return replace(last, commit=commit).to_json()
    topics = 0 if last is None else last.topics
    before, number = (None, 1) if last is None else (last.id, last.number + 1)
    return Restatement(kind, commit, before, topics + int(recreates_topic), number).to_json()


def followed_by_mirror(changelog: str | None, mirror: str | None) -> str | None:
    """Return the property of a mirror that gets the rows of the changelog's newest restatement.

    It stays as it is if the mirror lacks an earlier one: then it differs from the changelog until a re-read.
    """
    last, known = restated(changelog), restated(mirror)
    if last is None:
        return mirror
    return changelog if (None if known is None else known.id) in (last.before, last.id) else mirror
