"""Read what the lake's catalog and the metadata of its tables say; of a folder with a SQLite file, without PyIceberg.

Commands that read rows open the catalog with `reader`, which imports PyIceberg, PyArrow and SQLAlchemy: that takes a
second of CPU time.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError

from replicator.config import CATALOG_NAME, LakeConfig
from replicator.lake.reading.catalog import MetadataCatalog, require_file, unavailable
from replicator.lake.reading.files import files_beside, is_folder
from replicator.lake.reading.table_metadata import TableMetadata

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@contextmanager
def open_metadata(lake: LakeConfig) -> Iterator[MetadataCatalog]:
    """Open the lake's catalog for reading the metadata of tables.

    Raises:
        LakeUnavailable: the catalog does not exist or cannot be opened, or an access to it fails.
    """
    if lake.catalog_file is None or not is_folder(lake):
        # Other catalogs, and stores, have clients and ways to log in of their own.
        from replicator.lake.reading.reader import open_catalog  # noqa: PLC0415 - it takes a second to import

        with open_catalog(lake) as catalog:
            yield _OtherCatalog(catalog)
        return
    require_file(lake.catalog_file)
    try:
        with closing(sqlite3.connect(lake.catalog_file, check_same_thread=False)) as connection:
            yield _SqliteCatalog(connection, lake)
    except (sqlite3.Error, OSError) as error:
        raise unavailable(lake, error) from error


class _SqliteCatalog:
    """The two tables of a JDBC catalog in a SQLite file, as Iceberg's JdbcCatalog lays them out. Thread-safe."""

    def __init__(self, connection: sqlite3.Connection, lake: LakeConfig) -> None:
        connection.row_factory = sqlite3.Row
        self._connection, self._lake, self._lock = connection, lake, threading.Lock()

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
        location = rows[0]["metadata_location"]
        return TableMetadata.read(namespace, name, location, files_beside(self._lake, location))

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
            try:
                return self._connection.execute(statement, {"catalog": CATALOG_NAME, **values}).fetchall()
            except sqlite3.OperationalError as error:
                if not str(error).startswith("no such table: iceberg_namespace_properties"):
                    raise
                # At its first start, Iceberg creates this table after the other one.
                return []


class _OtherCatalog:
    """A catalog that PyIceberg reads."""

    def __init__(self, catalog: "Catalog") -> None:
        self._catalog = catalog
        self.list_namespaces = catalog.list_namespaces
        self.list_tables = catalog.list_tables
        self.load_namespace_properties = catalog.load_namespace_properties

    def load_table(self, identifier: tuple[str, str]) -> TableMetadata:
        return TableMetadata.of(self._catalog.load_table(identifier))
