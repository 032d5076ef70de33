"""Orphan files: files in a table's folder that no snapshot has. Only Iceberg's action deletes them, with Java.

It looks at old files only, and seldom finds one. Whether it would is read from the folder and the metadata, without
Java: where that is not certain, the action decides.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from replicator.lake.properties import CREATED_KEY
from replicator.lake.reading.folders import TableFolders, outside, owned_hint, sharing
from replicator.lake.reading.manifests import read_entries, read_manifests
from replicator.lake.reading.table_metadata import TableMetadata

_GC: Final = "gc.enabled"
_LOCAL: Final = re.compile(r"(?:file:(?://)?)?(?P<path>/(?!/).*)", re.DOTALL)
"""A location on this machine's disks. Not one with the name of a machine, which Iceberg takes for another location."""


def why_orphans_stay(
    name: str,
    uuid: str,
    location: str,
    property_of: Callable[[str], str | None],
    folders: Sequence[TableFolders] | None,
    warehouse: str | None,
) -> str | None:
    """Return why orphan files of a table are not deleted, whether it has some or not; None if they are.

    `folders` are those of all tables of the catalog, None if they are unknown; see `outside` for `warehouse`.
    """
    if property_of(_GC) == "false":
        return "the table property gc.enabled is false"
    if folders is None:
        return "the folders of the other tables are unknown"
    if (other := sharing(uuid, location, folders)) is not None:
        return f"{other} has files in the same folder, {location}"
    problem = outside(location, property_of(CREATED_KEY), warehouse)
    return problem and f"the table's location is {location}: {problem}; {owned_hint(name, location)}"


def may_have_orphans(table: TableMetadata, before_ms: int) -> bool:
    """Return whether Iceberg's action may find an orphan file that is older than `before_ms`, or may fail.

    If False, it certainly does neither. Files of statistics count as orphans, and so does every old file of a store.

    Raises:
        OSError: the folder, or a file of the metadata, cannot be read.
        ValueError: a file of the metadata is damaged.
    """
    folder = _LOCAL.fullmatch(table.values["location"])
    if folder is None or table.properties.get(_GC, "true").lower() != "true":
        return True
    left = _old_files(folder["path"], before_ms)
    references = _references(table)
    while left and (known := next(references, None)) is not None:
        if (found := _LOCAL.fullmatch(known)) is not None:
            left.discard(found["path"])
    return bool(left)


def _old_files(folder: str, before_ms: int) -> set[str]:
    """Return the files in a folder, and in those in it, that are older than `before_ms`; links count as old files."""
    found, folders = set[str](), [folder.rstrip("/")]
    # The list grows while it is read.
    for known in folders:
        with os.scandir(known) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.startswith(".") and entry.name.endswith(".crc"):
                    # Hadoop's checksum of a file, which it never lists.
                    continue
                elif entry.is_symlink() or entry.stat().st_mtime_ns // 1_000_000 < before_ms:
                    found.add(entry.path)
    return found


def _references(table: TableMetadata) -> Iterator[str]:
    """Yield the locations of all files that a table has, in an order in which most are found after few reads."""
    yield from (entry["metadata-file"] for entry in table.values.get("metadata-log") or ())
    yield table.location or ""
    yield from (snapshot.manifest_list for snapshot in table.snapshots)
    manifests = set[str]()
    for snapshot in reversed(table.snapshots):
        for manifest in read_manifests(table.files, snapshot.manifest_list):
            if manifest.path in manifests:
                continue
            manifests.add(manifest.path)
            yield manifest.path
            yield from (entry.path for entry in read_entries(table.files, manifest))
