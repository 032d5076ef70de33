"""Load tables and properties of namespaces from the lake's catalog: PyIceberg's, or that of `open_metadata`."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from replicator.config import LakeConfig
from replicator.errors import LakeUnavailable
from replicator.lake.reading.manifests import read_manifests
from replicator.lake.reading.table_metadata import TableMetadata

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
