"""Columns that are excluded, masked or hashed: their values are written nowhere."""

import hmac
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

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
