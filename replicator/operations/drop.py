"""Drop the lake tables of one source table: unregister them at once, and delete their files on request.

What is to be deleted is recorded in the `_ops` namespace before the tables are unregistered. So a deletion that was
interrupted is continued by the same command. Neither Java nor Spark is started.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from replicator import failpoints
from replicator.config import ArchiveLog, Config
from replicator.errors import CommitConflict, LakeUnavailable, UsageError
from replicator.lake.properties import (
    CREATED_KEY,
    LEFT_OUT_KEY,
    LOG_TABLE_PAUSED_KEY,
    PAUSED_KEY,
    RETRYING_KEY,
    REWIND_KEY,
    purge_record,
    recorded_purges,
)
from replicator.lake.reading.catalog import namespace_properties
from replicator.lake.reading.folder_reader import Purge, open_purge, purge_errors, read_folders, table_folders
from replicator.lake.reading.folders import (
    TableFolders,
    contains,
    local_path,
    outside,
    overlapping,
    owned_hint,
)
from replicator.lake.reading.quarantine import count_quarantined
from replicator.lake.reading.reader import open_catalog
from replicator.lake.reading.table_metadata import TableMetadata, newest_marker
from replicator.model.common import ShowProgress
from replicator.model.compared import COMPARED_KEY, MAY_DIFFER_KEY
from replicator.model.reread import REREAD_KEY
from replicator.model.roles import COMMIT_ORDER
from replicator.model.table import LOG_TOPIC_KEY, MIRROR_KEY, SOURCE_KEY
from replicator.model.verified import CHECKS_KEY, VERIFIED_KEY
from replicator.runner.lock import only_one

_RECORDS: Final = (
    PAUSED_KEY, RETRYING_KEY, REREAD_KEY, REWIND_KEY, LEFT_OUT_KEY, VERIFIED_KEY, CHECKS_KEY, COMPARED_KEY,
    MAY_DIFFER_KEY, LOG_TABLE_PAUSED_KEY,
)  # fmt: skip
"""Prefixes of the properties that say something of one source table."""
_FEWEST_STEPS: Final = 2
"""Minimum depth of a folder whose content may be deleted: `/lake/orders`, or `orders` in a bucket."""


@dataclass(frozen=True, slots=True)
class LakeTableToDrop:
    """A registered lake table.

    Attributes:
        name: its name, with the namespace.
        location: the folder of its files.
        created: where it was created, as recorded.
        elsewhere: further folders that its properties name, outside of `location`; they are never deleted.
        metadata: the address of its metadata, which changes with every commit.
        rows, files, bytes: totals of the current snapshot: rows include those that are marked as deleted.
    """

    name: str
    location: str
    created: str | None
    elsewhere: tuple[str, ...]
    metadata: str
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DropPlan:
    """What dropping a source table means. An empty plan is falsy.

    Attributes:
        source: the source table, `database.table`.
        tables: the registered lake tables of it, in the order in which they are unregistered.
        recorded: the folders of an earlier drop whose files were not all deleted.
        purge: whether files are deleted.
        selected: whether the configuration still selects the source table, so that the mirror would create it again.
        notes: names of properties of the `_ops` namespace that describe pauses and failures of the table.
        quarantined: number of unresolved quarantined events of the table; they stay.
    """

    source: str
    tables: tuple[LakeTableToDrop, ...]
    recorded: tuple[str, ...]
    purge: bool
    selected: bool
    notes: tuple[str, ...]
    quarantined: int

    def __bool__(self) -> bool:
        return bool(self.tables or self.recorded)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of the tables, and those of an earlier drop."""
        return tuple(dict.fromkeys([table.location for table in self.tables] + list(self.recorded)))


@dataclass(frozen=True, slots=True)
class DropReport:
    """What was done. The names are keys of version 1 of the output.

    Attributes:
        table: the source table.
        dropped: names of the unregistered lake tables.
        purged: the folders that were deleted.
        deleted_files: number of deleted files; None if they were deleted in a store, which does not count them.
        remaining_folders: the folders that still have files.
        quarantined: number of unresolved quarantined events of the table; they stay.
        selected: whether the mirror will create the table again.
    """

    table: str
    dropped: tuple[str, ...]
    purged: tuple[str, ...]
    deleted_files: int | None
    remaining_folders: tuple[str, ...]
    quarantined: int
    selected: bool

    def to_json(self) -> dict[str, Any]:
        """Return plain values for programs."""
        return {"version": 1, **asdict(self)}


def nothing_dropped(plan: DropPlan) -> DropReport:
    """Return the report of an empty plan."""
    return DropReport(plan.source, (), (), 0, (), 0, plan.selected)


def plan_drop(config: Config, source: str, *, purge: bool) -> DropPlan:
    """Return what dropping the source table `source` means; an empty plan if the lake has nothing of it.

    Raises:
        UsageError: the mirror is running, the tables are not those of this mirror, or a folder must not be deleted.
        LakeUnavailable: the catalog cannot be read.
    """
    if not all(source.partition(".")):
        raise UsageError(f"{source!r} is not a table", 'write it as "database.table", as in "shop.orders"')
    with only_one(config):
        if config.lake.is_new:
            return _empty_plan(config, source, purge=purge)
        with open_catalog(config.lake) as catalog:
            return _plan(config, catalog, source, purge=purge)


