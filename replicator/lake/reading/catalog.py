"""Read what the lake's catalog and the metadata of its tables say, without PyIceberg if the catalog is a SQLite file.

Commands that read rows open the catalog with `reader`, which imports PyIceberg, PyArrow and SQLAlchemy: that takes a
second of CPU time. The functions here that take a catalog work with both.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from replicator.config import CATALOG_NAME, LakeConfig
from replicator.errors import LakeUnavailable
from replicator.lake.reading.files import Files, LakeFiles
from replicator.lake.reading.manifests import read_manifests
from replicator.lake.reading.table_metadata import TableMetadata

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog

_PARALLEL_LOADS: Final = 8
_Loaded = TypeVar("_Loaded")
_Loaded_co = TypeVar("_Loaded_co", covariant=True)


class Catalog(Protocol[_Loaded_co]):
    """The catalog of a lake: PyIceberg's, or that of `open_metadata`."""

    def list_namespaces(self) -> list[tuple[str, ...]]: ...

    def list_tables(self, namespace: str) -> list[tuple[str, ...]]: ...

    def load_table(self, identifier: tuple[str, str]) -> _Loaded_co: ...

    def load_namespace_properties(self, namespace: str) -> Mapping[str, Any]: ...


MetadataCatalog = Catalog[TableMetadata]


@contextmanager
def open_metadata(lake: LakeConfig) -> Iterator[MetadataCatalog]:
    """Open the lake's catalog for reading the metadata of tables.

    Raises:
        LakeUnavailable: the catalog does not exist or cannot be opened, or an access to it fails.
    """
    if lake.catalog_file is None:
        # Other catalogs have clients and ways to log in of their own.
        from replicator.lake.reading.reader import open_catalog  # noqa: PLC0415 - it takes a second to import

        with open_catalog(lake) as catalog:
            yield _OtherCatalog(catalog)
        return
    require_file(lake.catalog_file)
    try:
        with closing(sqlite3.connect(lake.catalog_file, check_same_thread=False)) as connection:
            yield _SqliteCatalog(connection, LakeFiles(lake))
    except (sqlite3.Error, OSError) as error:
        raise unavailable(lake, error) from error


def require_file(file: Path) -> None:
    """Raise LakeUnavailable if a catalog's file does not exist; opening it would create an empty file."""
    if not file.exists():
        raise LakeUnavailable(
            f"there is no catalog at {file} yet", "start `replicator run`, whose first batch creates it"
        )


def unavailable(lake: LakeConfig, error: Exception) -> LakeUnavailable:
    """Return the error to raise if a catalog cannot be used."""
    # SQLAlchemy's message also contains the statement and its parameters.
    reason = str(getattr(error, "orig", None) or error) or type(error).__name__
    return LakeUnavailable(
        f"the {lake.catalog} catalog cannot be used: {reason.splitlines()[0]}",
        "check lake.uri and lake.options; if the catalog is a service, check that it is running and reachable",
    )


