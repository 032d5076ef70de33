"""Columns that are excluded, masked or hashed: their values are written nowhere."""

import hmac
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from replicator.decode.values import transformed
from replicator.jvm.spark import session_conf
from replicator.model.transforms import FixedText, KeepLast, KeyedHash
from replicator.model.types import LakeType
from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    with_value_schema,
)
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness

USERS = "shop.shop.users"
KEY = "not-a-secret-0123456789"
COLUMNS = (
    ColumnSpec("id", "bigint", False),
    ColumnSpec("Email", "varchar"),
    ColumnSpec("phone", "varchar"),
    ColumnSpec("note", "varchar"),
    ColumnSpec("salary", "decimal"),
    ColumnSpec("born", "datetime"),
    ColumnSpec("plain", "varchar"),
)
RULES = {
    "hash": ["email", "id"],
    "exclude": ["note"],
    "mask": {"phone": {"keep_last": 2}, "salary": {"null": True}, "born": {"text": "hidden"}},
}
SECRETS = ("ada@example.org", "bob@example.org", "0123456", "between us", "not for the lake", "987654321")


def hashed(text: str) -> str:
    return hmac.new(KEY.encode(), text.encode(), "sha256").hexdigest()


def user(number: int, email: str | None, **others: Any) -> dict[str, Any]:
    row = {"id": number, "Email": email, "phone": "0123456", "note": "between us", "salary": 987654321.5}
    return row | {"born": 1_000_000, "plain": "seen"} | others


def in_lake(number: int, email: str | None, **others: Any) -> dict[str, Any]:
    shown = {"id": hashed(str(number)), "Email": None if email is None else hashed(email)}
    return shown | {"phone": "*****56", "salary": None, "born": "hidden", "plain": "seen"} | others


def record(op: str, pos: int, *, schemas: bool = False, **images: Any) -> Record:
    value = change_event(op, Place(1, pos), "users", **images)
    row = images.get("after") or images["before"]
    value = with_value_schema(value, COLUMNS, USERS) if schemas else value
    return Record(USERS, 0, key_of(row, ["id"]), value)


def defined(columns: Any, pos: int, kind: str) -> Record:
    return Record("shop", 0, None, schema_change_event(Place(1, pos), "users", columns, ["id"], kind=kind))


def without_change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "_change"} for row in rows]


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
@pytest.mark.parametrize("strategy", ["split", "merge"])
@pytest.mark.parametrize("schemas", [True, False])
def test_protected_values_are_absent_from_all_files_of_the_lake(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch, driver_max_events: int, strategy: str, schemas: bool
) -> None:
    monkeypatch.setenv("HASH_KEY", KEY)
    lake.driver_max_events = driver_max_events
    config = lake.config(
        columns={"hash": ["email"], "hash_key": {"env": "HASH_KEY"}},
        table=[{"name": "shop.users", "columns": RULES | {"hash": ["id"]}}],
        apply={"strategy": strategy},
    )
    ada, bob, nobody = user(1, "ada@example.org"), user(2, "bob@example.org"), user(3, None, plain=None)
    lake.write(
        [
            defined(COLUMNS, 4, "CREATE"),
            *(record("c", 10 + i, schemas=schemas, after=row) for i, row in enumerate((ada, bob, nobody))),
            Record(
                USERS, 0, b'{"id": "not for the lake"}', b'{"op": "c", "after": {"Email": "not for the lake"'
            ),
            record("not for the lake", 15, schemas=schemas, after=ada),
            record("u", 20, schemas=schemas, before=ada, after=ada | {"Email": "bob@example.org"}),
            record("d", 21, schemas=schemas, before=bob),
        ]
    )
    mirror = lake.mirror(config)
    mirror.advance({USERS: {0: 5}})
    mirror.advance({USERS: {0: 7}})
    assert mirror.summary().paused == {}
    first, second = in_lake(1, "ada@example.org"), in_lake(2, "bob@example.org")
    third, moved = in_lake(3, None, plain=None), in_lake(1, "bob@example.org")
    assert sorted(lake.rows("users"), key=lambda r: r["plain"] or "") == [third, moved]
    changes = sorted(
        lake.rows("users", "shop_changes"), key=lambda r: (r["_change"]["pos"], r["_change"]["kind"])
    )
    assert without_change(changes) == [first, second, third, moved, first, second]
    bad = sorted(lake.rows("quarantine", "shop_ops"), key=lambda r: r["offset"])
    assert [(r["offset"], r["key"], r["value"]) for r in bad] == [(3, None, None), (4, None, None)]
    assert all(r["reason"] for r in bad)
    assert_nowhere(lake.folder / "lake")