def drop(config: Config, plan: DropPlan, on_progress: ShowProgress = lambda *_: None) -> DropReport:
    """Carry out a plan. If it is interrupted, plan and carry it out again.

    `on_progress` is called with a text and the number of steps that are done and in all.

    Raises:
        UsageError: the mirror is running, or a folder must not be deleted.
        CommitConflict: the tables changed since the plan was made.
        LakeUnavailable: the catalog or the storage failed.
    """
    with only_one(config), open_catalog(config.lake) as catalog:
        if _plan(config, catalog, plan.source, purge=plan.purge) != plan:
            raise CommitConflict(
                f"the lake tables of {plan.source} changed meanwhile: something writes them",
                "stop the mirror, also on other machines, and run the same command again",
            )
        properties = _storage_properties(catalog, plan)
        records = dict(purge_record(plan.source, folder) for folder in plan.folders)
        _prepare(config, catalog, plan, records)
        failpoints.reach("before-unregister")
        for table in plan.tables:
            with suppress(NoSuchTableError):
                catalog.drop_table(_identifier(table.name))
            failpoints.reach("after-unregister")
        files = _purge(plan, properties, on_progress) if plan.purge else 0
        if plan.purge:
            failpoints.reach("after-purge")
            catalog.update_namespace_properties(config.lake.ops_namespace, removals=set(records))
    elsewhere = tuple(folder for table in plan.tables for folder in table.elsewhere)
    return DropReport(
        plan.source,
        tuple(table.name for table in plan.tables),
        plan.folders if plan.purge else (),
        files,
        elsewhere if plan.purge else (*plan.folders, *elsewhere),
        plan.quarantined,
        plan.selected,
    )


def deletion_problem(
    folder: str, spellings: Iterable[str], others: Iterable[TableFolders], kept: Iterable[str]
) -> str | None:
    """Return why a folder must not be deleted with everything in it; None if it may be. Pure.

    Args:
        spellings: all known addresses of the folder.
        others: the folders of all tables that stay, also by all known addresses.
        kept: files and folders that must stay.
    """
    known, remaining = tuple(spellings), tuple(others)
    if not _is_deep(folder):
        return f"{folder} is not a folder that only one table can have"
    for spelling in known:
        if (other := overlapping(spelling, remaining)) is not None:
            return f"{other} has files in the same folder, {folder}"
        for path in kept:
            if contains(spelling, path):
                return f"{folder} contains {path}"
    return None


def _is_deep(folder: str) -> bool:
    path = local_path(folder)
    scheme, separator, rest = folder.partition("://")
    if path is None and (not separator or scheme == "file"):
        return False
    steps = [step for step in (rest if path is None else str(path)).split("/") if step]
    return len(steps) >= _FEWEST_STEPS and not {".", ".."}.intersection(steps)


def _empty_plan(config: Config, source: str, *, purge: bool) -> DropPlan:
    selected = config.includes(source) or any(settings.table == source for settings in config.log_tables)
    return DropPlan(source, (), (), purge, selected, (), 0)


def _plan(config: Config, catalog: Catalog, source: str, *, purge: bool) -> DropPlan:
    tables = tuple(_entry(table) for table in _registered(config, catalog, source))
    properties = namespace_properties(catalog, config.lake.ops_namespace)
    empty = _empty_plan(config, source, purge=purge)
    plan = replace(
        empty,
        tables=tables,
        recorded=recorded_purges(properties).get(source, ()),
        notes=tuple(key for prefix in _RECORDS if (key := prefix + source) in properties),
    )
    if not plan:
        return empty
    if purge:
        _check_folders(config, plan)
    return replace(plan, quarantined=count_quarantined(catalog, config, source))


def _registered(config: Config, catalog: Catalog, source: str) -> Iterator[Table]:
    """Yield the lake tables of a source table: first the changelog, so that `status` shows it until the end.

    Raises:
        UsageError: they belong to another mirror.
    """
    for namespace in map(config.lake.namespace_of, COMMIT_ORDER):
        for name in _lake_names(source):
            try:
                table = catalog.load_table((namespace, name))
            except (NoSuchTableError, NoSuchNamespaceError):
                continue
            marker = newest_marker(table)
            if marker is not None and marker.mirror != config.mirror.name:
                raise UsageError(
                    f"{namespace}.{name} belongs to the mirror {marker.mirror}",
                    "name the configuration of that mirror with -c",
                )
            topics = () if marker is None else marker.progress
            if _is_of(source, table.properties.get(SOURCE_KEY), topics):
                yield table
    yield from _log_table(config, catalog, source)


def _log_table(config: Config, catalog: Catalog, name: str) -> Iterator[Table]:
    """Yield the log table of a name, if it is one of this mirror."""
    identifier = tuple(name.split("."))
    if len(identifier) != 2:
        return
    try:
        table = catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return
    if LOG_TOPIC_KEY in table.properties and table.properties.get(MIRROR_KEY) == config.mirror.name:
        yield table


