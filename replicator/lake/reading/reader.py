"""Read the lake's Iceberg catalog in Python, without Java; it is never written here."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.table import Table
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from replicator.config import CATALOG_NAME, LakeConfig
from replicator.config.catalogs import CATALOGS
from replicator.errors import LakeUnavailable, ReplicatorError
from replicator.model.commit_marker import MARKER_KEY, CommitMarker

_PARALLEL_LOADS = 8
_OUTAGES = (SQLAlchemyError, RESTError, OSError)
"""Exceptions that an open catalog may raise; errors of HTTP and of files are OSErrors."""


def catalog_properties(lake: LakeConfig) -> dict[str, str]:
    """Return the PyIceberg settings, including secrets, for the catalog that Spark uses."""
    properties = lake.catalog_options()
    if lake.warehouse is not None:
        properties["warehouse"] = lake.warehouse
    if lake.uri is not None:
        user, password = properties.get("jdbc.user"), properties.get("jdbc.password")
        properties["uri"] = sqlalchemy_uri(lake.uri, user, password) if lake.kind.databases else lake.uri
    return properties | {"type": lake.catalog, **lake.kind.python}


def sqlalchemy_uri(jdbc: str, user: str | None = None, password: str | None = None) -> str:
    """Translate a JDBC URL to SQLAlchemy's form.

    Raises:
        LakeUnavailable: no Python driver is known for the database.
    """
    name, _, rest = jdbc.removeprefix("jdbc:").partition(":")
    databases = CATALOGS["jdbc"].databases
    if name not in databases:
        raise LakeUnavailable(
            f"no Python driver is known for a catalog at jdbc:{name}:…",
            f"use one of {', '.join(databases)} for a jdbc catalog, or a rest catalog",
        )
    url = make_url(databases[name].python + rest)
    return url.set(username=user or url.username, password=password or url.password).render_as_string(
        hide_password=False
    )


@contextmanager
def open_catalog(lake: LakeConfig) -> Iterator[Catalog]:
    """Open the lake's catalog for reading.

    Raises:
        LakeUnavailable: the catalog does not exist or cannot be opened, or an access to it fails.
    """
    file = lake.catalog_file
    if file is not None and not file.exists():
        # Opening it would create an empty file.
        raise LakeUnavailable(
            f"there is no catalog at {file} yet", "start `replicator run`, whose first batch creates it"
        )
    # PyIceberg warns about the older schema of JDBC catalogs, although it can read it. `replicator run` updates it.
    logging.getLogger("pyiceberg.catalog.sql").setLevel(logging.ERROR)
    catalog = _opened(lake)
    try:
        yield catalog
    except _OUTAGES as error:
        raise _unavailable(lake, error) from error
    finally:
        catalog.close()


def _opened(lake: LakeConfig) -> Catalog:
    try:
        return load_catalog(CATALOG_NAME, **catalog_properties(lake))
    except ReplicatorError:
        raise
    except Exception as error:
        # Each kind of catalog raises the errors of its own client, which have no common class.
        raise _unavailable(lake, error) from error


def _unavailable(lake: LakeConfig, error: Exception) -> LakeUnavailable:
    # SQLAlchemy's message also contains the statement and its parameters.
    reason = str(getattr(error, "orig", None) or error) or type(error).__name__
    return LakeUnavailable(
        f"the {lake.catalog} catalog cannot be used: {reason.splitlines()[0]}",
        "check lake.uri and lake.options; if the catalog is a service, check that it is running and reachable",
    )


def tables_in(catalog: Catalog, namespace: str, unreadable: dict[str, str] | None = None) -> dict[str, Table]:
    """Load all tables of a namespace, as name → table; empty if the namespace does not exist.

    If `unreadable` is given, tables whose metadata or list of manifests cannot be read are added there instead, as
    `namespace.name` → the reason.
    """
    try:
        names = sorted(identifier[-1] for identifier in catalog.list_tables(namespace))
    except NoSuchNamespaceError:
        return {}
    with ThreadPoolExecutor(_PARALLEL_LOADS) as pool:
        loaded = pool.map(lambda name: load_readable(catalog, namespace, name, unreadable), names)
        return {name: table for name, table in zip(names, loaded, strict=True) if table is not None}


def newest_marker(table: Table) -> CommitMarker | None:
    """Return the marker of the newest commit; None if no mirror has committed to the table.

    Raises:
        LakeUnavailable: a newer version of the engine wrote it.
    """
    text = table.properties.get(MARKER_KEY)
    try:
        return None if text is None else CommitMarker.from_json(text)
    except (ValueError, KeyError) as error:
        name = ".".join(table.name())
        raise LakeUnavailable(
            f"{name}: {error}", "use the version of replicator that wrote the table"
        ) from error


def _load_table(catalog: Catalog, namespace: str, name: str) -> Table | None:
    try:
        return catalog.load_table((namespace, name))
    except (NoSuchTableError, NoSuchNamespaceError):
        # Dropped since it was listed, or not an Iceberg table.
        return None


def load_readable(
    catalog: Catalog, namespace: str, name: str, unreadable: dict[str, str] | None = None
) -> Table | None:
    """Load a table; None if there is none. See `tables_in` for `unreadable`."""
    if unreadable is None:
        return _load_table(catalog, namespace, name)
    try:
        table = _load_table(catalog, namespace, name)
        if table is not None and (snapshot := table.current_snapshot()) is not None:
            snapshot.manifests(table.io)
    except (FileNotFoundError, PermissionError, ValueError) as error:
        unreadable[f"{namespace}.{name}"] = unreadable_reason(error)
        return None
    return table


def unreadable_reason(error: Exception) -> str:
    """Describe on one line why files of a table cannot be read."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"its files cannot be read: {reason}"


def namespace_properties(catalog: Catalog, namespace: str) -> dict[str, str]:
    """Return the properties of a namespace; none if it does not exist."""
    try:
        return dict(catalog.load_namespace_properties(namespace))
    except NoSuchNamespaceError:
        return {}
