"""The demo's folder, its comparison and its snippets, on a small lake written without Spark."""

import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator
from pyiceberg.catalog.sql import SqlCatalog

from replicator.cli.render_demo import print_demo, snippets
from replicator.config import Config
from replicator.errors import ArchiveError, UsageError
from replicator.model.changelog import FIRST_FIELDS
from replicator.operations.demo import RECORDING, prepare
from replicator.operations.demo.compare import (
    DemoResult,
    RecordedSource,
    RecordedTable,
    checksum,
    compare_lake,
)
from replicator.schema.types.table import Form
from replicator.sources.archive.reader import ArchiveReader
from replicator.verify.canonical import LakeColumn
from replicator.verify.lake_rows import Checksum

ORDERS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "status": ["paid", "placed", "paid"],
        "currency": ["EUR", "EUR", "USD"],
        "total": pa.array([Decimal("1.50"), None, Decimal("3.00")], pa.decimal128(12, 2)),
    }
)
COLUMNS = (
    LakeColumn("id", "id", Form.DIGITS, "bigint", nullable=False),
    LakeColumn("status", "status", Form.TEXT, "varchar(9)", nullable=True),
    LakeColumn("currency", "currency", Form.TEXT, "char(3)", nullable=True),
    LakeColumn("total", "total", Form.DIGITS, "decimal(12,2)", nullable=True),
)
NOTE = LakeColumn("note", "note", Form.TEXT, "text", nullable=True)
SCHEMA = Path(__file__).parents[4] / "schemas" / "recording-source-v2.json"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Prepare a demo folder whose lake has two tables and one changelog."""
    settings = prepare(tmp_path / "demo", RECORDING)
    lake = tmp_path / "demo" / "lake"
    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=str(lake))
    for namespace in ("shop", "shop_changes"):
        catalog.create_namespace(namespace)
    catalog.create_table("shop.orders", ORDERS.schema).append(ORDERS)
    catalog.create_table("shop.carts", ORDERS.schema)
    kinds = ["INSERT", "INSERT", "INSERT", "UPDATE_BEFORE", "UPDATE_AFTER"]
    change = pa.array([dict.fromkeys(sorted(FIRST_FIELDS), "x") | {"kind": kind} for kind in kinds])
    changes = pa.table({"id": pa.array([1, 2, 3, 1, 1], pa.int64()), "_change": change})
    catalog.create_table("shop_changes.orders", changes.schema).append(changes)
    catalog.close()
    return settings


@pytest.fixture
def source() -> RecordedSource:
    """Return a source that equals the lake of `config`."""
    return RecordedSource(
        server_version="9.7.0",
        binlog_file="mysql-bin.000002",
        binlog_position=157,
        changes=10,
        tables={
            "shop.carts": RecordedTable(COLUMNS, Checksum()),
            "shop.orders": RecordedTable(COLUMNS, checksum(ORDERS, COLUMNS)),
        },
    )


def compared(config: Config, source: RecordedSource, tmp_path: Path) -> DemoResult:
    return compare_lake(config, source, folder=tmp_path / "demo", events=5, seconds=1.5)


def test_compare_lake_reports_every_kind_of_difference(
    config: Config, source: RecordedSource, tmp_path: Path
) -> None:
    other = checksum(ORDERS.slice(1), COLUMNS)
    same_count = checksum(pa.concat_tables([ORDERS.slice(1), ORDERS.slice(1, 1)]), COLUMNS)
    tables = {
        "shop.carts": RecordedTable((*COLUMNS, NOTE), Checksum(1, 1)),
        "shop.gone": RecordedTable(COLUMNS, Checksum()),
        "shop.orders": RecordedTable(COLUMNS, other),
    }
    result = compared(config, replace(source, tables=tables), tmp_path)
    assert [(t.verdict, t.reason) for t in result.tables] == [
        ("DIFFERENT", "the lake has no column note"),
        ("MISSING", "the lake has no such table"),
        ("DIFFERENT", "3 rows instead of 2"),
    ]
    tables = {"shop.orders": RecordedTable(COLUMNS, same_count)}
    result = compared(config, replace(source, tables=tables), tmp_path)
    assert result.tables[0].reason == "the same number of rows, with other values"
    assert not result.match


def test_print_result_writes_text_and_json(
    config: Config, source: RecordedSource, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = compared(config, source, tmp_path)
    print_demo(result, source, as_json=False)
    text = capsys.readouterr().out
    assert "2 of 2 tables equal MySQL 9.7.0 at mysql-bin.000002:157" in text
    assert all(each in text for each in ("shop.orders", "Spark", "PyIceberg", "DuckDB", "MATCH"))
    print_demo(result, source, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["match"] is True
    assert document["tables"][1]["checksum"] == f"{source.tables['shop.orders'].checksum.hash:016x}"


@pytest.mark.parametrize(("engine", "shown"), [("PyIceberg", "2\n"), ("DuckDB", "EUR")])
def test_printed_pyiceberg_and_duckdb_snippets_run_unchanged(
    config: Config,
    source: RecordedSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    shown: str,
) -> None:
    program = snippets(compared(config, source, tmp_path))[engine]
    assert config.lake.catalog_file is not None
    monkeypatch.chdir(config.lake.catalog_file.parents[1])
    output = io.StringIO()
    with redirect_stdout(output):
        exec(program, {})
    assert shown in output.getvalue()


def test_prepare_empties_only_a_demo_folder(tmp_path: Path) -> None:
    config = prepare(tmp_path / "demo", RECORDING)
    (tmp_path / "demo/lake/left.parquet").write_text("x")
    assert prepare(tmp_path / "demo", RECORDING) == config
    assert not any((tmp_path / "demo/lake").iterdir())
    (tmp_path / "other").mkdir()
    (tmp_path / "other/replicator.toml").write_text("[mirror]\n")
    with pytest.raises(UsageError, match="not a demo's folder"):
        prepare(tmp_path / "other", RECORDING)


def test_demo_recording_has_the_documented_size_and_topics() -> None:
    manifest, source = ArchiveReader(RECORDING).manifest, RecordedSource.load(RECORDING)
    assert manifest.events > source.changes >= 50_000
    assert sum(file.stat().st_size for file in RECORDING.rglob("*") if file.is_file()) < 10_000_000
    topics = {topic for topic, _ in manifest.partitions}
    assert topics == {"shop"} | {f"shop.{table}" for table in source.tables}
    assert len(source.tables) >= 6
    forms = {column.form for table in source.tables.values() for column in table.columns}
    assert forms == set(Form) - {Form.CLOCK, Form.FLOATS}  # only MySQL 9 and newer have vectors


def test_source_of_the_recording_conforms_to_its_schema() -> None:
    text = (RECORDING / "source.json").read_text(encoding="utf-8")
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(json.loads(text))


@pytest.mark.parametrize("text", ["{", "{}", '{"format": "replicator-recording-source", "version": 1}', "[]"])
def test_recorded_source_refuses_a_file_of_another_format(tmp_path: Path, text: str) -> None:
    (tmp_path / "source.json").write_text(text)
    with pytest.raises(ArchiveError, match=r"source\.json"):
        RecordedSource.load(tmp_path)
