"""Reserved and unusual names of databases, tables and columns on the real stack, all in one mirror."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.model.common import quoted
from replicator.operations.connector import register
from replicator.sources.archive.reader import ArchiveReader
from tests.support.conformance import ConformancePage
from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, Comparison, MirrorProcess, running
from tests.support.source import SourceDatabase

TABLES = {
    "a space": ("a b",),
    "letters outside ASCII": ("größe", "日本語"),
    "a backtick": ("back`tick",),
    "quotes": ('quo"te', "it's"),
    "a dot": ("dot.ted", ".."),
    "a semicolon, a comma": ("semi;colon, comma",),
    "slashes": ("with/slash", "back\\slash"),
    "other signs": (
        "per%20cent",
        "hash#tag",
        "quest?ion",
        "at@dollar$",
        "star*",
        "[br]acket",
        "{brace}",
        "-dash",
    ),
    "a digit first": ("0",),
    "SQL keywords": ("select", "table"),
    "64 letters": ("x" * 64, "ä" * 63 + "z"),
    "another's letters in another case": ("Case", "case"),
    "what Iceberg or Spark reserve": ("files", "snapshots", "changes", "_pos", "branch_x"),
}
COLUMNS = {
    "a space": ("a b",),
    "letters outside ASCII": ("größe", "日本"),
    "a backtick": ("a`b",),
    "quotes": ('a"b', "it's"),
    "a dot": ("a.b",),
    "a semicolon, a comma": ("semi;colon", "com,ma"),
    "slashes": ("with/slash", "back\\slash"),
    "other signs": ("%s", "$x", "@x", "{x}", "[x]", "#", "*", "?", "-"),
    "a digit first": ("1",),
    "SQL keywords": ("select", "order", "element"),
    "64 letters": ("c" * 64, "ß" * 64),
    "what the engine uses itself": (
        *(
            "before",
            "after",
            "op",
            "offset",
            "partition",
            "k0",
            "place",
            "log_key",
            "key",
            "value",
            "_change",
        ),
    ),
    "what Iceberg or Spark reserve": (
        *("_file", "_deleted", "_spec_id", "_partition", "_change_type", "_row_id", "_file_"),
    ),
}
ALL_TABLES = [name for names in TABLES.values() for name in names]
ALL_COLUMNS = [name for names in COLUMNS.values() for name in names]
SHARED = ("two words", "two$words")
"""Two tables whose events Debezium writes to one topic."""


class AwkwardDatabases:
    """Two databases with unusual table names; one of them has an unusual name too."""

    def __init__(self, plain: SourceDatabase, folder: Path) -> None:
        self.plain = plain
        self.awkward = SourceDatabase(plain.stack, f'{plain.name}.Ü `b` "q"', plain.prefix)
        self.folder = folder
        self.config = folder / "names.toml"

    def create(self) -> None:
        self.plain.execute(f"CREATE DATABASE {quoted(self.awkward.name)} CHARACTER SET utf8mb4")
        statements = [
            f"CREATE TABLE {quoted(name)} (id INT PRIMARY KEY, v VARCHAR(20))"
            for name in (*ALL_TABLES, *SHARED)
        ]
        typed = ", ".join(f"{quoted(name)} INT" for name in ALL_COLUMNS)
        statements.append(
            f"CREATE TABLE `columns` (`_pos` INT, `k``e.y s` VARCHAR(20), {typed}, PRIMARY KEY (`k``e.y s`, `_pos`))"
        )
        statements.append("CREATE TABLE `no key` (`_pos` INT NOT NULL, `a b` INT NOT NULL, v VARCHAR(20))")
        self.plain.execute(*statements)
        self.awkward.execute("CREATE TABLE `in. there` (`_pos` INT PRIMARY KEY, v VARCHAR(20))")

    def insert(self, first: int) -> None:
        for name in (*ALL_TABLES, *SHARED):
            self.plain.execute(f"INSERT INTO {quoted(name)} VALUES ({first}, 'ä'), ({first + 1}, NULL)")
        for number in (first, first + 1):
            values = ", ".join(str(number * 1000 + i) for i in range(len(ALL_COLUMNS)))
            self.plain.execute(f"INSERT INTO `columns` VALUES ({number}, 'k{number}', {values})")
        self.plain.execute(f"INSERT INTO `no key` VALUES ({first}, 1, 'x'), ({first}, 2, 'y')")
        self.awkward.execute(f"INSERT INTO `in. there` VALUES ({first}, 'x'), ({first + 1}, 'y')")

    def change(self, first: int) -> None:
        for name in (*ALL_TABLES, *SHARED):
            self.plain.execute(
                f"UPDATE {quoted(name)} SET v = 'changed' WHERE id = {first}",
                f"DELETE FROM {quoted(name)} WHERE id = {first + 1}",
            )
        changed = ", ".join(f"{quoted(name)} = -{i}" for i, name in enumerate(ALL_COLUMNS))
        self.plain.execute(
            f"UPDATE `columns` SET {changed} WHERE `_pos` = {first}",
            f"UPDATE `columns` SET `_pos` = `_pos` + 100 WHERE `_pos` = {first + 1}",
            f"UPDATE `no key` SET v = 'changed' WHERE `a b` = 1 AND `_pos` = {first}",
            f"DELETE FROM `no key` WHERE `a b` = 2 AND `_pos` = {first}",
        )
        self.awkward.execute(f"UPDATE `in. there` SET v = 'changed' WHERE `_pos` = {first}")

    def configure(self) -> None:
        (self.folder / "lake").mkdir()
        name, odd = self.plain.name, self.awkward.name
        tables = [f"{name}.{pattern}" for pattern in ("*", "two words")] + [f"{odd}.in. there"]
        text = self.plain.config_text(self.folder, FAST_MIRROR)
        wanted = f"tables = {json.dumps(tables, ensure_ascii=False)}"
        text = text.replace(f'tables = ["{name}.*"]', wanted)
        text += f"""
