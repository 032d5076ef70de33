"""Schema changes of every kind on a real MySQL while the mirror runs, in every encoding."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.operations.connector import register
from replicator.operations.status.read import read_status
from tests.support.conformance import ConformancePage
from tests.support.encodings import ENCODINGS, Encoding
from tests.support.mirror import FAST_MIRROR, START_S, Comparison, running, until
from tests.support.source import SourceDatabase

COLUMNS = (
    "id INT NOT NULL PRIMARY KEY, a INT, b INT, c VARCHAR(20) DEFAULT 'c', n SMALLINT, m DECIMAL(10,2), "
    "t DATETIME(6), e ENUM('x', 'y'), s VARCHAR(40) CHARACTER SET latin1, k INT NOT NULL"
)
ROW = "a = {0}, b = {0} + 100, n = {0}, m = {0} / 8, t = '2024-02-29 23:59:59.123456', e = 'y', s = 'größe', z2 = 'z'"


@dataclass(frozen=True)
class Case:
    """A kind of schema change: its statements, each followed by writes, and the mirror's columns afterwards."""

    kind: str
    statements: Sequence[str]
    lake: str = "id a b c n m t e s k"


CASES = (
    Case(
        "add column at the end, in the middle, first",
        (
            "ALTER TABLE {t} ADD z1 INT NOT NULL DEFAULT 7",
            "ALTER TABLE {t} ADD z2 VARCHAR(9) NOT NULL AFTER a, ADD z3 DECIMAL(8,3) DEFAULT 1.5 FIRST",
        ),
        "z3 id a z2 b c n m t e s k z1",
    ),
    Case("drop column", ("ALTER TABLE {t} DROP COLUMN c",), "id a b n m t e s k"),
    Case(
        "drop column and add one of the same name",
        (
            "ALTER TABLE {t} DROP COLUMN c, ADD COLUMN c VARCHAR(20) NOT NULL DEFAULT 'again' AFTER b",
            "ALTER TABLE {t} DROP a",
            "ALTER TABLE {t} ADD a INT AFTER id",
        ),
    ),
    Case(
        "rename column",
        ("ALTER TABLE {t} RENAME COLUMN a TO `a new`", "ALTER TABLE {t} CHANGE c d VARCHAR(30)"),
        "id a\u00a0new b d n m t e s k",
    ),
    Case(
        "columns that exchange their names",
        # Debezium 3.6 stops at a statement that exchanges them at once.
        (
            "ALTER TABLE {t} RENAME COLUMN a TO x",
            "ALTER TABLE {t} RENAME COLUMN b TO a",
            "ALTER TABLE {t} RENAME COLUMN x TO b",
        ),
        "id b a c n m t e s k",
    ),
    Case(
        "reorder columns",
        ("ALTER TABLE {t} MODIFY a INT AFTER e, MODIFY s VARCHAR(40) FIRST",),
        "s id b c n m t e a k",
    ),
    Case(
        "widen type",
        ("ALTER TABLE {t} MODIFY n INT", "ALTER TABLE {t} MODIFY n BIGINT, MODIFY m DECIMAL(14,2)"),
    ),
    Case("narrow type", ("ALTER TABLE {t} MODIFY a SMALLINT, MODIFY t DATETIME(2), MODIFY m DECIMAL(9,1)",)),
    Case(
        "change type",
        (
            "ALTER TABLE {t} MODIFY n VARCHAR(30), MODIFY m DECIMAL(14,4)",
            "ALTER TABLE {t} MODIFY a DECIMAL(12,1), MODIFY b DOUBLE",
        ),
    ),
    Case("change nullability", ("ALTER TABLE {t} MODIFY a INT NOT NULL, MODIFY k INT NULL",)),
    Case("labels of an ENUM", ("ALTER TABLE {t} MODIFY e ENUM('w', 'x', 'y', 'z,''')",)),
    Case("convert character set", ("ALTER TABLE {t} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",)),
    Case("change primary key", ("ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (k)",)),
    Case("rename key column", ("ALTER TABLE {t} CHANGE id `no` INT NOT NULL",), "no a b c n m t e s k"),
    Case(
        "drop table and create it again",
        (
            "DROP TABLE {t}",
            f"CREATE TABLE {{t}} ({COLUMNS.replace('a INT', 'a VARCHAR(9)')})",
        ),
    ),
    Case("rename table", ("RENAME TABLE {t} TO {t}_new",)),
    Case(
        "rename table by ALTER",
        ("ALTER TABLE {t} RENAME TO {t}_new, ADD z1 INT NOT NULL DEFAULT 7",),
        "id a b c n m t e s k z1",
    ),
)
HEALS = '[heal]\nmode = "auto"\nmin_interval = "1 second"'
POLICIES = {
    "add column at the end, in the middle, first": "add",
    "drop column": "drop",
    "rename column": "rename",
    "reorder columns": "order",
    "change type": "type",
    "change primary key": "key",
    "drop table and create it again": "recreate",
}
IGNORED = {
    "add": "id a b c n m t e s k",
    "drop": "id a b c n m t e s k",
    "order": "id a b c n m t e s k",
    "rename": "id a\u00a0new b d n m t e s k",
}