def _lake_names(source: str) -> Iterator[str]:
    """Yield the possible names of the lake tables of a source table; databases and tables may have dots too."""
    _, separator, name = source.partition(".")
    while separator:
        yield name
        _, separator, name = name.partition(".")


def _is_of(source: str, recorded: str | None, topics: Iterable[str]) -> bool:
    """Return whether a lake table is of a source table: as recorded; of older tables, by the names of the topics."""
    if recorded is not None:
        return recorded == source
    return any(topic.endswith(f".{source}") for topic in topics)


def _entry(table: Table) -> LakeTableToDrop:
    folders = table_folders(table)
    known = TableMetadata.of(table)
    return LakeTableToDrop(
        name=".".join(table.name()),
        location=table.location(),
        created=table.properties.get(CREATED_KEY),
        elsewhere=tuple(path for path in folders if not contains(table.location(), path)),
        metadata=table.metadata_location,
        rows=known.total("total-records"),
        files=known.total("total-data-files") + known.total("total-delete-files"),
        bytes=known.total("total-files-size"),
    )


def _check_folders(config: Config, plan: DropPlan) -> None:
    """Raise UsageError if one of the folders must not be deleted."""
    names = {table.name for table in plan.tables}
    try:
        known = read_folders(config.lake)
    except LakeUnavailable:
        raise
    except Exception as error:
        # The catalog may have tables of others, with any metadata.
        raise LakeUnavailable(
            f"the folders of the other tables are unknown: {error}",
            "without them it is not certain that a folder belongs to one table; drop it without --purge",
        ) from error
    others = [
        replace(table, folders=tuple(s for folder in table.folders for s in _spellings(folder)))
        for table in known
        if table.name not in names
    ]
    kept = [s for path in _kept(config) for s in _spellings(path)]
    by_folder = {table.location: table for table in plan.tables}
    for folder in plan.folders:
        problem = deletion_problem(folder, _spellings(folder), others, kept)
        path = local_path(folder)
        if problem is None and path is not None and path.is_symlink():
            problem = f"{folder} is a symbolic link"
        if problem is not None:
            raise UsageError(
                f"the files of {plan.source} cannot be deleted: {problem}",
                "drop the table without --purge, which leaves all files; if another table has the same folder, "
                "`replicator maintain` deletes them later as orphan files of that table",
            )
        own = by_folder.get(folder)
        reason = outside(folder, None if own is None else own.created, config.lake.warehouse)
        if reason is not None:
            raise UsageError(
                f"the files of {plan.source} cannot be deleted: the folder is {folder}: {reason}",
                "drop the table without --purge, which leaves all files; "
                + ("then delete the folder by hand" if own is None else owned_hint(own.name, folder)),
            )


def _spellings(location: str) -> tuple[str, ...]:
    """Return a location; of a local one also its path without symbolic links."""
    path = local_path(location)
    return (location,) if path is None else (location, os.path.realpath(path))


def _kept(config: Config) -> Iterator[str]:
    """Yield files and folders that no table's folder may contain."""
    lake, log = config.lake, config.log
    if lake.warehouse is not None:
        yield lake.warehouse
    if lake.catalog_file is not None:
        yield str(lake.catalog_file.absolute())
    yield str(config.mirror.state_dir)
    archive = log.path if isinstance(log, ArchiveLog) else log.archive
    if archive is not None:
        yield archive


def _prepare(config: Config, catalog: Catalog, plan: DropPlan, records: Mapping[str, str]) -> None:
    """Record what must be deleted, and remove the notes about the table.

    Without `purge`, the records of an earlier drop are removed: its files stay too.
    """
    namespace = config.lake.ops_namespace
    removed = set(plan.notes)
    if not plan.purge:
        removed |= {purge_record(plan.source, folder)[0] for folder in plan.recorded}
    if not (removed or plan.purge):
        return
    catalog.create_namespace_if_not_exists(namespace)
    catalog.update_namespace_properties(namespace, removed, dict(records) if plan.purge else {})


def _storage_properties(catalog: Catalog, plan: DropPlan) -> dict[str, str]:
    """Return PyIceberg's settings for access to the files; a catalog may give each table its own."""
    properties = dict(catalog.properties)
    for table in plan.tables:
        properties |= catalog.load_table(_identifier(table.name)).io.properties
    return properties


def _identifier(name: str) -> tuple[str, str]:
    # Of both namespaces, no name contains a dot.
    namespace, _, table = name.partition(".")
    return namespace, table


def _purge(plan: DropPlan, properties: Mapping[str, str], on_progress: ShowProgress) -> int | None:
    """Delete the folders. Return the number of files; None if it is unknown."""
    text = f"deleting {plan.source}"
    purges: list[tuple[str, Purge]] = [(folder, open_purge(folder, properties)) for folder in plan.folders]
    done, steps = 0, sum(purge.steps for _, purge in purges)

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_progress(text, done, steps)

    for folder, purge in purges:
        with purge_errors(folder):
            purge.run(advance)
    counts = [purge.files for _, purge in purges]
    return None if None in counts else sum(count for count in counts if count is not None)
