"""Which tables the driver reads itself, and how it decodes what MySQL sends."""

from datetime import UTC, date, datetime
from pathlib import Path
from unittest.mock import Mock

import connectorx
import pyarrow as pa
import pytest

from replicator.config import Config
from replicator.errors import SourceUnavailable
from replicator.model.table import Column, TableId
from replicator.model.transforms import Blank
from replicator.model.types import BOOLEAN, DATE, INT, TIMESTAMP, TIMESTAMPTZ, VECTOR, LakeType
from replicator.recovery.reader.driver_rows import (
    _decoded,
    are_readable,
    connects,
    may_be_plain,
    rows_per_range,
    stage_rows,
)
from replicator.schema.types.table import KeyKind, Wire
from replicator.sources.mysql.table_rows import KeyColumn, SourceColumn, SourceTable
from tests.support.config_files import GOOD, load_text

KEY = KeyColumn("id", "CAST(`id` AS CHAR)", KeyKind.NUMBER)
ID = SourceColumn(Column("id", INT), "int", "CAST(`id` AS SIGNED)", Wire.LONG)


def table(*key: KeyColumn, usual: int = 100, most: int = 1_000) -> SourceTable:
    return SourceTable(TableId("shop", "orders"), (ID,), key, 1_000_000, usual, most)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_text(tmp_path / "shop.toml", GOOD)


def test_rows_of_a_range_fit_into_the_memory_that_all_threads_share(config: Config) -> None:
    assert rows_per_range(config, table(KEY, usual=1_000), cores=2) == 128_000_000 // 4 // 1_000
    assert rows_per_range(config, table(KEY, usual=1_000), cores=4) == 128_000_000 // 8 // 1_000
    assert rows_per_range(config, table(KEY, most=20_000), cores=2) == 256_000_000 // 20_000
    assert rows_per_range(config, table(KEY, usual=1), cores=2) == config.bootstrap.chunk_rows


def test_spark_reads_rows_that_may_be_too_large_for_memory(config: Config) -> None:
    assert rows_per_range(config, table(KEY, most=1 << 32), cores=2) is None
    assert rows_per_range(config, table(KEY, usual=100_000), cores=2) is None


@pytest.mark.parametrize(
    ("host", "mode", "plain"),
    [
        ("db", "preferred", False),
        ("10.0.0.7", "preferred", False),
        ("db", "disabled", True),
        ("localhost", "preferred", True),
        ("127.0.0.1", "preferred", True),
        ("::1", "preferred", True),
    ],
)
def test_rows_cross_a_network_without_tls_only_if_that_is_allowed(
    tmp_path: Path, host: str, mode: str, plain: bool
) -> None:
    address = f"[{host}]" if ":" in host else host
    text = GOOD.replace("@db:", f"@{address}:").replace("[source]\n", f'[source]\nssl_mode = "{mode}"\n')
    assert may_be_plain(load_text(tmp_path / "shop.toml", text).source) is plain


def test_spark_evaluates_column_rules_and_decodes_vectors() -> None:
    hidden = Column("id", INT, transform=Blank())
    vector = SourceColumn(Column("v", VECTOR), "vector(2)", "HEX(`v`)", Wire.FLOATS)
    assert are_readable([(ID, Column("id", INT))])
    assert not are_readable([(ID, hidden)])
    assert not are_readable([(vector, Column("v", VECTOR))])


@pytest.mark.parametrize(
    ("wire", "kind", "sent", "value"),
    [
        (Wire.DAYS, DATE, -719162, date(1, 1, 1)),
        (Wire.MICROS, TIMESTAMP, 253402300799999999, datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
        (Wire.MICROS, TIMESTAMPTZ, 1, datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        (Wire.LONG, BOOLEAN, 2, True),
    ],
)
def test_numbers_become_the_values_that_they_stand_for(
    wire: Wire, kind: LakeType, sent: int, value: object
) -> None:
    types = {"date": pa.date32(), "boolean": pa.bool_()}
    found = _decoded(pa.chunked_array([[sent, None]]), wire, kind)
    assert found.cast(types.get(kind.name, found.type)).to_pylist() == [value, None]


def test_spark_reads_the_rows_if_the_driver_cannot_log_in(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_url: str, query: str, **_: object) -> pa.Table:
        if refused:
            raise RuntimeError("Access denied for user")
        return pa.table({"c0": [1]})

    monkeypatch.setenv("SHOP_PASSWORD", "s3cr/t")
    monkeypatch.setattr(connectorx, "read_sql", refuse)
    refused = False
    assert connects(config.source)
    refused = True
    assert not connects(config.source)


def test_no_password_is_in_an_error(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        """What a panic of connectorx is: no Exception."""

    def fail(url: str, *_: object, **__: object) -> None:
        raise Panic(f"cannot connect to {url}")

    monkeypatch.setenv("SHOP_PASSWORD", "s3cr/t")
    monkeypatch.setattr(connectorx, "read_sql", fail)
    with pytest.raises(SourceUnavailable, match="cannot connect") as raised:
        stage_rows(Mock(), Mock(), config.source, "SELECT 1", [(ID, Column("id", INT))], "1 = 1")
    assert "s3cr" not in f"{raised.value} {raised.value.__cause__}"