class _SqliteCatalog:
    """The two tables of a JDBC catalog in a SQLite file, as Iceberg's JdbcCatalog lays them out. Thread-safe."""

    def __init__(self, connection: sqlite3.Connection, files: Files) -> None:
        connection.row_factory = sqlite3.Row
        self._connection, self._files, self._lock = connection, files, threading.Lock()

    def list_namespaces(self) -> list[tuple[str, ...]]:
        rows = self._rows(
            "SELECT table_namespace FROM iceberg_tables WHERE catalog_name = :catalog "
            "UNION SELECT namespace FROM iceberg_namespace_properties WHERE catalog_name = :catalog"
        )
        return sorted({(name.partition(".")[0],) for (name,) in rows})

    def list_tables(self, namespace: str) -> list[tuple[str, ...]]:
        return [(*namespace.split("."), row["table_name"]) for row in self._tables(namespace)]

    def load_table(self, identifier: tuple[str, str]) -> TableMetadata:
        namespace, name = identifier
        rows = self._tables(namespace, name)
        if not rows or rows[0]["metadata_location"] is None:
            raise NoSuchTableError(f"there is no table {namespace}.{name}")
        return TableMetadata.read(namespace, name, rows[0]["metadata_location"], self._files)

    def load_namespace_properties(self, namespace: str) -> dict[str, str]:
        rows = self._rows(
            "SELECT property_key, property_value FROM iceberg_namespace_properties "
            "WHERE catalog_name = :catalog AND namespace = :namespace",
            namespace=namespace,
        )
        return {row["property_key"]: row["property_value"] for row in rows}

    def _tables(self, namespace: str, name: str | None = None) -> list[sqlite3.Row]:
        rows = self._rows(
            "SELECT * FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace "
            "AND (:name IS NULL OR table_name = :name)",
            namespace=namespace,
            name=name,
        )
        # Catalogs of the older layout have no views, and no column that tells them from tables.
        return [row for row in rows if dict(row).get("iceberg_type") in (None, "TABLE")]

    def _rows(self, statement: str, **values: str | None) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(statement, {"catalog": CATALOG_NAME, **values}).fetchall()


class _OtherCatalog:
    """A catalog that PyIceberg reads."""

    def __init__(self, catalog: "IcebergCatalog") -> None:
        self._catalog = catalog
        self.list_namespaces = catalog.list_namespaces
        self.list_tables = catalog.list_tables
        self.load_namespace_properties = catalog.load_namespace_properties

    def load_table(self, identifier: tuple[str, str]) -> TableMetadata:
        return TableMetadata.of(self._catalog.load_table(identifier))


def load_table(catalog: Catalog[_Loaded], namespace: str, name: str) -> _Loaded | None:
    """Load a table; None if there is none, or if it is not an Iceberg table."""
    try:
        return catalog.load_table((namespace, name))
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def load_readable(
    catalog: MetadataCatalog, namespace: str, name: str, unreadable: dict[str, str] | None = None
) -> TableMetadata | None:
    """Load a table; None if there is none.

    If `unreadable` is given, a table whose metadata or list of manifests cannot be read is added there instead, as
    `namespace.name` → the reason.
    """
    if unreadable is None:
        return load_table(catalog, namespace, name)
    try:
        table = load_table(catalog, namespace, name)
        if table is not None and table.snapshot is not None:
            read_manifests(table.files, table.snapshot.manifest_list)
    except (FileNotFoundError, PermissionError, ValueError) as error:
        unreadable[f"{namespace}.{name}"] = unreadable_reason(error)
        return None
    return table


def tables_in(
    catalog: Catalog[_Loaded],
    namespace: str,
    load: Callable[[Catalog[_Loaded], str, str], _Loaded | None] = load_table,
) -> dict[str, _Loaded]:
    """Load all tables of a namespace, as name → table; empty if the namespace does not exist."""
    try:
        names = sorted(identifier[-1] for identifier in catalog.list_tables(namespace))
    except NoSuchNamespaceError:
        return {}
    with ThreadPoolExecutor(_PARALLEL_LOADS) as pool:
        loaded = pool.map(lambda name: load(catalog, namespace, name), names)
        return {name: table for name, table in zip(names, loaded, strict=True) if table is not None}


def readable_tables_in(
    catalog: MetadataCatalog, namespace: str, unreadable: dict[str, str] | None = None
) -> dict[str, TableMetadata]:
    """Load all tables of a namespace, as name → table; see `load_readable` for `unreadable`."""
    return tables_in(catalog, namespace, lambda c, space, name: load_readable(c, space, name, unreadable))


def unreadable_reason(error: Exception) -> str:
    """Describe on one line why files of a table cannot be read."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"its files cannot be read: {reason}"


def namespace_properties(catalog: Catalog[Any], namespace: str) -> dict[str, str]:
    """Return the properties of a namespace; none if it does not exist."""
    try:
        return dict(catalog.load_namespace_properties(namespace))
    except NoSuchNamespaceError:
        return {}
