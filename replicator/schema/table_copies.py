"""Recognize copies by which gh-ost and pt-online-schema-change alter a table: they replace it with the same rows."""

from typing import Final

from replicator.model.table import TableId

_ENDS: Final = ("_gho", "_new")
_LONGEST_NAME: Final = 64
"""Maximum length of a table's name in MySQL, to which the tools shorten the table's name within the copy's."""


def is_copy_of(other: TableId, table: TableId) -> bool:
    """Return whether a tool has made `other` as a copy of `table`, judging by its name.

    The names are `_orders_gho` and `_orders_new`; pt-online-schema-change adds underscores in front if the name is not
    free. The tools' other helper tables, such as `_orders_old`, have other rows.
    """
    name, original = other.name.casefold(), table.name.casefold()
    end = next((end for end in _ENDS if name.endswith(end)), None)
    if end is None or not name.startswith("_") or other.database.casefold() != table.database.casefold():
        return False
    middle = name.removesuffix(end)
    # The table's own name may begin with underscores too.
    candidates = (middle[count:] for count in range(1, len(middle)) if set(middle[:count]) == {"_"})
    is_short = len(other.name) >= _LONGEST_NAME
    return any(c == original or (is_short and original.startswith(c)) for c in candidates)
