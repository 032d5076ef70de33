"""Lakes of every kind of catalog, on real servers, for tests that must hold for each of them."""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from replicator.config import Config
from tests.support.catalog_servers import hive_metastore, postgres_server, rest_server
from tests.support.lake_harness import LakeHarness
from tests.support.tcp_proxy import LosingProxy, losing_proxy

KINDS: Final = ("sqlite", "postgresql", "rest", "hive")
_COMMITS: Final = {
    # The driver sends the text of a statement once, and then only the values.
    "postgresql": ".metadata.json",
    "rest": "POST /v1/namespaces/{namespace}/tables/orders HTTP",
    "hive": "alter_table",
}
"""What a request to commit contains; on REST, to commit to the mirror of `orders`."""


@dataclass(frozen=True, slots=True)
class CatalogServer:
    """A running catalog.

    Attributes:
        kind: one of `KINDS`.
        section: `[lake]` of a configuration, without the namespace.
        proxy: what the clients connect to; None for a catalog without a server.
    """

    kind: str
    section: dict[str, Any]
    proxy: LosingProxy | None = None

    @property
    def compares_all(self) -> bool:
        """Whether the catalog notices every commit of others, also of properties only."""
        return self.kind != "rest"


@contextlib.contextmanager
def catalog_server(kind: str, folder: Path) -> Iterator[CatalogServer]:
    """Run a catalog while the block runs, with a proxy that can lose answers."""
    lake = folder / "lake"
    lake.mkdir()
    if kind == "sqlite":
        section = {"catalog": "jdbc", "uri": f"jdbc:sqlite:{lake}/catalog.db", "warehouse": str(lake)}
        yield CatalogServer(kind, section)
        return
    servers = {
        "postgresql": postgres_server,
        "rest": lambda: rest_server(folder),
        "hive": lambda: hive_metastore(folder),
    }
    with servers[kind]() as port, losing_proxy(port) as proxy:
        at = f"127.0.0.1:{proxy.port}"
        sections: dict[str, dict[str, Any]] = {
            "postgresql": {
                "catalog": "jdbc",
                "uri": f"jdbc:postgresql://{at}/postgres",
                "warehouse": str(lake),
                "options": {"jdbc.user": "iceberg"},
            },
            "rest": {"catalog": "rest", "uri": f"http://{at}"},
            "hive": {"catalog": "hive", "uri": f"thrift://{at}", "warehouse": str(lake)},
        }
        yield CatalogServer(kind, sections[kind], proxy)


@dataclass
class CatalogLake(LakeHarness):
    """A lake in a namespace of its own of a catalog.

    Attributes:
        server: the catalog.
        namespace: the namespace of the mirrors.
    """

    server: CatalogServer = field(kw_only=True)
    namespace: str = field(default_factory=lambda: f"shop_{uuid.uuid4().hex[:8]}", kw_only=True)

    def config(self, **sections: Any) -> Config:
        return super().config(**{"lake": self.server.section | {"namespace": self.namespace}, **sections})

    def lose_answer(self) -> LosingProxy:
        """Lose the answer to the next commit; the server must have a proxy."""
        proxy = self.server.proxy
        assert proxy is not None
        proxy.lose_answer_to(_COMMITS[self.server.kind].format(namespace=self.namespace).encode())
        return proxy

    def sql(self, text: str) -> list[dict[str, Any]]:
        """Run a statement of SQL, as another program would."""
        return [row.asDict() for row in self.session(self.config()).sql(text).collect()]

    def rows(self, table: str, namespace: str | None = None) -> list[dict[str, Any]]:
        """Return a lake table's rows, read by Iceberg's reader for Spark."""
        return self.sql(f"SELECT * FROM lake.{namespace or self.namespace}.{table}")
