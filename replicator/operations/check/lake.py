"""Check that the lake is writable, and that this mirror may use its catalog."""

import os
import shlex
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from replicator.config import Config, LakeConfig
from replicator.errors import ReplicatorError
from replicator.lake.properties import recorded_purges
from replicator.lake.reading.catalog import namespace_properties
from replicator.lake.reading.metadata_catalog import open_metadata
from replicator.maintenance.plan import MOST_MANIFESTS, Step
from replicator.maintenance.table_reader import (
    TableCondition,
    mirror_tables,
    read_conditions,
    read_namespaces,
    settings_of,
)
from replicator.model.common import listing
from replicator.operations.check.result import CheckResult, fail, ok, warn

_OTHER: Final = "change its owner, or name another path"
_SMALL: Final = 8
"""Files are small if their average size is less than this part of the target size."""
_FILES: Final = "files", "many small files, which are slow to read"
_OVERDUE: Final[Mapping[Step, tuple[str, str]]] = {
    Step.MERGE_DATA: _FILES,
    Step.MERGE_DELETES: _FILES,
    Step.FOLD_DELETES: ("deleted rows", "many deleted rows in data files, which each read must skip"),
    Step.EXPIRE: ("snapshots", "older or more snapshots than [maintenance] permits, which occupy storage"),
    Step.MANIFESTS: ("manifests", f"more than {MOST_MANIFESTS} manifests, which make each read plan slowly"),
}
"""Step → the check that warns of it, and what it means."""


def check_lake(config: Config) -> Iterator[CheckResult]:
    """Run every check of the lake. Leaves no files behind."""
    yield from _warehouse(config.lake)
    yield from _catalog(config)


def write_problem(lake: LakeConfig) -> CheckResult | None:
    """Try to write into the folders of a lake on this machine's disks, and create them. Return what fails."""
    folders = []
    if lake.warehouse is not None and "://" not in lake.warehouse:
        folders.append(("lake: warehouse", Path(lake.warehouse.removeprefix("file:"))))
    if lake.catalog_file is not None:
        if lake.catalog_file.exists() and not os.access(lake.catalog_file, os.W_OK):
            return _read_only_catalog(lake.catalog_file)
        folders.append(("lake: catalog", lake.catalog_file.parent))
    for name, folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            return fail(name, f"{folder} cannot be written: {error.strerror}", _OTHER)
    return None


def _read_only_catalog(file: Path) -> CheckResult:
    return fail("lake: catalog", f"{file} is not writable for this user", _OTHER)


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
        return fail(name, f"{existing} is not writable for this user", _OTHER)
    return ok(name, f"{folder}" + ("" if existing == folder else " (will be created)"))


def _remote_warehouse(lake: LakeConfig, warehouse: str) -> CheckResult:
    # Heavy, and most lakes are folders.
    from pyiceberg.io import load_file_io  # noqa: PLC0415

    from replicator.lake.reading.settings import catalog_properties  # noqa: PLC0415

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
        with open_metadata(config.lake) as catalog:
            namespaces = [".".join(parts) for parts in catalog.list_namespaces()]
            unreadable: dict[str, str] = {}
            tables = list(mirror_tables(config, read_namespaces(config, catalog, unreadable)))
            owners = {
                found.mirror
                for found in tables
                if found.mirror is not None and found.target.namespace == config.lake.namespace
            }
            conditions = read_conditions(config, tables)
            purges = recorded_purges(namespace_properties(catalog, config.lake.ops_namespace))
    except ReplicatorError as error:
        yield fail(name, error.message, error.hint or "check [lake]")
        return
    if file is not None and not os.access(file, os.W_OK):
        yield _read_only_catalog(file)
        return
    yield ok(name, f"opens; namespaces: {', '.join(sorted(namespaces)) or 'none yet'}")
    for table, reason in unreadable.items():
        yield fail("lake: tables", f"{table}: {reason}", "restore the files of the lake")
    yield from _owner(config, owners)
    yield from _maintenance(config, conditions)
    yield from _interrupted_purges(purges)


def _interrupted_purges(purges: Mapping[str, Sequence[str]]) -> Iterator[CheckResult]:
    if purges:
        yield warn(
            "lake: dropped tables",
            f"a drop did not delete all files of {listing(sorted(purges))}",
            f"run: replicator drop {shlex.quote(min(purges))} --purge -c FILE",
        )


def _maintenance(config: Config, conditions: Sequence[TableCondition]) -> Iterator[CheckResult]:
    """Warn of each kind of maintenance that is overdue: `replicator run` does not do it soon by itself."""
    found: dict[tuple[str, str], list[str]] = {}
    for condition in conditions:
        for step in condition.overdue:
            tables = found.setdefault(_OVERDUE[step], [])
            if str(condition.target) not in tables and _matters(step, condition, config):
                tables.append(str(condition.target))
    for (name, text), tables in found.items():
        if tables:
            yield warn(f"lake: {name}", f"{text}: {listing(tables)}", "run: replicator maintain -c FILE")


def _matters(step: Step, condition: TableCondition, config: Config) -> bool:
    """Return whether a step that is due is worth a warning: files that are large already need no merge."""
    if step not in (Step.MERGE_DATA, Step.MERGE_DELETES):
        return True
    facts, target = condition.facts, settings_of(config, condition.target).target_file_size
    return facts.bytes / max(1, facts.data_files + facts.delete_files) < target / _SMALL


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
