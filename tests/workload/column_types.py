"""Every MySQL column type and attribute, with values that are hard to replicate: extremes, NULL, zero, unusual text.

Each case is one column; a table has many of them. Values are SQL expressions. If a case has fewer values than its table
has rows, they are repeated from the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MODES: Final = "SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'"
"""The settings of a session that writes these values, which include zero dates."""


@dataclass(frozen=True, slots=True)
class TypeCase:
    """One column.

    Attributes:
        label: its name on the page.
        definition: its SQL type and attributes.
        values: SQL expressions other than NULL; NULL is added if the column allows it.
        known: why the lake may have another value; if empty, a difference is a defect.
        since: the first MySQL version that has the type, such as 8.0.23.
    """

    label: str
    definition: str
    values: tuple[str, ...]
    known: str = ""
    since: str = "8.0"

    @property
    def nullable(self) -> bool:
        return "NOT NULL" not in self.definition

    @property
    def generated(self) -> bool:
        return " AS (" in self.definition


@dataclass(frozen=True, slots=True)
class TypeTable:
    """A table of cases: its key `id`, then the columns `c00`, `c01`, …"""

    name: str
    cases: tuple[TypeCase, ...]
    options: str = ""

    def column(self, case: TypeCase) -> str:
        return f"c{self.cases.index(case):02d}"

    @property
    def rows(self) -> int:
        """Return the number of different rows, including the one with NULLs."""
        return 1 + max(len(case.values) for case in self.cases)

    def create(self) -> str:
        columns = ", ".join(f"{self.column(case)} {case.definition}" for case in self.cases)
        return f"CREATE TABLE {self.name} (id INT PRIMARY KEY, {columns}) {self.options}"

    def assignments(self, row: int) -> list[tuple[str, str]]:
        """Return column and value of row `row`, counted from 0; row 0 has NULL if the column allows it."""
        return [
            (
                self.column(case),
                "NULL" if row == 0 and case.nullable else case.values[(row - 1) % len(case.values)],
            )
            for case in self.cases
            if not case.generated
        ]

    def insert(self, key: int, row: int) -> str:
        pairs = self.assignments(row)
        names = ", ".join(name for name, _ in pairs)
        return (
            f"INSERT INTO {self.name} (id, {names}) VALUES ({key}, {', '.join(value for _, value in pairs)})"
        )

    def update(self, key: int, row: int) -> str:
        pairs = ", ".join(f"{name} = {value}" for name, value in self.assignments(row))
        return f"UPDATE {self.name} SET {pairs} WHERE id = {key}"


def _integer(name: str, bits: int) -> tuple[TypeCase, TypeCase]:
    top = 2 ** (bits - 1)
    return (
        TypeCase(name, name, (str(-top), str(top - 1), "0", "-1")),
        TypeCase(f"{name} UNSIGNED", f"{name} UNSIGNED", (str(2 * top - 1), "0", str(top))),
    )


def _decimal(precision: int, scale: int) -> TypeCase:
    digits = "9" * precision
    text = f"{digits[scale:]}.{digits[:scale]}".rstrip(".") if scale else digits
    smallest = f"0.{'0' * (scale - 1)}1" if scale else "1"
    half = "1234567890" * 7
    middle = half[: precision - scale] + ("." + half[:scale] if scale else "")
    return TypeCase(
        f"DECIMAL({precision},{scale})",
        f"DECIMAL({precision},{scale})",
        (text, f"-{text}", smallest, f"-{smallest}", "0", middle, f"-{middle}"),
    )


_TEXTS: Final = (
    "''",
    "' '",
    "'plain'",
    "'ÄÖÜ ß é'",
    "'o''clock \"q\" `b` \\\\ /'",
    "'tab\\tline\\nreturn\\rnull\\0end'",
    "'null'",
    "'{\"a\": 1}'",
)
_WIDE_TEXTS: Final = (*_TEXTS, "'日本語 中文 한국어'", "'🦊👨‍👩‍👧'", "'e\u0301 \u202e \ufeff'")
_BYTES: Final = ("x''", "x'00'", "x'ff00fe01'", "'text'", "x'0d0a5c22'")
_STAMPS: Final = (
    "'1970-01-01 00:00:01'",
    "'2038-01-19 03:14:07'",
    "'2024-02-29 12:34:56.789012'",
    "'2024-03-31 02:30:00'",
    "'2000-01-01 00:00:00.000001'",
)
_WALL: Final = (
    "'1000-01-01 00:00:00'",
    "'9999-12-31 23:59:59'",
    "'0001-01-01 00:00:00'",
    "'1969-12-31 23:59:59.999999'",
    "'2024-02-29 12:34:56.789012'",
    "'1970-01-01 00:00:00'",
)
_TIMES: Final = (
    "'838:59:59'",
    "'-838:59:59'",
    "'00:00:00'",
    "'-00:00:00.000001'",
    "'25:00:00.5'",
    "'12:34:56.789012'",
    "'-12:34:56.789012'",
)
_JSONS: Final = (
    """'{"b": 2, "a": [1, -1, 1.5, true, false, null, "x\\\\u0000y"]}'""",
    """'{"ü": "🦊", "q": "\\\\"\\\\\\\\\\\\/", "": {}, "n": []}'""",
    "'null'",
    "'\"text\"'",
    "'18446744073709551615'",
    "'-9223372036854775808'",
    "'1e300'",
    "'0.1'",
    "'[1.0, 100.0, 1e2, 12345678901234567890123]'",
    "JSON_OBJECT('m', CAST(12.50 AS DECIMAL(10,2)), 'big', CAST(12345678901234567890.5 AS DECIMAL(40,5)))",
    "JSON_ARRAY(CONCAT('long ', REPEAT('x', 300)))",
)
_LABELS: Final = "'a','b, c','it''s','ü日','say \"x\"','back\\\\slash','x y ','A B'"

NUMBERS: Final = TypeTable(
    "numbers",
    (
        *_integer("TINYINT", 8),
        TypeCase("TINYINT(1)", "TINYINT(1)", ("0", "1", "5", "-128")),
        TypeCase("BOOLEAN", "BOOLEAN", ("FALSE", "TRUE")),
        TypeCase(
            "BOOLEAN, other numbers",
            "BOOLEAN",
            ("5", "-128"),
            "BOOLEAN is TINYINT(1) in MySQL; a connector that reads the word in a DDL statement sends true and false",
        ),
        *_integer("SMALLINT", 16),
        *_integer("MEDIUMINT", 24),
        *_integer("INT", 32),
        TypeCase("INT(6) ZEROFILL", "INT(6) ZEROFILL", ("42", "4294967295")),
        *_integer("BIGINT", 64),
        TypeCase("SERIAL", "BIGINT UNSIGNED NOT NULL", ("18446744073709551615", "0")),
        _decimal(10, 0),
        _decimal(12, 2),
        _decimal(38, 10),
        _decimal(30, 30),
        _decimal(39, 0),
        _decimal(65, 30),
        _decimal(65, 0),
        TypeCase("DECIMAL UNSIGNED", "DECIMAL(8,3) UNSIGNED", ("99999.999", "0")),
        TypeCase("FLOAT", "FLOAT", ("3.14", "0.1", "-0e0", "1.4e-45", "-123456", "1e30")),
        TypeCase(
            "FLOAT of more than 6 digits",
            "FLOAT",
            ("-3.402823466E38", "3.402823466E38", "1.17549435E-38", "16777217"),
            "a snapshot reads the six digits that `SELECT` shows",
        ),
        TypeCase("FLOAT(7,4)", "FLOAT(7,4)", ("999.9999", "-1.5", "3.14")),
        TypeCase("FLOAT(30)", "FLOAT(30)", ("3.14", "1e-300")),
        TypeCase(
            "DOUBLE",
            "DOUBLE",
            (
                "1.7976931348623157E308",
                "-1.7976931348623157E308",
                "2.2250738585072014E-308",
                "5e-324",
                "0.1",
                "1e22",
            ),
        ),
        TypeCase("DOUBLE(10,3)", "DOUBLE(10,3)", ("9999999.999", "-0.5")),
        TypeCase("REAL", "REAL", ("0.5", "-1e10")),
        TypeCase(
            "REAL, double precision",
            "REAL",
            ("0.1", "-1e100"),
            "a connector that reads the word in a DDL statement sends single precision",
        ),
        TypeCase("BIT(1)", "BIT(1)", ("b'1'", "b'0'")),
        TypeCase("BIT(2)", "BIT(2)", ("b'10'", "b'0'", "b'11'")),
        TypeCase("BIT(8)", "BIT(8)", ("b'10000001'", "b'0'")),
        TypeCase("BIT(9)", "BIT(9)", ("b'100000001'", "b'1'")),
        TypeCase("BIT(33)", "BIT(33)", ("4294967297 + 255", "0")),
        TypeCase(
            "BIT(64)", "BIT(64)", ("x'8000000000000001'", "x'ffffffffffffffff'", "x'0102030405060708'", "0")
        ),
    ),
)

TIMES: Final = TypeTable(
    "times",
    (
        TypeCase(
            "DATE", "DATE", ("'1000-01-01'", "'9999-12-31'", "'0001-01-01'", "'1582-10-10'", "'1970-01-01'")
        ),
        *(TypeCase(f"DATETIME({n})", f"DATETIME({n})", _WALL) for n in range(7)),
        TypeCase(
            "DATETIME, 1582-10-05 to 1582-10-14",
            "DATETIME(6)",
            ("'1582-10-10 10:10:10.1'",),
            "the days that the Gregorian calendar left out: Java moves them in a snapshot",
        ),
        *(TypeCase(f"TIMESTAMP({n})", f"TIMESTAMP({n}) NULL", _STAMPS) for n in range(7)),
        TypeCase("TIMESTAMP NOT NULL", "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP", _STAMPS),
        *(TypeCase(f"TIME({n})", f"TIME({n})", _TIMES) for n in range(7)),
        TypeCase("YEAR", "YEAR", ("1901", "2155", "'00'", "2024")),
        TypeCase("YEAR 0000", "YEAR", ("0",), "a snapshot reads it as 2000"),
    ),
)

_NO_DAY: Final = "no such day in Iceberg: connectors send NULL, or 1970-01-01 where the column allows none"
ZEROS: Final = TypeTable(
    "zeros",
    (
        TypeCase("DATE, zero", "DATE", ("'0000-00-00'",), _NO_DAY),
        TypeCase("DATETIME, zero", "DATETIME(6)", ("'0000-00-00 00:00:00'",), _NO_DAY),
        TypeCase("TIMESTAMP, zero", "TIMESTAMP NULL", ("'0000-00-00 00:00:00'",), _NO_DAY),
        TypeCase("DATE, month or day zero", "DATE", ("'2024-00-00'", "'2024-02-00'"), _NO_DAY),
        TypeCase("DATE NOT NULL, zero", "DATE NOT NULL", ("'0000-00-00'",), _NO_DAY),
        TypeCase("DATETIME NOT NULL, zero", "DATETIME NOT NULL", ("'0000-00-00 00:00:00'",), _NO_DAY),
        TypeCase("TIMESTAMP NOT NULL, zero", "TIMESTAMP NOT NULL DEFAULT NOW()", ("'0000-00-00'",), _NO_DAY),
    ),
)

TEXTS: Final = TypeTable(
    "texts",
    (
        TypeCase("CHAR(n)", "CHAR(40) CHARACTER SET utf8mb4", _WIDE_TEXTS),
        TypeCase("VARCHAR(n), utf8mb4", "VARCHAR(200) CHARACTER SET utf8mb4", _WIDE_TEXTS),
        TypeCase(
            "VARCHAR(n), utf8mb4_bin", "VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", _WIDE_TEXTS
        ),
        TypeCase("VARCHAR(n), utf8mb3", "VARCHAR(200) CHARACTER SET utf8mb3", (*_TEXTS, "'日本語'")),
        TypeCase("VARCHAR(n), latin1", "VARCHAR(200) CHARACTER SET latin1", (*_TEXTS, "'€ÿ'")),
        TypeCase("VARCHAR(n), ascii", "VARCHAR(200) CHARACTER SET ascii", ("''", "'~'", "'a\\\\b'")),
        TypeCase("VARCHAR(n), sjis", "VARCHAR(200) CHARACTER SET sjis", ("'日本語 表示'", "'ｱｲｳ'", "''")),
        TypeCase("VARCHAR(n), cp932", "VARCHAR(200) CHARACTER SET cp932", ("'日本語 ①髙'", "''")),
        TypeCase("VARCHAR(n), ujis", "VARCHAR(200) CHARACTER SET ujis", ("'日本語 表示'", "''")),
        TypeCase("VARCHAR(n), gbk", "VARCHAR(200) CHARACTER SET gbk", ("'中文 简体'", "''")),
        TypeCase("VARCHAR(n), gb18030", "VARCHAR(200) CHARACTER SET gb18030", ("'中文 🦊'", "''")),
        TypeCase("VARCHAR(n), big5", "VARCHAR(200) CHARACTER SET big5", ("'中文 功'", "''")),
        TypeCase("VARCHAR(n), euckr", "VARCHAR(200) CHARACTER SET euckr", ("'한국어'", "''")),
        TypeCase("VARCHAR(n), cp1251", "VARCHAR(200) CHARACTER SET cp1251", ("'Привет'", "''")),
        TypeCase("VARCHAR(n), koi8r", "VARCHAR(200) CHARACTER SET koi8r", ("'Привет'", "''")),
        TypeCase("VARCHAR(n), latin2", "VARCHAR(200) CHARACTER SET latin2", ("'Łódź žš'", "''")),
        TypeCase("VARCHAR(n), greek", "VARCHAR(200) CHARACTER SET greek", ("'Ελλάδα'", "''")),
        TypeCase("VARCHAR(n), ucs2", "VARCHAR(200) CHARACTER SET ucs2", ("'ÄЖ日'", "''")),
        TypeCase("VARCHAR(n), utf16", "VARCHAR(200) CHARACTER SET utf16", ("'ÄЖ日🦊'", "''")),
        TypeCase("VARCHAR(n), utf32", "VARCHAR(200) CHARACTER SET utf32", ("'ÄЖ日🦊'", "''")),
        TypeCase("CHAR(n), latin1", "CHAR(20) CHARACTER SET latin1", ("'é  '", "''", "'ÿ'")),
        TypeCase("NCHAR(n)", "NCHAR(20)", ("'日本'", "''")),
        TypeCase("TINYTEXT", "TINYTEXT", _WIDE_TEXTS),
        TypeCase("TEXT", "TEXT", (*_WIDE_TEXTS, "REPEAT('ä', 20000)")),
        TypeCase("TEXT, gbk", "TEXT CHARACTER SET gbk", ("'中文 简体'", "''")),
        TypeCase("MEDIUMTEXT", "MEDIUMTEXT", (*_WIDE_TEXTS, "REPEAT('🦊', 20000)")),
        TypeCase("LONGTEXT", "LONGTEXT", (*_WIDE_TEXTS, "REPEAT('x', 70000)")),
        TypeCase(
            "BINARY(n)", "BINARY(6)", ("x'00'", "x'ff00fe01'", "'text'", "x'010203040506'", "x''", "x'0100'")
        ),
        TypeCase("VARBINARY(n)", "VARBINARY(40)", _BYTES),
        TypeCase("TINYBLOB", "TINYBLOB", _BYTES),
        TypeCase("BLOB", "BLOB", (*_BYTES, "REPEAT(x'00ff', 30000)")),
        TypeCase("MEDIUMBLOB", "MEDIUMBLOB", (*_BYTES, "REPEAT(x'ff', 70000)")),
        TypeCase("LONGBLOB", "LONGBLOB", _BYTES),
        TypeCase("CHAR(n) CHARACTER SET binary", "CHAR(6) CHARACTER SET binary", ("'ab'", "x'00ff'")),
        TypeCase("TEXT CHARACTER SET binary", "TEXT CHARACTER SET binary", ("'ab'", "x'00ff'")),
    ),
    "CHARACTER SET utf8mb4",
)

_LABEL: Final = "MySQL shows such labels as ? to whoever asks for the table's definition, as a snapshot does"

SPECIALS: Final = TypeTable(
    "specials",
    (
        TypeCase(
            "ENUM",
            f"ENUM({_LABELS})",
            ("'a'", "'b, c'", "'it''s'", "'ü日'", "'say \"x\"'", "'back\\\\slash'", "'x y'", "'A B'"),
        ),
        TypeCase("ENUM, labels beyond U+FFFF", "ENUM('🦊','b')", ("'🦊'", "'b'"), _LABEL),
        TypeCase("ENUM with an empty label", "ENUM('','x')", ("''", "'x'")),
        TypeCase("ENUM, invalid value", "ENUM('x','y')", ("'y'", "'none of them'")),
        TypeCase("ENUM, latin1", "ENUM('é','ü') CHARACTER SET latin1", ("'é'", "'ü'")),
        TypeCase("ENUM, gbk", "ENUM('中','文') CHARACTER SET gbk", ("'中'", "'文'")),
        TypeCase(
            "SET",
            "SET('a','it''s','ü日','say \"x\"','back\\\\slash','A B')",
            ("''", "'a'", "'a,it''s'", "'ü日,say \"x\"'", "'back\\\\slash,A B'", "63"),
        ),
        TypeCase("SET, labels beyond U+FFFF", "SET('🦊','b')", ("'🦊,b'", "'b'"), _LABEL),
        TypeCase(
            "SET of 64", "SET(" + ",".join(f"'m{i}'" for i in range(64)) + ")", ("'m0,m63'", "'m62'", "''")
        ),
        TypeCase("JSON", "JSON", _JSONS),
        TypeCase(
            "JSON, DATE and TIME inside",
            "JSON",
            (
                "JSON_OBJECT('d', CAST('2020-01-02' AS DATE), 't', CAST('12:30:01' AS TIME))",
                "JSON_OBJECT('t', CAST('-12:30:01.5' AS TIME(6)))",
                "JSON_OBJECT('s', CAST('2020-01-02 03:04:05.678' AS DATETIME(6)))",
            ),
            "values of these types, not text: streamed events show them in another way, and a negative TIME wrongly",
        ),
        TypeCase(
            "GEOMETRY",
            "GEOMETRY",
            (
                "ST_GeomFromText('POINT(1 2)')",
                "ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')",
                "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2), LINESTRING(0 0, 1 1))')",
                "ST_GeomFromText('POINT(50 10)', 4326)",
            ),
        ),
        TypeCase("POINT", "POINT", ("ST_GeomFromText('POINT(1.5 -2.5)')", "ST_GeomFromText('POINT(0 0)')")),
        TypeCase("POINT SRID 4326", "POINT SRID 4326", ("ST_GeomFromText('POINT(50 10)', 4326)",)),
        TypeCase("LINESTRING", "LINESTRING", ("ST_GeomFromText('LINESTRING(0 0, 1 1, 2 0)')",)),
        TypeCase(
            "POLYGON", "POLYGON", ("ST_GeomFromText('POLYGON((0 0, 4 0, 4 4, 0 0), (1 1, 2 1, 2 2, 1 1))')",)
        ),
        TypeCase("MULTIPOINT", "MULTIPOINT", ("ST_GeomFromText('MULTIPOINT(0 0, 1 1)')",)),
        TypeCase(
            "MULTILINESTRING",
            "MULTILINESTRING",
            ("ST_GeomFromText('MULTILINESTRING((0 0, 1 1), (2 2, 3 3))')",),
        ),
        TypeCase(
            "MULTIPOLYGON", "MULTIPOLYGON", ("ST_GeomFromText('MULTIPOLYGON(((0 0, 4 0, 4 4, 0 0)))')",)
        ),
        TypeCase(
            "GEOMETRYCOLLECTION", "GEOMETRYCOLLECTION", ("ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2))')",)
        ),
        TypeCase(
            "VECTOR(3)",
            "VECTOR(3)",
            (
                "TO_VECTOR('[1, -2.5, 3.14]')",
                "TO_VECTOR('[0, 1.2e-38, 3.4e38]')",
                "TO_VECTOR('[16777217, 0.1, -0.0]')",
            ),
            since="9.0",
        ),
        TypeCase("generated, STORED", "INT AS (id + 1) STORED", ("",)),
        TypeCase("generated, VIRTUAL", "VARCHAR(20) AS (CONCAT('n', id)) VIRTUAL", ("",)),
        TypeCase("INVISIBLE", "INT INVISIBLE", ("1", "2"), since="8.0.23"),
        TypeCase("INVISIBLE with a default", "INT NOT NULL DEFAULT 7 INVISIBLE", ("7", "8"), since="8.0.23"),
    ),
    "CHARACTER SET utf8mb4",
)

TABLES: Final = (NUMBERS, TIMES, ZEROS, TEXTS, SPECIALS)

_COMPUTED: Final = "computed by the source"
_BYTES_DEFAULT: Final = "an event does not tell the bytes 00ff from the text 00ff"

ADDED: Final[Sequence[tuple[str, str, str]]] = (
    ("int 7", "INT NOT NULL DEFAULT 7", ""),
    ("int implicit", "INT NOT NULL", ""),
    ("boolean", "BOOLEAN NOT NULL DEFAULT TRUE", ""),
    ("bit", "BIT(1) NOT NULL DEFAULT b'1'", ""),
    ("bits", "BIT(9) NOT NULL DEFAULT b'100000001'", _BYTES_DEFAULT),
    ("decimal", "DECIMAL(10,3) NOT NULL DEFAULT 1.5", ""),
    ("wide decimal", "DECIMAL(60,3) NOT NULL DEFAULT 1.5", ""),
    ("double", "DOUBLE NOT NULL DEFAULT 1e10", ""),
    ("quotes", "VARCHAR(40) NOT NULL DEFAULT 'it''s \"x\" \\\\ `b`'", ""),
    ("backslash quote", "VARCHAR(40) NOT NULL DEFAULT 'it\\'s'", ""),
    (
        "double-quoted",
        'VARCHAR(40) NOT NULL DEFAULT "say ""x"" it\'s"',
        "doubled quotes in double quotes: connectors show them as if the quotes around were single ones",
    ),
    ("empty", "VARCHAR(40) NOT NULL DEFAULT ''", ""),
    ("text implicit", "TEXT NOT NULL", ""),
    ("null word", "VARCHAR(40) NOT NULL DEFAULT 'NULL'", ""),
    ("null", "VARCHAR(40) DEFAULT NULL", ""),
    ("unicode", "VARCHAR(40) NOT NULL DEFAULT 'ü🦊'", ""),
    ("spaces", "VARCHAR(40) NOT NULL DEFAULT '  x  '", ""),
    ("enum", "ENUM('a','b, c','it''s') NOT NULL DEFAULT 'it''s'", ""),
    ("enum implicit", "ENUM('b, c','a') NOT NULL", ""),
    ("set", "SET('a','b') NOT NULL DEFAULT 'a,b'", ""),
    ("date", "DATE NOT NULL DEFAULT '2024-02-29'", ""),
    ("datetime", "DATETIME(6) NOT NULL DEFAULT '2024-02-29 12:34:56.789012'", ""),
    (
        "datetime epoch",
        "DATETIME NOT NULL DEFAULT '1970-01-01 00:00:00'",
        "looks like CURRENT_TIMESTAMP to whoever reads the event",
    ),
    (
        "timestamp",
        "TIMESTAMP NOT NULL DEFAULT '2024-02-29 12:34:56'",
        "its time zone is that of the session that ran the statement",
    ),
    ("time", "TIME NOT NULL DEFAULT '-12:34:56'", ""),
    ("year", "YEAR NOT NULL DEFAULT 2024", ""),
    ("binary", "VARBINARY(10) NOT NULL DEFAULT x'00ff'", _BYTES_DEFAULT),
    ("now", "DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP", _COMPUTED),
    ("expression", "VARCHAR(40) NOT NULL DEFAULT (CONCAT('a', 'b'))", _COMPUTED),
    ("json", "JSON DEFAULT (JSON_OBJECT('a', 1))", _COMPUTED),
    ("nullable default", "INT DEFAULT 9", ""),
    ("generated", "INT AS (id * 2) STORED", _COMPUTED),
)
"""Columns added to a table with rows: name, definition, why its old rows may lack the value (see `TypeCase.known`)."""
