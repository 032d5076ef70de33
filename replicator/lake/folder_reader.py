"""Read the folders of all tables of a catalog, without Java."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from replicator.config import LakeConfig
from replicator.lake.folders import TableFolders
from replicator.lake.reader import open_catalog

_PATHS: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path")
_PARALLEL_LOADS: Final = 8


def read_folders(lake: LakeConfig) -> tuple[TableFolders, ...]:
    """Return the folders of every table in the catalog, also of tables that belong to no mirror.

    Raises:
        LakeUnavailable: the catalog cannot be read.
    """
    with open_catalog(lake) as catalog, ThreadPoolExecutor(_PARALLEL_LOADS) as pool:
        names = [name for namespace in _namespaces(catalog, ()) for name in _tables(catalog, namespace)]
        return tuple(found for found in pool.map(lambda name: _folders(catalog, name), names) if found)


def _namespaces(catalog: Catalog, parent: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    try:
        listed = catalog.list_namespaces(parent)
    except NoSuchNamespaceError:
        return
    for found in listed:
        namespace = tuple(found)
        # A catalog without nested namespaces may return all of them again.
        if len(namespace) > len(parent) and namespace[: len(parent)] == parent:
            yield namespace
            yield from _namespaces(catalog, namespace)


def _tables(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    try:
        return [tuple(name) for name in catalog.list_tables(namespace)]
    except NoSuchNamespaceError:
        return []


def _folders(catalog: Catalog, name: tuple[str, ...]) -> TableFolders | None:
    try:
        table: Table = catalog.load_table(name)
    except NoSuchTableError:
        # Dropped since it was listed, or not an Iceberg table.
        return None
    return TableFolders(".".join(name), str(table.metadata.table_uuid), table_folders(table))


def table_folders(table: Table) -> tuple[str, ...]:
    """Return the location of a table, and further folders that its properties name."""
    paths = [path for key in _PATHS if (path := table.properties.get(key)) is not None]
    return (table.location(), *paths)
