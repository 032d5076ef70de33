"""Read the lake's Iceberg catalog with PyIceberg, without Java; it is never written here."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import RESTError
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from replicator.config import CATALOG_NAME, LakeConfig
from replicator.config.catalogs import CATALOGS
from replicator.errors import LakeUnavailable, ReplicatorError
from replicator.lake.reading.catalog import require_file, unavailable

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
    if lake.catalog_file is not None:
        require_file(lake.catalog_file)
    # PyIceberg warns about the older schema of JDBC catalogs, although it can read it. `replicator run` updates it.
    logging.getLogger("pyiceberg.catalog.sql").setLevel(logging.ERROR)
    catalog = _opened(lake)
    try:
        yield catalog
    except _OUTAGES as error:
        raise unavailable(lake, error) from error
    finally:
        catalog.close()


def _opened(lake: LakeConfig) -> Catalog:
    try:
        return load_catalog(CATALOG_NAME, **catalog_properties(lake))
    except ReplicatorError:
        raise
    except Exception as error:
        # Each kind of catalog raises the errors of its own client, which have no common class.
        raise unavailable(lake, error) from error
