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
)
"""Names and lake types of the fields of the struct column that a changelog has beside the source's columns."""


def change_column(names: Iterable[str]) -> str:
    """Return the name of the changelog's struct column.

    It is ``_change``, prefixed with further underscores while a source column has that name.
    """
    taken = {name.lower() for name in names}
    name = "_change"
    while name in taken:
        name = "_" + name
    return name
