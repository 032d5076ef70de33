"""The values of a configuration file without mistakes."""

from pathlib import Path
from typing import Any

import pytest

from replicator.config.models import SourceConfig
from replicator.model.partitioning import PartitionField
from tests.support.config import minimal_config
from tests.support.config_files import GOOD, load_text


def test_load_returns_typed_values(file: Path) -> None:
    config = load_text(file, GOOD)
    assert config.source.server().host == "db"
    assert config.source.server().port == 3307
    assert config.apply.trigger == 10.0
    assert config.mirror.state_dir == file.parent / ".replicator" / "shop"
    assert config.lake.uri == f"jdbc:sqlite:{file.parent}/lake/catalog.db"
    assert config.lake.warehouse == str(file.parent / "lake")
    assert config.lake.changes_namespace == "shop_changes"
    assert config.lake.ops_namespace == "shop_ops"


def test_config_table_merges_options_with_the_defaults(file: Path) -> None:
    config = load_text(file, GOOD)
    orders = config.table("shop.orders")
    assert orders.partition == (PartitionField("bucket", "id", 16), PartitionField("days", "created at"))
    assert (orders.strategy, orders.changelog) == ("copy-on-write", True)
    items = config.table("shop.items")
    assert (items.strategy, items.changelog, items.on_bad_event) == ("split", False, "quarantine")
    assert config.table("shop.other").partition == ()


@pytest.mark.parametrize(
    ("table", "included"),
    [
        ("shop.orders", True),
        ("shop.tmp_1", False),
        ("crm.orders", False),
        ("SHOP.orders", False),
        ("shop.a.b", True),
    ],
)
def test_config_includes_tables_that_match_the_patterns(file: Path, table: str, included: bool) -> None:
    assert load_text(file, GOOD).includes(table) is included


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500 ms", 0.5),
        ("1 second", 1.0),
        ("10s", 10.0),
        ("1.5 minutes", 90.0),
        ("2 hours", 7200.0),
        ("continuous", 0.0),
    ],
)
def test_apply_trigger_is_read_in_seconds(file: Path, text: str, seconds: float) -> None:
    assert load_text(file, GOOD.replace("10 seconds", text)).apply.trigger == seconds


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql://u@h/db", "mysql://u@h:3306/db"),
        ("mysql+pymysql://u@h:1", "mysql://u@h:1/"),
        ("mysql://a%40b@[::1]:3306/db", "mysql://a@b@[::1]:3306/db"),
    ],
)
def test_source_server_is_read_from_the_url(file: Path, url: str, expected: str) -> None:
    config = load_text(file, GOOD.replace("mysql://replicator@db:3307/shop", url))
    assert str(config.source.server()) == expected


def test_source_config_excludes_helper_tables_and_the_signal_table() -> None:
    def source(**more: Any) -> SourceConfig:
        return SourceConfig(tables=("shop.*",), **more)

    helpers = [f"shop._orders_{end}" for end in ("gho", "ghc", "ghr", "del", "new", "old")]
    assert not any(
        source().includes(name) for name in [*helpers, "shop._orders_20260101_del", "shop.__t_new"]
    )
    assert all(
        source().includes(name) for name in ("shop.orders", "shop.orders_new", "shop._orders", "shop.a_del")
    )
    assert all(source(helper_tables=True).includes(name) for name in helpers)
    signals = source(signal_table="shop.debezium_signal")
    assert not signals.includes("shop.debezium_signal")
    assert signals.includes("shop.debezium_signals")
    assert source().includes("shop.debezium_signal")
    assert not source(signal_table="shop.s?gnal*").includes("shop.s?gnal*")
    assert source(signal_table="shop.s?gnal*").includes("shop.signals")


def test_keys_of_earlier_versions_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert minimal_config(heal={"mode": "ask", "max_binlog": 0}) == minimal_config(heal={"mode": "ask"})
    (warning,) = caplog.messages
    assert warning.startswith("a key has no effect, remove it: heal.max_binlog in configuration (")
