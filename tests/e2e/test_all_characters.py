"""Every character of every character set, through events and through each reader of rows."""

from collections.abc import Sequence
from itertools import zip_longest

import pytest

from replicator.batch.steps.unclear_values import MISREAD
from replicator.model.types import LOSSY_TEXTS, Encoding
from replicator.operations.status.read import read_status
from tests.support.conformance import ConformancePage
from tests.support.encodings import ENCODINGS
from tests.support.encodings import Encoding as EventEncoding
from tests.support.mirror import HEALING_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabaseBuilder
from tests.support.rereads import await_rereads
from tests.support.source import SourceDatabase

AT_ONCE = 50
"""Characters of a text."""
BEGINNING = "<"
"""What each text begins with: Java drops a byte order mark there."""
UNICODE = ("gb18030", "utf16", "utf16le", "utf32", "utf8mb4")
EXCEPT = {
    **dict.fromkeys(
        ("ucs2", "utf16", "utf32"),
        "U+FEFF or U+FFFE as the first character: Java takes it for a byte order mark",
    ),
    "big5": "A15A, A1FE, A240, A2CC and A2CE, which only clients with this character set write",
    "eucjpms": "private use characters that Java takes for others",
}
KINDS = ("exact", "lossy")
READERS = {"driver": "", "spark": ", document JSON"}
LATER = 10_000
"""What is added to the keys of rows that events have."""


@pytest.mark.parametrize("encoding", [ENCODINGS[0], ENCODINGS[2]], ids=str)
@pytest.mark.long
def test_every_character_is_the_source_s(
    mirror_database: MirroredDatabaseBuilder,
    source_database: SourceDatabase,
    conformance: ConformancePage,
    encoding: EventEncoding,
) -> None:
    found = [str(row[0]) for row in source_database.rows("SHOW CHARACTER SET")]
    texts = {name: texts_of(source_database, name) for name in sorted(found) if name != "binary"}
    sets = {kind: [name for name in texts if is_lossy(name) == (kind == "lossy")] for kind in KINDS}
    tables = {(kind, reader): f"{kind}_{reader}" for kind in KINDS for reader in READERS}
    for (kind, reader), table in tables.items():
        columns = ", ".join(f"{name} VARCHAR({AT_ONCE + 1}) CHARACTER SET {name}" for name in sets[kind])
        source_database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns}{READERS[reader]})")
        insert(source_database, table, {name: texts[name] for name in sets[kind]})
    mirrored = mirror_database(
        tables=0,
        seed_rows=False,
        log=encoding.log(source_database),
        prepare=("CREATE TABLE syllables (k VARCHAR(9) CHARACTER SET euckr PRIMARY KEY, v INT)",),
        extra=HEALING_MIRROR,
    )
    compare = mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        await_rereads(mirror, len(tables) + 1)
        compare.await_equal(mirror, START_S)
        for (kind, _), table in tables.items():
            names = ", ".join(sets[kind])
            source_database.execute(
                f"INSERT INTO {table} (id, {names}) SELECT id + {LATER}, {names} FROM {table}"
            )
        source_database.execute(
            "INSERT INTO syllables VALUES ('똠', 1), ('뢔', 2), ('가', 3)",
            "UPDATE syllables SET v = 4 WHERE k = '똠'",
            "DELETE FROM syllables WHERE k = '뢔'",
        )
        compare.await_equal(mirror, START_S)
        until(lambda: misread(mirror) >= {"lossy_driver", "syllables"}, seconds=START_S, doing="re-reads")
        source_database.execute(f"UPDATE lossy_spark SET latin1 = x'3C818D' WHERE id = {LATER + 1}")
        compare.await_equal(mirror, START_S)
        mirrored.assert_verified()
        assert mirror.stop() == 0, mirror.tail()
    assert misread(mirror) == {"lossy_driver", "lossy_spark", "syllables"}
    assert readers(mirror) == {
        (table, "the driver" if reader == "driver" else "Spark") for (_, reader), table in tables.items()
    } | {("syllables", "the driver")}
    assert read_status(compare.config).paused == {}
    with conformance.part("Character sets") as part:
        for name in texts:
            part.record(name, "events", "read again" if is_lossy(name) else "same")
            part.record(name, "driver", "same")
            part.record(name, "Spark", "same")
            if name in EXCEPT:
                part.record(name, "except", EXCEPT[name])


def is_lossy(name: str) -> bool:
    return (Encoding.CP1252 if name == "latin1" else name) in LOSSY_TEXTS


def texts_of(database: SourceDatabase, name: str) -> list[str]:
    """Return SQL expressions of texts with all bytes, or all characters, of a character set."""
    (maximum,) = (int(row[3]) for row in database.rows(f"SHOW CHARACTER SET LIKE '{name}'"))
    if maximum == 1:
        codes = [code for code in range(0x100) if name != "ascii" or code < 0x80]
        return [f"x'{bytes(part).hex()}'" for part in parts(codes)]
    last = 0x1F6FF if name in UNICODE else 0xFFFF
    numbers = f"SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {last}"
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION cte_max_recursion_depth = {last + 1}")
        cursor.execute(
            f"WITH RECURSIVE n AS ({numbers}), "
            "c AS (SELECT i, CONVERT(CAST(UNHEX(LPAD(HEX(i), 8, '0')) AS CHAR CHARACTER SET utf32) USING utf8mb4) AS u "
            "FROM n WHERE i NOT BETWEEN 0xD800 AND 0xDFFF AND i NOT BETWEEN 0x10000 AND 0x1F2FF) "
            f"SELECT i FROM c WHERE CONVERT(CONVERT(u USING {name}) USING utf8mb4) = u COLLATE utf8mb4_bin ORDER BY i"
        )
        codes = [int(row[0]) for row in cursor.fetchall()]
    if name == "eucjpms":
        codes = [code for code in codes if not 0xE000 <= code < 0xF900]
    return [f"_utf8mb4 x'{(BEGINNING + ''.join(map(chr, part))).encode().hex()}'" for part in parts(codes)]


def parts(codes: Sequence[int]) -> list[Sequence[int]]:
    return [codes[i : i + AT_ONCE] for i in range(0, len(codes), AT_ONCE)]


def insert(database: SourceDatabase, table: str, texts: dict[str, list[str]]) -> None:
    rows = [
        f"({number}, {', '.join(value or 'NULL' for value in values)})"
        for number, values in enumerate(zip_longest(*texts.values()), 1)
    ]
    for i in range(0, len(rows), 100):
        database.execute(
            f"INSERT INTO {table} (id, {', '.join(texts)}) VALUES {', '.join(rows[i : i + 100])}"
        )


def misread(mirror: MirrorProcess) -> set[str]:
    """Return the tables that were read again because of their texts."""
    done = [line for line in mirror.lines() if line.get("event") == "re-read done"]
    return {line["table"].rpartition(".")[2] for line in done if line["reason"] == MISREAD}


def readers(mirror: MirrorProcess) -> set[tuple[str, str]]:
    lines = [line for line in mirror.lines() if line.get("event") == "reading rows"]
    return {(line["table"].rpartition(".")[2], line["by"]) for line in lines}