def assert_nowhere(folder: Path) -> None:
    """Assert that no file of the lake has a secret in its rows, statistics or properties."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert any(file.suffix == ".parquet" for file in files)
    for file in files:
        content = file.read_bytes()
        if file.suffix == ".parquet":
            content += str(pq.ParquetFile(file).read().to_pylist()).encode()
        assert not [s for s in (*SECRETS, KEY) if s.encode() in content], file


def test_added_column_is_filled_with_hashed_or_masked_values(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HASH_KEY", KEY)
    added = (ColumnSpec("code", "int", False, "7"), ColumnSpec("word", "varchar", False, "geheim"))
    config = lake.config(
        columns={"hash": ["code"], "hash_key": {"env": "HASH_KEY"}, "mask": {"w*": {"keep_last": 3}}}
    )
    ada = user(1, "ada@example.org")
    lake.write([defined(COLUMNS, 4, "CREATE"), record("c", 10, after=ada)])
    lake.catch_up(config)
    bob = user(2, None, code=7, word="geheim")
    lake.write([defined([*COLUMNS, *added], 50, "ALTER"), record("c", 60, after=bob)])
    lake.catch_up(config)
    found = {r["id"]: (r["code"], r["word"]) for r in lake.rows("users")}
    assert found == dict.fromkeys((1, 2), (hashed("7"), "***eim"))


def test_table_pauses_when_its_column_rules_or_hash_key_change(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HASH_KEY", KEY)
    sections: dict[str, Any] = {"columns": RULES | {"hash_key": {"env": "HASH_KEY"}}}
    lake.write([defined(COLUMNS, 4, "CREATE"), record("c", 10, after=user(1, "ada@example.org"))])
    lake.catch_up(lake.config(**sections))
    lake.write([record("c", 20, after=user(2, "bob@example.org"))])
    (reason,) = lake.catch_up().summary().paused.values()
    assert "the column rules of shop.users were changed" in reason
    monkeypatch.setenv("HASH_KEY", KEY + "!")
    (reason,) = lake.catch_up(lake.config(**sections)).summary().paused.values()
    assert "Email" in reason
    assert len(lake.rows("users")) == 1
    assert len(lake.rows("users", "shop_changes")) == 1
    monkeypatch.setenv("HASH_KEY", KEY)
    assert lake.catch_up(lake.config(**sections)).summary().paused == {}
    assert len(lake.rows("users")) == 2


def test_table_pauses_when_a_column_rule_excludes_its_key(lake: LakeHarness) -> None:
    lake.write([defined(COLUMNS, 4, "CREATE"), record("c", 10, after=user(1, None))])
    (reason,) = lake.catch_up(lake.config(columns={"include": ["email"]})).summary().paused.values()
    assert reason == "column id of shop.users is in the key and must not be excluded or masked"


VALUES = (
    ("boolean", "true", "true"),
    ("int", "-5", "-5"),
    ("long", "9223372036854775807", "9223372036854775807"),
    ("double", "0.5D", "0.5"),
    ("decimal(20, 10)", "cast('0.0000000001' as decimal(20,10))", "0.0000000001"),
    ("decimal(38, 0)", f"cast('-{'9' * 38}' as decimal(38,0))", "-" + "9" * 38),
    ("decimal(38, 38)", f"cast('0.{'9' * 38}' as decimal(38,38))", f"{Decimal('0.' + '9' * 38)}"),
    ("string", "'größe 🦊 \\u0000'", "größe 🦊 \x00"),
    ("string", "''", ""),
    ("date", "date'2024-02-29'", "2024-02-29"),
    ("timestamp", "timestamp_ntz'2024-02-29 10:00:00.120000'", "2024-02-29 10:00:00.12"),
    ("timestamptz", "timestamp'2024-02-29 10:00:00Z'", "2024-02-29 10:00:00"),
)


def test_transforms_in_spark_equal_those_in_python_for_every_type(lake: LakeHarness) -> None:
    transforms = (KeyedHash(KEY.encode()), KeyedHash(b"k" * 100), KeepLast(3), FixedText("it's `x`"))
    frame = lake.base.sql("select " + ", ".join(f"{text} as v{i}" for i, (_, text, _) in enumerate(VALUES)))
    columns = [
        transformed(frame[f"v{i}"], LakeType.parse(kind), transform)
        for i, (kind, _, _) in enumerate(VALUES)
        for transform in transforms
    ]
    (row,) = frame.select(*columns).collect()
    assert list(row) == [transform.of_text(text) for _, _, text in VALUES for transform in transforms]


def test_hash_key_is_not_shown_in_spark_plans(lake: LakeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASH_KEY", KEY)
    config = lake.config(columns={"hash": ["x"], "hash_key": {"env": "HASH_KEY"}})
    name = "spark.sql.redaction.string.regex"
    assert name not in session_conf(lake.config(), [])
    session = lake.base.newSession()
    session.conf.set(name, session_conf(config, [])[name])
    transform = KeyedHash(KEY.encode())
    frame = session.sql("select 'x' as v").select(transformed(F.col("v"), LakeType("string"), transform))
    shown = str(frame._jdf.queryExecution().toString()).lower()
    assert "sha2" in shown
    assert not [pad for pad in transform.pads if pad.hex() in shown]


def test_binary_values_are_hashed_as_bytes_and_masked_as_hexadecimal_text(lake: LakeHarness) -> None:
    frame = lake.base.sql("select X'00FF' as b, cast(null as binary) as n")
    binary = LakeType("binary")
    transforms = (KeyedHash(KEY.encode()), KeepLast(2))
    columns = [transformed(frame[name], binary, transform) for name in ("b", "n") for transform in transforms]
    (row,) = frame.select(*columns).collect()
    assert list(row) == [hmac.new(KEY.encode(), b"\x00\xff", "sha256").hexdigest(), "**FF", None, None]
