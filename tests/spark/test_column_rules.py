"""Column rules apply to a column under every name that it has or had in the source."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import pytest

from replicator.config import Config
from replicator.runner.archive_run import apply_archive
from replicator.runner.scheduler import Scheduler
from tests.oracle.avro import AvroTopics
from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    with_key_schema,
    with_value_schema,
)
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness

KEY = "not-a-secret-0123456789"
SECRETS = ("ada@example.org", "open sesame", "987-65-4321", "between us", "bob@example.org")
ID = ColumnSpec("id", "bigint", False)

Format = Literal["json", "json with schemas", "avro"]


def hashed(text: str) -> str:
    return hmac.new(KEY.encode(), text.encode(), "sha256").hexdigest()


@dataclass
class Table:
    """A table `users` of the source, and its log."""

    lake: LakeHarness
    columns: Sequence[ColumnSpec]
    form: Format = "json"
    definitions: bool = True
    avro: AvroTopics = field(default_factory=AvroTopics)
    name: str = "users"
    key: Sequence[str] = ("id",)
    pos: int = 100
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.define("CREATE TABLE users (...)", self.columns, kind="CREATE")

    def define(self, ddl: str, columns: Sequence[ColumnSpec], *, kind: str = "ALTER", **others: Any) -> None:
        self.columns, self.pos = columns, self.pos + 100
        if self.definitions:
            place = Place(1, self.pos)
            value = schema_change_event(place, self.name, columns, self.key, kind=kind, ddl=ddl, **others)
            if self.form == "avro":
                # `AvroTopics` encodes only values of this form.
                value = b'{"schema":{"type":"struct"},"payload":' + value + b"}"
            self.records.append(Record("shop", 0, None, value))

    def insert(self, **row: Any) -> None:
        self.pos += 100
        topic = f"shop.shop.{self.name}"
        key = key_of(row, self.key) if self.key else None
        value = change_event("c", Place(1, self.pos), self.name, after=row)
        if self.form != "json":
            key = None if key is None else with_key_schema(key, self.columns, self.key, topic)
            value = with_value_schema(value, self.columns, topic)
        self.records.append(Record(topic, 0, key, value))

    def flush(self) -> None:
        """Write the collected records to the log."""
        self.lake.write(self.records, avro=self.avro if self.form == "avro" else None)
        self.records.clear()

    def mirrored(self, config: Config) -> Scheduler:
        """Write the collected records to the log, and apply them with a new mirror."""
        self.flush()
        mirror = self.lake.mirror(config)
        apply_archive(mirror)
        return mirror


def assert_nowhere(folder: Path, secrets: Sequence[str] = SECRETS) -> None:
    """Assert that no file of the lake has a secret in its rows, statistics or properties."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert any(file.suffix == ".parquet" for file in files)
    for file in files:
        content = file.read_bytes()
        if file.suffix == ".parquet":
            content += str(pq.ParquetFile(file).read().to_pylist()).encode()
        assert not [s for s in (*secrets, KEY) if s.encode() in content], file


def changes(lake: LakeHarness, table: str = "users") -> list[dict[str, Any]]:
    found = sorted(lake.rows(table, "shop_changes"), key=lambda r: r["_change"]["pos"])
    return [{k: v for k, v in row.items() if k != "_change"} for row in found]


def rows(lake: LakeHarness, table: str = "users") -> list[dict[str, Any]]:
    return sorted(lake.rows(table), key=lambda r: str(r["id"]))


