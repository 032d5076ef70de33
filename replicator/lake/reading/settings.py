"""The settings of PyIceberg for the lake's catalog."""

from sqlalchemy import make_url

from replicator.config import LakeConfig
from replicator.config.catalogs import CATALOGS
from replicator.errors import LakeUnavailable


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
