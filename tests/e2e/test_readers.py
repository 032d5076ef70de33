"""Every reader of source rows gives MySQL's own values, whatever the settings of the server and of the machine are."""

from datetime import UTC, date, datetime

import pytest

from replicator.lake.reading.reader import open_catalog
from replicator.model.common import quoted
from replicator.operations.status.read import read_status
from tests.support.mirror import HEALING_MIRROR, START_S, MirrorProcess, running
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import await_rereads
from tests.support.server_settings import ENVIRONMENTS, Environment, server_settings
from tests.support.source import SourceDatabase

CHARACTER_SETS = ("armscii8", "dec8", "geostd8", "hp8", "keybcs2", "koi8u", "swe7", "latin1", "greek")
NAMES = (
    *("{ts'2001-01-01'}", "{d'2001-01-01'}", "{t'01:02:03'}", "{fn now()}", "{call p}", "{x"),
    *(":x", "%s", "%(x)s", "?", "y;z", "a--b", "a/*b", "a*/b", "#c", "it's", 'say "x"', "${z}"),
)
"""What drivers give a meaning to, of which the names in backticks have none."""
SPARK, DRIVER = "Spark", "the driver"
READERS = {"by_driver": "", "by_spark": ", document JSON"}
"""Tables with a kind of columns that only one of the readers reads."""


MOMENTS = (
    *("2026-11-01 05:30:00", "2026-11-01 06:30:00"),
    *("2026-03-08 07:30:00.000001", "2026-07-01 00:00:00"),
)
COLUMNS = "at TIMESTAMP(6) NULL, dt DATETIME, t TIME(3), c CHAR(5), price DECIMAL(10,2), f FLOAT"
MODES = "SET SESSION time_zone = '+00:00', sql_mode = ''"


def created() -> list[str]:
    """Return the statements that create the tables and fill them."""
    texts = ", ".join(f"{name} VARCHAR(60) CHARACTER SET {name}" for name in CHARACTER_SETS)
    named = ", ".join(f"{quoted(name)} INT" for name in NAMES)
    statements = [MODES]
    for table, more in READERS.items():
        escape, odd = odd_names(table)
        statements += [
            f"CREATE TABLE {table} (id INT PRIMARY KEY, {COLUMNS}, {texts}, {named}{more})",
            f"CREATE TABLE {table}_zeros (id INT PRIMARY KEY, d DATE NOT NULL, n DATE, at TIMESTAMP NOT NULL{more})",
            f"CREATE TABLE {table}_moments (at TIMESTAMP(6) PRIMARY KEY, v INT{more})",
            f"CREATE TABLE {escape} (id INT PRIMARY KEY, v INT{more})",
            f"CREATE TABLE {odd} (`:x` INT, `{{d?` VARCHAR(9), v INT{more}, PRIMARY KEY (`{{d?`, `:x`))",
            *inserted(table, 1),
        ]
    return statements


def odd_names(table: str) -> tuple[str, str]:
    """Return two quoted names of tables, which begin with `table`."""
    return f"`{table}{{ts'2001-01-01'}}`", f"`{table}{{fn now()}} :x %s ? ; -- /*`"


def inserted(table: str, first: int) -> list[str]:
    """Return statements that insert rows with values of all kinds, the first of them with the key `first`."""
    escape, odd = odd_names(table)
    texts = [f"_{name} X'{bytes(letters_of(name)).hex()}'" for name in CHARACTER_SETS]
    values = [
        *("'2026-11-01 01:30:00'", "'-12:34:56.789'", "'a '", "-1.5", "0.1"),
        *texts,
        *(str(i) for i in range(len(NAMES))),
    ]
    columns = ", ".join(("id", "at", "dt", "t", "c", "price", "f", *CHARACTER_SETS, *map(quoted, NAMES)))
    rows = ", ".join(f"({first + i}, '{moment}', {', '.join(values)})" for i, moment in enumerate(MOMENTS))
    zeros = f"({first}, '0000-00-00', '0000-00-00', '0000-00-00')"
    return [
        f"INSERT INTO {table} ({columns}) VALUES {rows}",
        f"INSERT INTO {table}_zeros (id, d, n, at) VALUES {zeros}, ({first + 1}, '2026-01-01', NULL, '{MOMENTS[0]}')",
        *(f"INSERT IGNORE INTO {table}_moments (at, v) VALUES ('{m}', {first})" for m in MOMENTS),
        f"INSERT INTO {escape} (id, v) VALUES ({first}, 1), ({first + 1}, 2)",
        f"INSERT INTO {odd} (`:x`, `{{d?`) VALUES ({first}, 'a'), ({first + 1}, '%s')",
    ]


def letters_of(character_set: str) -> list[int]:
    """Return bytes of letters that the character set has beside those of ASCII."""
    return [0x5B, 0x5C, 0x7B, 0x7D] if character_set == "swe7" else [*range(0xC0, 0xD0)]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
@pytest.mark.long
def test_each_reader_gives_the_source_s_values_whatever_the_settings(
    mirror_database: MirroredDatabaseBuilder, source_database: SourceDatabase, environment: Environment
) -> None:
    with server_settings(source_database, time_zone=environment.time_zone, sql_mode=environment.sql_mode):
        execute(source_database, created())
        mirrored = mirror_database(tables=0, seed_rows=False, extra=HEALING_MIRROR)
        output = mirrored.folder / "out.log"
        with (
            server_settings(source_database, sql_select_limit=1),
            running(mirrored.config, output, TZ=environment.client_zone) as mirror,
        ):
            await_rereads(mirror, 5 * len(READERS))
            assert_readers(mirror)
            assert_equal(mirrored, mirror)
            streamed = [statement for table in READERS for statement in inserted(table, 10)]
            execute(source_database, [MODES, *streamed])
            assert_equal(mirrored, mirror)
            mirrored.assert_verified()
            assert mirror.stop() == 0, mirror.tail()
    assert read_status(mirrored.comparison.config).paused == {}


def execute(database: SourceDatabase, statements: list[str]) -> None:
    with database.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def assert_readers(mirror: MirrorProcess) -> None:
    """Assert that both readers read tables."""
    read = {
        (line["table"].partition(".")[2][:8], line["by"])
        for line in mirror.lines()
        if line["event"] == "reading rows"
    }
    assert read == {("by_drive", DRIVER), ("by_spark", SPARK)}


def assert_equal(mirrored: MirroredDatabase, mirror: MirrorProcess) -> None:
    """Await rows as the source has them; of zero dates, those that `docs/reference/types.md` names."""
    mirrored.comparison.await_equal(mirror, START_S, besides=[f"{table}_zeros" for table in READERS])
    epoch, lake = datetime(1970, 1, 1, tzinfo=UTC), mirrored.comparison.config.lake
    zeros, others = (
        (epoch.date(), None, epoch),
        (date(2026, 1, 1), None, datetime(2026, 11, 1, 5, 30, tzinfo=UTC)),
    )
    with open_catalog(lake) as catalog:
        for table in READERS:
            rows = catalog.load_table((lake.namespace, f"{table}_zeros")).scan().to_arrow().to_pylist()
            assert {row["id"] % 9: (row["d"], row["n"], row["at"]) for row in rows} == {1: zeros, 2: others}