@pytest.fixture
def hash_key(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    monkeypatch.setenv("HASH_KEY", KEY)
    return {"env": "HASH_KEY"}


ODD = (
    ID,
    ColumnSpec("e-mail", "varchar"),
    ColumnSpec("pass word", "varchar"),
    ColumnSpec("ssn#", "varchar"),
    ColumnSpec("größe", "varchar"),
    ColumnSpec("1st", "varchar"),
    ColumnSpec("zip-code", "varchar"),
)
ODD_RULES = {
    "hash": ["E-Mail"],
    "exclude": ["pass *"],
    "mask": {"ssn#": {"keep_last": 2}, "GRÖ*": {"text": "hidden"}, "1st": {"null": True}},
}
ODD_ROW = {
    "e-mail": "ada@example.org",
    "pass word": "open sesame",
    "ssn#": "987-65-4321",
    "größe": "between us",
    "1st": "bob@example.org",
    "zip-code": "12345",
}


@pytest.mark.parametrize("told_by", ["parameter", "definition", "nothing"])
def test_column_rules_apply_to_names_that_avro_does_not_allow(
    lake: LakeHarness, hash_key: Mapping[str, str], told_by: str
) -> None:
    avro = AvroTopics(names=told_by == "parameter")
    table = Table(lake, ODD, "avro", definitions=told_by == "definition", avro=avro)
    table.insert(id=1, **ODD_ROW)
    table.insert(id=2, **ODD_ROW)
    table.records.append(Record("shop.shop.users", 0, b"between us", b"\0\0\0\0\1open sesame"))
    mirror = table.mirrored(lake.config(columns=ODD_RULES | {"hash_key": hash_key}))
    assert mirror.summary().paused == {}
    shown = {
        "e-mail": hashed("ada@example.org"),
        "ssn#": "*********21",
        "größe": "hidden",
        "1st": None,
        "zip-code": "12345",
    }
    if told_by == "nothing":
        avro_names = {
            "e-mail": "e_mail",
            "ssn#": "ssn_",
            "größe": "gr__e",
            "1st": "_st",
            "zip-code": "zip_code",
        }
        shown = {avro_names[name]: value for name, value in shown.items()}
    assert rows(lake) == [{"id": 1} | shown, {"id": 2} | shown]
    assert changes(lake) == rows(lake)
    assert [(r["key"], r["value"]) for r in lake.rows("quarantine", "shop_ops")] == [(None, None)]
    assert_nowhere(lake.folder / "lake")


FORMATS: tuple[Format, ...] = ("json", "json with schemas", "avro")
NAMES = {
    "json": ("email", "contact"),
    "json with schemas": ("email", "contact"),
    "avro": ("e-mail", "contact#"),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("named", "together"), [("old", True), ("old", False), ("new", True)])
@pytest.mark.parametrize("rule", ["exclude", "hash"])
def test_column_rules_apply_to_a_renamed_column_under_both_names(
    lake: LakeHarness, hash_key: Mapping[str, str], form: Format, named: str, together: bool, rule: str
) -> None:
    """The rule is for either name; the events are applied in one batch or in several."""
    old, new = NAMES[form]
    plain = ColumnSpec("plain", "varchar")
    rules: dict[str, Any] = {rule: [old if named == "old" else new]}
    config = lake.config(columns=rules | {"hash_key": hash_key})
    table = Table(lake, (ID, ColumnSpec(old, "varchar"), plain), form)
    table.insert(id=1, **{old: "ada@example.org"}, plain="a")
    if not together:
        assert table.mirrored(config).summary().paused == {}
    ddl = f"ALTER TABLE users RENAME COLUMN `{old}` TO `{new}`"
    table.define(ddl, (ID, ColumnSpec(new, "varchar"), plain))
    table.insert(id=2, **{new: "bob@example.org"}, plain="b")
    for _ in range(2):
        assert table.mirrored(config).summary().paused == {}
        table.insert(id=3, **{new: "open sesame"}, plain="c")
    secret = {1: "ada@example.org", 2: "bob@example.org"}
    shown = {n: {new: hashed(text)} if rule == "hash" else {} for n, text in secret.items()}
    found = rows(lake)[:2]
    assert found == [{"id": 1} | shown[1] | {"plain": "a"}, {"id": 2} | shown[2] | {"plain": "b"}]
    assert_nowhere(lake.folder / "lake")


@pytest.mark.parametrize("rule", ["exclude", "hash"])
def test_table_with_unprotected_values_pauses_when_the_new_name_has_a_stricter_rule(
    lake: LakeHarness, hash_key: Mapping[str, str], rule: str
) -> None:
    config = lake.config(columns={rule: ["contact"], "hash_key": hash_key})
    table = Table(lake, (ID, ColumnSpec("email", "varchar")))
    table.insert(id=1, email="was no secret")
    assert table.mirrored(config).summary().paused == {}
    table.define("ALTER TABLE users RENAME COLUMN email TO contact", (ID, ColumnSpec("contact", "varchar")))
    table.insert(id=2, contact="bob@example.org")
    (reason,) = table.mirrored(config).summary().paused.values()
    assert "email" in reason
    assert_nowhere(lake.folder / "lake")


@pytest.mark.parametrize("form", ["json with schemas", "avro"])
@pytest.mark.parametrize("rule", ["exclude", "hash"])
@pytest.mark.parametrize("together", [True, False])
def test_table_pauses_when_events_replace_a_protected_column_without_a_definition(
    lake: LakeHarness, hash_key: Mapping[str, str], form: Format, rule: str, together: bool
) -> None:
    """No definition says that the column was renamed, and a new mirror has no events with the old name."""
    config = lake.config(columns={rule: ["email"], "hash_key": hash_key})
    table = Table(lake, (ID, ColumnSpec("email", "varchar")), form, definitions=False)
    table.insert(id=1, email="ada@example.org")
    if not together:
        assert table.mirrored(config).summary().paused == {}
    table.columns = (ID, ColumnSpec("contact", "varchar"))
    table.insert(id=2, contact="bob@example.org")
    for _ in range(2):
        (reason,) = table.mirrored(config).summary().paused.values()
        assert "contact" in reason
        assert "email" in reason
    allowed = lake.config(
        columns={rule: ["email"], "include": ["id", "email", "contact"], "hash_key": hash_key}
    )
    assert table.mirrored(allowed).summary().paused == {}
    assert rows(lake)[-1]["contact"] == "bob@example.org"


@pytest.mark.parametrize("together", [True, False])
def test_column_rules_of_a_table_apply_after_it_is_renamed(
    lake: LakeHarness, hash_key: Mapping[str, str], together: bool
) -> None:
    own = {"name": "shop.users", "columns": {"exclude": ["note"], "hash": ["email"]}}
    config = lake.config(columns={"hash_key": hash_key}, table=[own])
    columns = (ID, ColumnSpec("email", "varchar"), ColumnSpec("note", "varchar"))
    table = Table(lake, columns)
    table.insert(id=1, email="ada@example.org", note="between us")
    if not together:
        assert table.mirrored(config).summary().paused == {}
    table.name = "people"
    table.define("RENAME TABLE users TO people", columns, old_name="users")
    table.insert(id=2, email="bob@example.org", note="between us")
    table.records.append(Record("shop.shop.people", 0, b"between us", b'{"op": "open sesame"'))
    assert table.mirrored(config).summary().paused == {}
    assert rows(lake, "people") == [
        {"id": 1, "email": hashed("ada@example.org")},
        {"id": 2, "email": hashed("bob@example.org")},
    ]
    assert_nowhere(lake.folder / "lake")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("changelog_only", [True, False])
def test_new_table_pauses_until_all_its_columns_have_rules(
    lake: LakeHarness, form: Format, changelog_only: bool
) -> None:
    rules: dict[str, Any] = {"exclude": ["email"], "include": ["id"], "unlisted": "pause"}
    settings: dict[str, Any] = {}
    if changelog_only:
        settings = {"apply": {"keyless": "changelog"}, "source": {"tables": ["shop.*"]}}
    columns = (ID, ColumnSpec("email", "varchar"), ColumnSpec("note-1", "varchar"))
    table = Table(lake, columns, form, key=() if changelog_only else ("id",))
    table.insert(id=1, **{"email": "ada@example.org", "note-1": "between us"})
    (reason,) = table.mirrored(lake.config(columns=rules, **settings)).summary().paused.values()
    assert "no column rule of shop.users lists note-1" in reason
    with lake.catalog() as catalog:
        assert not any(
            catalog.list_tables(n) for n in ("shop", "shop_changes") if catalog.namespace_exists(n)
        )
    listed = rules | {"include": ["id", "note-*"]}
    assert table.mirrored(lake.config(columns=listed, **settings)).summary().paused == {}
    assert changes(lake) == [{"id": 1, "note-1": "between us"}]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("ending", ["left out", "as it is"])
def test_table_pauses_until_an_added_column_has_a_rule(lake: LakeHarness, form: Format, ending: str) -> None:
    own = {"include": ["id"], "exclude": ["email"], "unlisted": "pause"}

    def config(**changed: Any) -> Config:
        return lake.config(table=[{"name": "shop.users", "columns": own | changed}])

    email = ColumnSpec("email", "varchar")
    table = Table(lake, (ID, email), form)
    table.insert(id=1, email="ada@example.org")
    assert table.mirrored(config()).summary().paused == {}
    table.define("ALTER TABLE users ADD COLUMN note VARCHAR(200)", (ID, email, ColumnSpec("note", "varchar")))
    for number in (2, 3):
        table.insert(id=number, email="bob@example.org", note="between us")
        (reason,) = table.mirrored(config()).summary().paused.values()
        assert "no column rule of shop.users lists note" in reason
        assert "note" not in rows(lake)[0]
        assert_nowhere(lake.folder / "lake")
    if ending == "left out":
        assert table.mirrored(config(exclude=["email", "note"])).summary().paused == {}
        assert rows(lake) == [{"id": 1}, {"id": 2}, {"id": 3}]
        assert_nowhere(lake.folder / "lake")
    else:
        assert table.mirrored(config(include=["id", "note"])).summary().paused == {}
        assert [r["note"] for r in rows(lake)] == [None, "between us", "between us"]
        assert [r["note"] for r in changes(lake)] == [None, "between us", "between us"]
