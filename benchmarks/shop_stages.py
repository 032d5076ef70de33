"""The stages that are computed of the web shop: their SQL, when a snapshot shows a change, and whether all is right.

The SELECTs are the same text for a pipeline, for Flink and for MySQL. The program `python -m benchmarks.shop_stages
CONFIG TABLE...` prints one JSON line for each of these stages, which Spark reads from the lake: rows and checksum.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from benchmarks.shop_source import DATABASE, PROBE, PROBE_COUNTRY


@dataclass(frozen=True, slots=True)
class Stage:
    """A table that an engine keeps current.

    Attributes:
        query: its SELECT, with the names of other tables in braces; none for a mirror of a source table.
        columns: its columns with Flink's types, without created_at and updated_at of orders.
        key: the columns that identify a row.
        probe: the column and its value that tell the rows of the probes, and the column that tells their number.
    """

    name: str
    query: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    probe: tuple[str, int | str, str]


ORDERS: Final = Stage(
    "orders",
    "",
    {
        "id": "BIGINT NOT NULL", "customer_id": "INT", "product_id": "INT", "quantity": "INT",
        "price": "DECIMAL(10, 2)", "status": "STRING", "note": "STRING",
    },
    ("id",),
    ("customer_id", PROBE, "id"),
)  # fmt: skip
CUSTOMERS: Final = Stage(
    "customers", "", {"id": "INT NOT NULL", "name": "STRING", "country": "STRING"}, ("id",), ("id", PROBE, "id")
)  # fmt: skip
PURIFIED: Final = Stage(
    "purified",
    """SELECT o.id, o.product_id, c.country, CAST(o.created_at AS DATE) AS ordered_on, o.status, o.quantity,
  CAST(o.quantity * o.price AS DECIMAL(12, 2)) AS total
FROM {orders} AS o JOIN {customers} AS c ON c.id = o.customer_id
WHERE o.status <> 'cancelled'""",
    {
        "id": "BIGINT NOT NULL", "product_id": "INT", "country": "STRING", "ordered_on": "DATE", "status": "STRING",
        "quantity": "INT", "total": "DECIMAL(12, 2)",
    },
    ("id",),
    ("country", PROBE_COUNTRY, "id"),
)  # fmt: skip
REVENUE: Final = Stage(
    "revenue",
    """SELECT ordered_on, country, count(*) AS orders, sum(total) AS revenue
FROM {purified} AS p GROUP BY ordered_on, country""",
    {
        "ordered_on": "DATE NOT NULL", "country": "STRING NOT NULL", "orders": "BIGINT",
        "revenue": "DECIMAL(38, 2)",
    },
    ("ordered_on", "country"),
    ("country", PROBE_COUNTRY, "orders"),
)  # fmt: skip
SALES: Final = Stage(
    "sales",
    """SELECT country, product_id, sum(quantity) AS units, sum(total) AS revenue
