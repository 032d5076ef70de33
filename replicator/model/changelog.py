"""Change kinds and the metadata columns of changelog rows."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final


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
