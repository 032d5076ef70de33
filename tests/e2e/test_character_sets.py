"""Text in character sets that Debezium decodes wrongly: every character that each of them has."""

import pytest

from replicator.operations.status.read import read_status
from tests.support.encodings import ENCODINGS, Encoding
from tests.support.mirror import FAST_MIRROR, START_S, running
from tests.support.mirrored_database import MirroredDatabaseBuilder
from tests.support.source import SourceDatabase

CHARACTER_SETS = ("armscii8", "dec8", "geostd8", "hp8", "keybcs2", "koi8u", "swe7")
LOST = (0x81, 0x8D, 0x8F, 0x90, 0x9D)
"""Bytes that Cp1252 lacks. In these sets, they are control characters."""
CODES = [code for code in range(0x20, 0x100) if code not in LOST and not 0x7F <= code < 0xA0]
COLUMNS = ", ".join(f"{name} TEXT CHARACTER SET {name}" for name in CHARACTER_SETS)


def inserted(table: str, first: int) -> list[str]:
    """Return statements that insert a row for each character, in all sets that have it."""
    values = ", ".join(
        f"({first + code}, "
        + ", ".join(
            f"IF(CONVERT(_{name} X'{code:02X}' USING utf8mb4) = '?' AND {code} <> 63, NULL, _{name} X'{code:02X}')"
            for name in CHARACTER_SETS
        )
        + ")"
        for code in CODES
    )
    return [f"INSERT INTO {table} VALUES {values}"]


@pytest.mark.parametrize(
    "encoding",
    [pytest.param(e, marks=[] if e.name == "JSON without schemas" else pytest.mark.long) for e in ENCODINGS],
    ids=str,
)
@pytest.mark.long
def test_mirror_equals_the_source_in_every_character_set(
    mirror_database: MirroredDatabaseBuilder, source_database: SourceDatabase, encoding: Encoding
) -> None:
    mirrored = mirror_database(
        tables=0,
        seed_rows=False,
        prepare=(
            f"CREATE TABLE letters (id INT PRIMARY KEY, {COLUMNS})",
            f"CREATE TABLE rows_of_letters (id INT, {COLUMNS})",
            "CREATE TABLE by_letter (k VARCHAR(8) PRIMARY KEY, v INT) CHARACTER SET koi8u",
            *inserted("letters", 0),
            "INSERT INTO by_letter VALUES (_koi8u X'A4', 1), (_koi8u X'A6', 2)",
        ),
        log=encoding.log(source_database),
        extra=FAST_MIRROR,
    )
    database, compare = mirrored.database, mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        database.execute(
            *inserted("letters", 1000),
            *inserted("rows_of_letters", 0),
            "DELETE FROM rows_of_letters WHERE id % 3 = 0",
            "UPDATE rows_of_letters SET id = -id WHERE id % 5 = 0",
            "INSERT INTO by_letter VALUES (_koi8u X'A7', 3)",
            "DELETE FROM by_letter WHERE v = 1",
            "UPDATE by_letter SET k = _koi8u X'AD' WHERE v = 2",
        )
        compare.await_equal(mirror, START_S)
        mirrored.assert_verified()
        assert mirror.stop() == 0, mirror.tail()
    assert read_status(compare.config).paused == {}
