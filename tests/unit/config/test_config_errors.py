"""Every error of a configuration file has its line and says how to fix it."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from replicator.config import load, parse
from replicator.config.loading import line_of
from replicator.errors import ConfigError
from tests.support.config_files import GOOD, mistakes_in

TEXT = """\
# [not.a.section]
[log]
kind = "kafka"
  [log.options]
  "sasl.password" = "x"

[[table]]
name = "a.b"
[[table]]
name = "a.c"
partition = [
  "days(t)",
]
[table.properties]
"k.l" = "v"
"""


@pytest.mark.parametrize(
    ("location", "line"),
    [
        (("log",), 2),
        (("log", "kind"), 3),
        (("log", "options"), 4),
        (("log", "options", "sasl.password"), 5),
        (("table", 0, "name"), 8),
        (("table", 1, "name"), 10),
        (("table", 1, "partition", 0), 11),
        (("table", 1, "properties", "k.l"), 15),
        (("table", 0, "nothing"), 7),
        (("nothing",), None),
    ],
)
def test_line_of_returns_the_line_of_a_location(location: tuple[int | str, ...], line: int | None) -> None:
    assert line_of(TEXT, location) == line


SOON = (
    '22: apply.trigger: "soon" is not an interval; '
    'write "10 seconds", "1 minute", or "continuous" for as soon as possible'
)

SPLT = (
    '22: apply.strategy: must be one of "split", "merge", "copy-on-write", "equality", not "splt"; '
    'did you mean "split"?'
)
ORPHAN_AGE = (
    '22: maintenance.orphan_age: must be at least "1 hour": files of a running batch have no snapshot yet, '
    "and must not be deleted"
)


REPLICA_URLS = (
    "21: bootstrap: replica_urls has no effect without max_replica_lag; set it, as in "
    'max_replica_lag = "5 seconds"'
)
REPLICA_LOGIN = (
    "23: bootstrap.replica_urls[0]: contains a password, which must not be written in this file; "
    'remove it from the address and set replica_password = { env = "NAME" }'
)
BUKKET = (
    '26: table[0].partition[0]: "bukket(16, id)": unknown transform "bukket"; '
    "known are identity, bucket, truncate, years, months, days, hours"
)


@pytest.mark.parametrize(
    ("replaced", "by", "expected"),
    [
        ("exclude =", "exlude =", '8: source.exlude: unknown key; did you mean "exclude"?'),
        ("tables =", "tabels =", '7: source.tabels: unknown key; did you mean "tables"?'),
        ("[apply]", "[aply]", '21: aply: unknown section; did you mean "apply"?'),
        (
            "[apply]",
            "[zzz]",
            (
                "21: zzz: unknown section; known are apply, bootstrap, columns, heal, lake, log, log_table, "
                "maintenance, mirror, pipelines, schema_changes, source, spark, table, tags, verify"
            ),
        ),
        (
            'trigger = "10 seconds"',
            "partitions = 3",
            "22: apply.partitions: unknown key here; partitions belongs to [log]",
        ),
        (
            '"10 seconds"',
            '"soon"',
            SOON,
        ),
        (
            'trigger = "10 seconds"',
            'strategy = "splt"',
            SPLT,
        ),
        (
            'trigger = "10 seconds"',
            "format_version = 4",
            "22: apply.format_version: must be one of 2, 3, not 4",
        ),
        (
            'trigger = "10 seconds"',
            'max_events = "many"',
            '22: apply.max_events: must be a whole number, not "many"',
        ),
        (
            'trigger = "10 seconds"',
            "max_events = 1.5",
            "22: apply.max_events: must be a whole number, not 1.5",
        ),
        ('trigger = "10 seconds"', "max_events = 0", "22: apply.max_events: must be at least 1, not 0"),
        (
            'trigger = "10 seconds"',
            "parallel_tables = 65",
            "22: apply.parallel_tables: must be at most 64, not 65",
        ),
        (
            'trigger = "10 seconds"',
            'changelog = "yes"',
            '22: apply.changelog: must be true or false, not "yes"',
        ),
        (
            "[apply]",
            '[maintenance]\norphan_age = "59 minutes"\n[apply]',
            ORPHAN_AGE,
        ),
        ('["shop.*"]', '"shop.*"', '7: source.tables: must be a list in [brackets], not "shop.*"'),
        ('["shop.*"]', "[]", "7: source.tables: must not be empty"),
        (
            '["shop.*"]',
            '["orders"]',
            '7: source.tables[0]: "orders" is not a table pattern; write "database.table", as in "shop.*"',
        ),
        ('name = "shop"\n', "", "1: mirror.name: required, but missing"),
        ('kind = "kafka"\n', "", '10: log.kind: required, but missing; write "kafka" or "archive"'),
        (
            'kind = "kafka"',
            'kind = "kafak"',
            '11: log.kind: must be one of "kafka", "archive", not "kafak"; did you mean "kafka"?',
        ),
        (
            "bucket(16, id)",
            "bukket(16, id)",
            BUKKET,
        ),
        (
            "changelog = false",
            "changlog = false",
            '31: table[1].changlog: unknown key; did you mean "changelog"?',
        ),
        (
            "[apply]",
            '[bootstrap]\nreplica_urls = ["mysql://u@r"]\n[apply]',
            REPLICA_URLS,
        ),
        (
            "[apply]",
            '[bootstrap]\nmax_replica_lag = "5 s"\nreplica_urls = ["mysql://u:pw@r"]\n[apply]',
            REPLICA_LOGIN,
        ),
        (
            "[apply]",
            '[bootstrap]\nreplica_password = { env = "X" }\n[apply]',
            "21: bootstrap: replica_password has no effect without replica_urls; remove it",
        ),
        ('uri = "jdbc:sqlite:lake/catalog.db"\n', "", '15: lake: uri is required with catalog = "jdbc"'),
    ],
)
def test_config_error_names_line_key_and_hint(file: Path, replaced: str, by: str, expected: str) -> None:
    assert replaced in GOOD
    assert mistakes_in(file, GOOD.replace(replaced, by, 1)) == [expected]


def test_config_errors_are_reported_together_in_the_order_of_the_file(file: Path) -> None:
    text = GOOD.replace("exclude", "exlude").replace('"10 seconds"', "10").replace("changelog", "changlog")
    assert [line.partition(":")[0] for line in mistakes_in(file, text)] == ["8", "22", "31"]


def test_load_refuses_a_table_section_that_has_no_effect_or_is_repeated(file: Path) -> None:
    assert mistakes_in(file, GOOD.replace('"shop.items"', '"crm.items"')) == [
        '30: table[1].name: "crm.items" does not match source.tables, so its section would have no effect'
    ]
    assert mistakes_in(file, GOOD.replace('"shop.items"', '"shop.orders"')) == [
        '30: table[1].name: "shop.orders" appears twice; keep one'
    ]


def test_load_names_the_exclusion_that_takes_the_effect_of_a_table_section(file: Path) -> None:
    assert mistakes_in(file, GOOD.replace('"shop.items"', '"shop.tmp_meters"')) == [
        (
            '30: table[1].name: "shop.tmp_meters" is left out by source.exclude "shop.tmp_*", so its section '
            "would have no effect; remove the section, or the pattern"
        )
    ]
    signals = GOOD.replace("exclude =", 'signal_table = "shop.items"\nexclude =')
    assert mistakes_in(file, signals) == [
        (
            '31: table[1].name: "shop.items" is the signal table or a helper table, which are not mirrored; '
            "remove its section"
        )
    ]


def test_load_refuses_a_file_that_is_missing_or_not_toml(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert (caught.value.message, caught.value.hint) == (
        f"{file}: no such file",
        "create one with: replicator init",
    )
    file.write_text("[mirror\n")
    with pytest.raises(ConfigError, match=r"not valid TOML: .*line 1"):
        load(file)
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not a UTF-8 text file"):
        load(file)


@pytest.mark.parametrize(
    "url", ["postgres://u@h/d", "mysql://h/d", "mysql://u@", "mysql://u@h:x/d", "mysql://u@h/d?a=b"]
)
def test_load_refuses_a_source_url_that_is_not_a_mysql_url(file: Path, url: str) -> None:
    [line] = mistakes_in(file, GOOD.replace("mysql://replicator@db:3307/shop", url))
    assert line.startswith("5: source.url: ")
    assert 'write it as "mysql://user@host:3306/database"' in line


@pytest.mark.parametrize(
    "settings",
    [
        {"apply": {"changelog": False, "keyless": "changelog"}},
        {"table": [{"name": "shop.a", "keyless": "changelog", "changelog": False}]},
    ],
)
def test_parse_refuses_settings_that_leave_neither_mirror_nor_changelog(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="keep one"):
        parse(tomllib.loads(GOOD) | settings, base=Path("/mirrors"))
