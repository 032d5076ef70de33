"""What a change is called, and what a changelog row says about it."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final


class RowKind(StrEnum):
    """The kinds of normalized records: four with a row image, and TRUNCATE, which has none."""

    INSERT = "INSERT"
    UPDATE_BEFORE = "UPDATE_BEFORE"
    UPDATE_AFTER = "UPDATE_AFTER"
    DELETE = "DELETE"
    TRUNCATE = "TRUNCATE"


NET: Final = "net"
"""In net changes of a table without a key, the column that says how often a row came, less how often it went."""

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
"""Names and lake types of the struct column that each changelog row has beside the source's columns."""


def change_column(names: Iterable[str]) -> str:
    """The name of that struct column: ``_change``, with more underscores where a source column is called so."""
    taken = {name.lower() for name in names}
    name = "_change"
    while name in taken:
        name = "_" + name
    return name
