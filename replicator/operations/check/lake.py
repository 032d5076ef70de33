"""Check that the lake is writable, and that this mirror may use its catalog."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyiceberg.table import Table

from replicator.config import Config, LakeConfig
from replicator.errors import ReplicatorError
from replicator.lake.reader import catalog_properties, newest_marker, open_catalog, tables_in
from replicator.lake.row_counts import total
from replicator.model.table import SOURCE_KEY
from replicator.operations.check.result import CheckResult, fail, listing, ok, warn

_MANY: Final = 10
"""A table has too many files if it has this many times more than are merged into one."""
_SMALL: Final = 8
"""Files are small if their average size is less than this part of the target size."""


def check_lake(config: Config) -> Iterator[CheckResult]:
    """Run every check of the lake. Leaves no files behind."""
    yield from _warehouse(config.lake)
    yield from _catalog(config)


def _warehouse(lake: LakeConfig) -> Iterator[CheckResult]:
    if lake.warehouse is None:
        return
    if "://" in lake.warehouse:
        yield _remote_warehouse(lake, lake.warehouse)
    else:
        yield _folder("lake: warehouse", Path(lake.warehouse.removeprefix("file:")))


def _folder(name: str, folder: Path) -> CheckResult:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        return fail(name, f"{existing} is a file", "name a folder, or move the file")
    if not os.access(existing, os.W_OK | os.X_OK):
        return fail(
            name, f"{existing} is not writable for this user", "change its owner, or name another folder"
        )
    return ok(name, f"{folder}" + ("" if existing == folder else " (will be created)"))


def _remote_warehouse(lake: LakeConfig, warehouse: str) -> CheckResult:
    from pyiceberg.io import load_file_io  # noqa: PLC0415 - heavy, and most lakes are folders

    probe = f"{warehouse.rstrip('/')}/.replicator-check-{uuid.uuid4().hex}"
    try:
        io = load_file_io(catalog_properties(lake), probe)
        with io.new_output(probe).create() as stream:
            stream.write(b"replicator check")
        io.delete(probe)
    except Exception as error:  # noqa: BLE001 - each store has its own errors, and any of them is the answer
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return fail(
            "lake: warehouse", f"{warehouse}: {reason}", "check lake.warehouse and its keys in lake.options"
        )
    return ok("lake: warehouse", f"{warehouse} is writable")


def _catalog(config: Config) -> Iterator[CheckResult]:
    name = "lake: catalog"
    file = config.lake.catalog_file
    if file is not None and not file.exists():
        place = _folder(name, file.parent)
        yield place if place.status == "fail" else ok(name, f"{file} (will be created)")
        return
    try:
        with open_catalog(config.lake) as catalog:
            namespaces = [".".join(parts) for parts in catalog.list_namespaces()]
            mirrors = list(tables_in(catalog, config.lake.namespace).values())
            owners = {marker.mirror for table in mirrors if (marker := newest_marker(table)) is not None}
            others = (config.lake.changes_namespace, config.lake.ops_namespace)
            tables = [*mirrors, *(table for other in others for table in tables_in(catalog, other).values())]
            scattered = [".".join(table.name()) for table in tables if _has_small_files(config, table)]
    except ReplicatorError as error:
        yield fail(name, error.message, error.hint or "check [lake]")
        return
    if file is not None and not os.access(file, os.W_OK):
        yield fail(name, f"{file} is not writable for this user", "change its owner, or name another file")
        return
    yield ok(name, f"opens; namespaces: {', '.join(sorted(namespaces)) or 'none yet'}")
    yield from _owner(config, owners)
    if scattered:
        yield warn(
            "lake: files",
            f"many small files, which are slow to read: {listing(scattered)}",
            "run: replicator maintain -c FILE",
        )


def _owner(config: Config, owners: set[str]) -> Iterator[CheckResult]:
    others = sorted(owners - {config.mirror.name})
    if others:
        yield fail(
            "lake: namespace",
            f"{config.lake.namespace} belongs to the mirror {', '.join(others)}",
            "choose another lake.namespace; each mirror needs its own",
        )
    elif owners:
        yield ok("lake: namespace", f"{config.lake.namespace} belongs to this mirror")


def _has_small_files(config: Config, table: Table) -> bool:
    """Return whether a table of a mirror has many files, and they are small."""
    source = table.properties.get(SOURCE_KEY)
    settings = config.maintenance if source is None else config.table(source).maintenance
    snapshot = table.current_snapshot()
    data, deletes = total(snapshot, "total-data-files"), total(snapshot, "total-delete-files")
    if max(data, deletes) <= _MANY * settings.merge_files or newest_marker(table) is None:
        return False
    return total(snapshot, "total-files-size") / (data + deletes) < settings.target_file_size / _SMALL
