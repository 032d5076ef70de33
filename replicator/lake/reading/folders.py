"""The folders of lake tables: whether a table has its folder to itself. Without PyIceberg, which `run` does not import.

A lake table that was renamed keeps its folder, and many catalogs give the same folder to a new table with its old name.
Each of the two tables then has files in it that the other one does not know.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from replicator.lake.properties import CREATED_KEY


@dataclass(frozen=True, slots=True)
class TableFolders:
    """The folders of one table.

    Attributes:
        name: the table's name, with its namespace.
        uuid: the identity of the table, which survives a rename.
        folders: its location, and further folders that its properties name.
    """

    name: str
    uuid: str
    folders: tuple[str, ...]


def sharing(uuid: str, location: str, known: Iterable[TableFolders]) -> str | None:
    """Return the name of another table with files in `location`; None if there is none.

    `uuid` is the identity of the table whose location it is. A second table with this identity is another one: it was
    registered from the same metadata. The scheme of an address is ignored.
    """
    others = list(known)
    if (itself := next((table for table in others if table.uuid == uuid), None)) is not None:
        others.remove(itself)
    return overlapping(location, others)


def overlapping(location: str, others: Iterable[TableFolders]) -> str | None:
    """Return the name of the first table with a folder that is, contains or is inside `location`; None without one."""
    own = _plain(location)
    for table in others:
        for other in map(_plain, table.folders):
            if own.startswith(other) or other.startswith(own):
                return table.name
    return None


def contains(folder: str, location: str) -> bool:
    """Return whether a location is a folder, or is inside it. The scheme of an address is ignored."""
    return _plain(location).startswith(_plain(folder))


def outside(location: str, created: str | None, warehouse: str | None) -> str | None:
    """Return why the files at a table's location may be those of others; None if they are the table's.

    Anybody who may alter the table can give it any location. `created` is where the mirror created the table, None if
    that is not recorded. The location must be there, or be a folder in the `warehouse`, if that is a folder.
    """
    if created is not None and _is_inside(location, created):
        return None
    if warehouse is None or "/" not in warehouse:
        return "it is not where the table was created"
    if _is_inside(location, warehouse) and not _is_inside(warehouse, location):
        return None
    return f"it is not in the warehouse, {warehouse}, nor where the table was created"


def owned_hint(table: str, location: str) -> str:
    """Return the next step if a location that is outside is the table's nevertheless."""
    return (
        "if no other files are there, run in Spark: "
        f"ALTER TABLE {table} SET TBLPROPERTIES ('{CREATED_KEY}'='{location}')"
    )


def _is_inside(location: str, folder: str) -> bool:
    """Return whether a location is a folder on the same disks or store, or in it, also if links are followed."""
    own, other = local_path(location), local_path(folder)
    if own is None or other is None:
        return own is other and ".." not in location.split("/") and contains(folder, location)
    return own.resolve().is_relative_to(other.resolve())


def local_path(location: str) -> Path | None:
    """Return the absolute path of a location on this machine's disks; None for any other location."""
    found = re.fullmatch(r"(?:file:(?://[^/]*)?)?(?P<path>/.*)", location, re.DOTALL)
    return None if found is None else Path(found["path"])


def _plain(folder: str) -> str:
    """Return a folder without scheme and repeated slashes, and with a slash at its end."""
    path = re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:", "", folder)
    return re.sub(r"/+", "/", f"/{path}/")
