"""Let Flink SQL keep the stages of the web shop current: one job, from Debezium's topics to Iceberg in upsert mode."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from benchmarks.engine import Target
from benchmarks.peers import flink
from benchmarks.shop_source import DATABASE
from benchmarks.shop_stages import CUSTOMERS, ORDERS, PURIFIED, REVENUE, SALES, TOP_PRODUCTS, Stage

NAMESPACE: Final = "shop_flink"
_VIEWS: Final = (PURIFIED, SALES)
"""What other SELECTs read. Flink computes it once."""
_TIMES: Final = {
    ORDERS.name: ("created_at", "updated_at"),
    CUSTOMERS.name: ("seen_at",),
}
_USED: Final = {
    ORDERS.name: ("id", "customer_id", "product_id", "quantity", "price", "status", "created_at"),
    CUSTOMERS.name: ("id", "country"),
}
"""The columns that the stages need; others are only decoded for mirrors."""


class State(StrEnum):
    """Where the job has its state.

    In RocksDB, checkpoints are incremental, but Flink's operator for the best rows of a group reads and writes all of
    its group with each row. On the heap it does not, but each checkpoint writes the whole state.
    """

    ROCKSDB = "rocksdb"
    HASHMAP = "hashmap"


def command(target: Target, prefix: str, interval: str, state: State, *, mirrors: bool) -> list[str]:
    """Return the command of the job; `interval` is the time between checkpoints.

    With `mirrors`, it also writes the source's tables.
    """
    file = target.folder / "flink.sql"
    file.parent.mkdir(parents=True, exist_ok=True)
    target.warehouse.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{text};\n" for text in _statements(target.bootstrap, prefix, mirrors=mirrors)))
    settings = {
        "statements": str(file),
        "uri": target.uri,
        "warehouse": str(target.warehouse),
        "interval": interval,
        "parallelism": "2",
        "conf.state.backend.type": state,
        "conf.execution.checkpointing.incremental": "true",
        "conf.execution.checkpointing.dir": (target.folder / "checkpoints").as_uri(),
        "conf.taskmanager.memory.managed.size": "1g",
        # Without it, each sink would have a join of its own.
        "conf.table.optimizer.reuse-optimize-block-with-digest-enabled": "true",
    }
    return flink.command(target, "Sql", settings)


def _statements(bootstrap: str, prefix: str, *, mirrors: bool) -> Iterator[str]:
    yield f"CREATE DATABASE IF NOT EXISTS lake.{NAMESPACE}"
    for stage in (ORDERS, CUSTOMERS):
        times = _TIMES[stage.name]
        wanted = [*stage.columns, *times] if mirrors else _USED[stage.name]
        kinds = {**stage.columns, **dict.fromkeys(times, "BIGINT NOT NULL")}
        read = ", ".join(f"{name} {kinds[name]}" for name in wanted)
        yield (
            f"CREATE TEMPORARY TABLE source_{stage.name} ({read}, {_key(stage)}) WITH ('connector' = 'kafka', "
            f"'topic' = '{prefix}.{DATABASE}.{stage.name}', 'properties.bootstrap.servers' = '{bootstrap}', "
            "'properties.group.id' = 'flink-benchmark', 'scan.startup.mode' = 'earliest-offset', "
            "'format' = 'debezium-json')"
        )
        values = ", ".join(f"micros({name}) AS {name}" if name in times else name for name in wanted)
        yield f"CREATE TEMPORARY VIEW {stage.name} AS SELECT {values} FROM source_{stage.name}"
    for view in _VIEWS:
        yield f"CREATE TEMPORARY VIEW {view.name} AS {_select(view)}"
    copies = (ORDERS, CUSTOMERS) if mirrors else ()
    for stage in (*copies, PURIFIED, REVENUE, TOP_PRODUCTS):
        columns = {**stage.columns, **dict.fromkeys(_TIMES.get(stage.name, ()), "TIMESTAMP(6)")}
        yield (
            f"CREATE TABLE lake.{NAMESPACE}.{stage.name} ({', '.join(map(' '.join, columns.items()))}, {_key(stage)}) "
            "WITH ('format-version' = '2', 'write.upsert.enabled' = 'true', "
            # Every tenth checkpoint without a change would make a snapshot.
            f"'flink.max-continuous-empty-commits' = '{2**31 - 1}')"
        )
        names = ", ".join(columns)
        rows = f"SELECT {names} FROM {stage.name}" if stage in (*copies, *_VIEWS) else _select(stage)
        yield f"INSERT INTO lake.{NAMESPACE}.{stage.name} {rows}"


def _key(stage: Stage) -> str:
    return f"PRIMARY KEY ({', '.join(stage.key)}) NOT ENFORCED"


def _select(stage: Stage) -> str:
    return stage.query.format(orders="orders", customers="customers", purified="purified", sales="sales")