[[table]]
name = "{name}.no key"
key = ["_pos", "a b"]
partition = ["bucket(2, `_pos`)", "truncate(2, `a b`)"]
[[table]]
name = "{name}.columns"
partition = ["bucket(2, `_pos`)", "truncate(3, `k``e.y s`)"]
strategy = "merge"
"""
        self.config.write_text(text)

    def differences(self) -> dict[str, str]:
        """Return the differences of all tables but those that share a topic."""
        plain, odd = (Comparison.of(d, self.config).differences() for d in (self.plain, self.awkward))
        return {name: text for name, text in (plain | odd).items() if name not in SHARED}

    def await_equal(self, mirror: MirrorProcess) -> None:
        for database in (self.plain, self.awkward):
            Comparison.of(database, self.config).await_equal(mirror, START_S, besides=SHARED)

    def drop(self) -> None:
        self.plain.execute(f"DROP DATABASE IF EXISTS {quoted(self.awkward.name)}")


@pytest.fixture
def databases(source_database: SourceDatabase, tmp_path: Path) -> Iterator[AwkwardDatabases]:
    made = AwkwardDatabases(source_database, tmp_path)
    made.create()
    yield made
    made.drop()


def replicator(*arguments: str) -> str:
    ran = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.long
def test_databases_tables_and_columns_with_reserved_or_unusual_names_are_mirrored(
    databases: AwkwardDatabases, conformance: ConformancePage
) -> None:
    databases.insert(1)
    databases.configure()
    config = str(databases.config)
    register(load(databases.config))
    with running(databases.config, databases.folder / "out.log") as mirror:
        databases.await_equal(mirror)
        databases.insert(11)
        databases.change(11)
        databases.await_equal(mirror)
        assert mirror.stop() == 0, mirror.tail()
    status = json.loads(replicator("status", "-c", config, "--json"))
    sources = {table["source"]: table["state"] for table in status["tables"]}
    wanted = {f"{databases.plain.name}.{name}" for name in (*ALL_TABLES, "columns", "no key")}
    assert sources == dict.fromkeys(wanted | {f"{databases.awkward.name}.in. there"}, "current")
    (paused,) = status["paused"].items()
    assert paused[0] in {f"{databases.plain.name}.{name}" for name in SHARED}
    assert all(name in paused[1] for name in SHARED)
    with open_catalog(load(databases.config).lake) as catalog:
        namespace = load(databases.config).lake.namespace
        for name in (*ALL_TABLES, "columns", "no key", "in. there"):
            for space in (namespace, f"{namespace}_changes"):
                at = catalog.load_table((space, name)).location()
                assert at.startswith(f"{databases.folder / 'lake'}/{space}/")
                assert "/" not in at.removeprefix(f"{databases.folder / 'lake'}/{space}/")
    replicator("record", "-c", config, "--to", str(databases.folder / "archive"), "--until-caught-up")
    assert len(ArchiveReader(databases.folder / "archive").end_offsets()) == len(ALL_TABLES) + 5
    with conformance.part("Names") as part:
        reserved = "what Iceberg or Spark reserve"
        for column, found in (("table", TABLES), ("column", COLUMNS)):
            for row in found:
                appended = (row, column) == (reserved, "column")
                part.record(row, column, "same, an underscore appended" if appended else "same")
        for row in ("a space", "letters outside ASCII", "a backtick", "quotes", "a dot"):
            part.record(row, "database", "same")
        for row in ("a space", "a backtick", "a dot", reserved):
            part.record(row, "key and partition", "same")
        part.record("what makes two tables share a topic", "table", "refused: one pauses, with the reason")
