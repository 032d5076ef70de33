"""Read the lake's Iceberg catalog with PyIceberg, without Java; it is never written here."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import RESTError
from sqlalchemy.exc import SQLAlchemyError

from replicator.config import CATALOG_NAME, LakeConfig
from replicator.errors import ReplicatorError
from replicator.lake.reading.catalog import require_file, unavailable
from replicator.lake.reading.settings import catalog_properties

_OUTAGES = (SQLAlchemyError, RESTError, OSError)
"""Exceptions that an open catalog may raise; errors of HTTP and of files are OSErrors."""


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