@dataclass(frozen=True)
class Table:
    """A table for one case under one policy."""

    case: Case
    policy: str
    name: str

    @property
    def final_name(self) -> str:
        return f"{self.name}_new" if self.case.kind.startswith("rename table") else self.name


def tables() -> list[Table]:
    found = []
    for number, case in enumerate(CASES):
        for policy in ("evolve", "ignore", "fail"):
            kind = POLICIES.get(case.kind)
            if policy == "evolve" or (kind is not None and (policy == "fail" or kind in IGNORED)):
                found.append(Table(case, policy, f"c{number:02}_{policy}"))
    return found


Texts = dict[int, str]
"""Key → value of the column that every write changes."""


class Writer:
    """Write to tables whose columns change."""

    def __init__(self, database: SourceDatabase) -> None:
        self.database = database
        self.next = 0
        self.before: dict[str, list[Texts]] = {}
        """Table → its rows after its creation, and just before the first change of its columns."""

    def create(self, table: Table) -> None:
        self.database.execute(f"CREATE TABLE {table.name} ({COLUMNS}) DEFAULT CHARACTER SET utf8mb4")
        self.insert(table.name, 6)
        self.before[table.name] = [self.texts(table.name)]

    def texts(self, name: str) -> Texts:
        return {int(key): text for key, text in self.database.rows(f"SELECT id, s FROM {name}")}

    def columns(self, name: str) -> set[str]:
        return {str(row[0]) for row in self.database.rows(f"SHOW COLUMNS FROM `{name}`")}

    def insert(self, name: str, count: int) -> None:
        present = self.columns(name)
        key = "no" if "no" in present else "id"
        for _ in range(count):
            self.next += 1
            values = [
                part for part in ROW.format(self.next % 50).split(", ") if part.split(" ")[0] in present
            ]
            values += [f"{key} = {self.next}", f"k = {self.next + 1000}"]
            self.database.execute(f"INSERT INTO {name} SET {', '.join(values)}")

    def write(self, name: str) -> None:
        """Insert, update and delete rows from before and after the last schema change."""
        self.insert(name, 2)
        key = "no" if "no" in self.columns(name) else "id"
        keys = [int(row[0]) for row in self.database.rows(f"SELECT `{key}` FROM {name} ORDER BY 1")]
        text = "s = CONCAT(s, '!')"
        self.database.execute(
            f"UPDATE {name} SET {text} WHERE `{key}` IN ({keys[1]}, {keys[-1]})",
            f"DELETE FROM {name} WHERE `{key}` = {keys[0]}",
        )

    def seen_before(self, name: str) -> set[tuple[int, str]]:
        """Return every row that a table had at some time before the first change of its columns."""
        first, last = self.before[name]
        # The last writes append "!" to rows that existed without it.
        return {*first.items(), *last.items(), *((key, text.removesuffix("!")) for key, text in last.items())}

    def change(self, table: Table) -> None:
        self.write(table.name)
        self.before[table.name].append(self.texts(table.name))
        for statement in table.case.statements:
            self.database.execute(statement.format(t=table.name))
            if not statement.startswith("DROP TABLE"):
                self.write(table.final_name)