FROM {purified} AS p GROUP BY country, product_id""",
    {
        "country": "STRING NOT NULL", "product_id": "INT NOT NULL", "units": "BIGINT",
        "revenue": "DECIMAL(38, 2)",
    },
    ("country", "product_id"),
    ("country", PROBE_COUNTRY, "units"),
)  # fmt: skip
TOP_PRODUCTS: Final = Stage(
    "top_products",
    """SELECT country, product_id, units, revenue FROM (
  SELECT country, product_id, units, revenue,
    row_number() OVER (PARTITION BY country ORDER BY revenue DESC, product_id) AS place
  FROM {sales} AS s
) AS ranked WHERE place <= 10""",
    SALES.columns,
    SALES.key,
    SALES.probe,
)
STAGES: Final = {s.name: s for s in (ORDERS, CUSTOMERS, PURIFIED, REVENUE, SALES, TOP_PRODUCTS)}
MEASURED: Final = (ORDERS, PURIFIED, REVENUE, TOP_PRODUCTS)


def nested(stage: Stage) -> str:
    """Return the SELECT of a stage over the tables of MySQL."""
    if not stage.query:
        return f"SELECT {', '.join(stage.columns)} FROM {DATABASE}.{stage.name}"
    inner = {PURIFIED.name: PURIFIED, SALES.name: SALES}
    wanted = {name: f"({nested(s)})" for name, s in inner.items() if f"{{{name}}}" in stage.query}
    tables = {s.name: f"{DATABASE}.{s.name}" for s in (ORDERS, CUSTOMERS)}
    return stage.query.format_map(tables | wanted)


def checksum(stage: Stage, table: str, *, spark: bool) -> str:
    """Return the query for the number of rows and a checksum of all their values, of Spark or of MySQL."""
    text = f"concat_ws('|', {', '.join(stage.columns)})"
    text = f"CAST({text} AS BINARY)" if spark else text
    return f"SELECT count(*), sum(crc32({text})) FROM {table} AS t"


@dataclass(slots=True)
class Sightings:
    """Which probes the snapshots of a stage's table show, by the newest row of them that a snapshot added.

    Attributes:
        seen: commit time of a snapshot in milliseconds since the epoch, and the number of the newest probe; both rise.
        snapshots: number of snapshots, with those that changed no row of a probe.
    """

    stage: Stage
    namespace: str
    seen: list[tuple[int, int]] = field(default_factory=list)
    snapshots: int = 0
    _known: dict[int, int] = field(default_factory=dict)

    def read(self, catalog: Catalog) -> int:
        """Read the snapshots that are new; return the number of the newest probe."""
        try:
            table = catalog.load_table((self.namespace, self.stage.name))
        except NoSuchTableError:
            return 0
        found = sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
        for snapshot in found:
            if snapshot.snapshot_id not in self._known:
                self._known[snapshot.snapshot_id] = max(self._numbers(table, snapshot), default=0)
        numbers = accumulate((self._known[snapshot.snapshot_id] for snapshot in found), max)
        self.seen = [(s.timestamp_ms, number) for s, number in zip(found, numbers, strict=True)]
        self.snapshots = len(found)
        return self.seen[-1][1] if self.seen else 0

    def delays(self, probes: Sequence[tuple[int, int]]) -> list[float]:
        """Return the seconds from the commit of each probe, (number, ms), to the first snapshot that shows it.

        Raises:
            RuntimeError: no snapshot shows one of them.
        """
        at, found = 0, list[float]()
        for number, committed_ms in probes:
            while at < len(self.seen) and self.seen[at][1] < number:
                at += 1
            if at == len(self.seen):
                raise RuntimeError(f"no snapshot of {self.stage.name} shows the probe {number}")
            found.append((self.seen[at][0] - committed_ms) / 1000)
        return found

    def _numbers(self, table: Table, snapshot: Snapshot) -> Iterator[int]:
        column, value, number = self.stage.probe
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(table.io):
                file = entry.data_file
                if entry.status == ManifestEntryStatus.ADDED and file.content == DataFileContent.DATA:
                    path = unquote(urlparse(file.file_path).path)
                    rows: pa.Table = pq.read_table(
                        path, columns=[number], filters=[(column, "=", value)], partitioning=None
                    )
                    if (newest := pc.max(rows.column(number)).as_py()) is not None:
                        yield int(newest)


def _main(config: Path, names: Sequence[str]) -> None:
    from replicator.config import load  # noqa: PLC0415 - as Spark, only this program needs it
    from replicator.jvm.spark import build_session  # noqa: PLC0415

    spark = build_session(load(config))
    for name in names:
        stage = STAGES[name.rpartition(".")[2]]
        ((rows, total),) = spark.sql(checksum(stage, f"lake.{name}", spark=True)).collect()
        print(json.dumps({"table": name, "rows": rows, "checksum": int(total or 0)}), flush=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