def lake_texts(config: Path, table: str) -> Texts:
    loaded = load(config)
    with open_catalog(loaded.lake) as catalog:
        found = catalog.load_table((loaded.lake.namespace, table)).scan().to_arrow().to_pylist()
    return {row["id"]: row["s"] for row in found}


def lake_columns(config: Path, table: str) -> list[str]:
    loaded = load(config)
    with open_catalog(loaded.lake) as catalog:
        return [f.name for f in catalog.load_table((loaded.lake.namespace, table)).schema().fields]


def policy_sections(database: SourceDatabase, found: Sequence[Table]) -> str:
    return "\n".join(
        f'[[table]]\nname = "{database.name}.{t.name}"\n'
        f'schema_changes = {{ {POLICIES[t.case.kind]} = "{t.policy}" }}'
        for t in found
        if t.policy != "evolve"
    )


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.long
def test_schema_change_of_every_kind_is_applied_by_its_policy_while_the_mirror_runs(
    encoding: Encoding, source_database: SourceDatabase, tmp_path: Path, conformance: ConformancePage
) -> None:
    database, found, config = source_database, tables(), tmp_path / "mirror.toml"
    (tmp_path / "lake").mkdir()
    extra = f"{FAST_MIRROR}\n{HEALS}\n{policy_sections(database, found)}"
    lines = f"{encoding.log(database)}\n[lake]"
    config.write_text(database.config_text(tmp_path, extra).replace("[lake]", lines))
    writer = Writer(database)
    for table in found:
        writer.create(table)
    register(load(config))
    compare = Comparison.of(database, config)
    others = {t.name for t in found if t.policy != "evolve"}
    with running(config, tmp_path / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        for table in found:
            writer.change(table)
        compare.await_equal(mirror, START_S, besides=others)
        wanted = {f"{database.name}.{t.name}" for t in found if t.policy == "fail"}
        until(
            lambda: read_status(load(config)).paused.keys() >= wanted,
            seconds=START_S,
            doing="forbidden changes pause",
        )
        until(
            lambda: all(t.state in ("current", "paused", "gone") for t in read_status(load(config)).tables),
            seconds=START_S,
            doing="nothing is left to do",
        )
        assert mirror.stop() == 0, mirror.tail()
    status = read_status(load(config))
    assert status.paused.keys() == wanted
    noted = {t.table.split(".")[-1]: [c for n in t.schema_changes for c in n.changes] for t in status.tables}
    columns = [f"{policy}, {encoding.name}" for policy in ("evolve", "ignore", "fail")]
    with conformance.part("Schema changes", columns=columns) as part:
        for table in found:
            present = " ".join(n.replace(" ", "\u00a0") for n in lake_columns(config, table.final_name))
            expected = IGNORED[POLICIES[table.case.kind]] if table.policy == "ignore" else table.case.lake
            if table.policy == "fail":
                assert present == "id a b c n m t e s k", table
                # The mirror has only rows from before the change.
                assert lake_texts(config, table.name).items() <= writer.seen_before(table.name), table
                outcome = "paused"
            elif table.policy == "ignore":
                assert present == expected, table
                assert lake_texts(config, table.name) == writer.texts(table.name), table
                outcome = "dropped and added" if table.case.kind == "rename column" else "left as it was"
            else:
                assert present == expected, table
                outcome = "same"
            part.record(table.case.kind, f"{table.policy}, {encoding.name}", outcome)
    assert any(change.startswith("rename column a to ") for change in noted["c04_evolve"])
    assert "drop column a" in noted["c02_evolve"] or "add column a int" in noted["c02_evolve"]
