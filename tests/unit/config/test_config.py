"""The configuration file: what it becomes, and what its mistakes say."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from replicator.config import ArchiveLog, ColumnRuleBook, Config, KafkaLog, load, parse
from replicator.config.models import SourceConfig
from replicator.errors import ConfigError
from replicator.model.column_rules import Blank, FixedText, KeepLast, KeyedHash
from replicator.model.partitioning import PartitionField
from replicator.model.table import SourceName

GOOD = """\
[mirror]
name = "shop"

[source]
url = "mysql://replicator@db:3307/shop"
password = { env = "SHOP_PASSWORD" }
tables = ["shop.*"]
exclude = ["shop.tmp_*"]

[log]
kind = "kafka"
bootstrap_servers = "127.0.0.1:9092"
topic_prefix = "shop"

[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:lake/catalog.db"
warehouse = "lake"
namespace = "shop"

[apply]
trigger = "10 seconds"

[[table]]
name = "shop.orders"
partition = ["bucket(16, id)", "days(`created at`)"]
strategy = "copy-on-write"

[[table]]
name = "shop.items"
changelog = false
"""

SOON = (
    '22: apply.trigger: "soon" is not an interval; '
    'write "10 seconds", "1 minute", or "continuous" for as soon as possible'
)
SPLT = (
    '22: apply.strategy: must be one of "split", "merge", "copy-on-write", not "splt"; did you mean "split"?'
)
BUKKET = (
    '26: table[0].partition[0]: "bukket(16, id)": unknown transform "bukket"; '
    "known are identity, bucket, truncate, years, months, days, hours"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.toml"


def loaded(file: Path, text: str) -> Config:
    file.write_text(text, encoding="utf-8")
    return load(file)


def mistakes(file: Path, text: str) -> list[str]:
    """The lines of the error, without the file's name."""
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file)
    lines = caught.value.message.splitlines()
    if len(lines) > 1:
        assert lines.pop(0) == f"{file} has {len(lines)} errors:"
    return [line.strip().removeprefix(f"{file}:").strip() for line in lines]


def test_a_good_file_becomes_typed_values(file: Path) -> None:
    config = loaded(file, GOOD)
    assert config.source.server().host == "db"
    assert config.source.server().port == 3307
    assert config.apply.trigger == 10.0
    assert config.mirror.state_dir == file.parent / ".replicator" / "shop"
    assert config.lake.uri == f"jdbc:sqlite:{file.parent}/lake/catalog.db"
    assert config.lake.warehouse == str(file.parent / "lake")
    assert config.lake.changes_namespace == "shop_changes"
    assert config.lake.ops_namespace == "shop_ops"


def test_table_options_are_merged_with_the_defaults(file: Path) -> None:
    config = loaded(file, GOOD)
    orders = config.table("shop.orders")
    assert orders.partition == (PartitionField("bucket", "id", 16), PartitionField("days", "created at"))
    assert (orders.strategy, orders.changelog) == ("copy-on-write", True)
    items = config.table("shop.items")
    assert (items.strategy, items.changelog, items.on_bad_event) == ("split", False, "quarantine")
    assert config.table("shop.other").partition == ()


@pytest.mark.parametrize(
    ("table", "included"),
    [
        ("shop.orders", True),
        ("shop.tmp_1", False),
        ("crm.orders", False),
        ("SHOP.orders", False),
        ("shop.a.b", True),
    ],
)
def test_includes(file: Path, table: str, included: bool) -> None:
    assert loaded(file, GOOD).includes(table) is included


def test_values_are_frozen(file: Path) -> None:
    config = loaded(file, GOOD)
    with pytest.raises(ValueError, match="frozen"):
        config.apply.max_events = 1


URL = 'registry_url = "http://127.0.0.1:8081"\n'


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ('format = "avro"\n', 'registry_url is required with format = "avro"'),
        (
            f'format = "avro"\nschemas = true\n{URL}',
            'schemas has no effect with format = "avro"; remove it',
        ),
        (URL, 'registry_url has no effect with format = "json"; remove it'),
        (
            f'format = "avro"\n{URL}registry_user = "me"\n',
            "registry_user and registry_password must be set together",
        ),
        (
            'registry_user = "me"\nregistry_password = { env = "P" }\n',
            'registry_user has no effect with format = "json"; remove it',
        ),
        (
            'format = "avro"\nregistry_url = "http://me:secret@127.0.0.1"\n',
            "contains a login; remove it and set registry_user and registry_password = { env = … }",
        ),
    ],
)
def test_what_a_registry_needs(file: Path, log: str, expected: str) -> None:
    (found,) = mistakes(file, GOOD.replace('topic_prefix = "shop"\n', f'topic_prefix = "shop"\n{log}'))
    assert found.endswith(expected)
    assert "secret" not in found


def test_the_login_of_a_registry(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P", "sesame")
    log = f'format = "avro"\n{URL}'
    login = 'registry_user = "me"\nregistry_password = { env = "P" }\n'
    for lines, wanted in ((log, None), (log + login, ("me", "sesame"))):
        config = loaded(file, GOOD.replace('topic_prefix = "shop"\n', f'topic_prefix = "shop"\n{lines}'))
        assert isinstance(config.log, KafkaLog)
        assert config.log.registry_login() == wanted
        assert "sesame" not in repr(config)


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
                "21: zzz: unknown section; known are apply, columns, lake, log, mirror, schema_changes, "
                "source, spark, table"
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
        ('uri = "jdbc:sqlite:lake/catalog.db"\n', "", '15: lake: uri is required with catalog = "jdbc"'),
    ],
)
def test_a_mistake_names_line_key_and_remedy(file: Path, replaced: str, by: str, expected: str) -> None:
    assert replaced in GOOD
    assert mistakes(file, GOOD.replace(replaced, by, 1)) == [expected]


def test_several_mistakes_come_at_once_in_the_order_of_the_file(file: Path) -> None:
    text = GOOD.replace("exclude", "exlude").replace('"10 seconds"', "10").replace("changelog", "changlog")
    assert [line.partition(":")[0] for line in mistakes(file, text)] == ["8", "22", "31"]


def test_rules_across_sections(file: Path) -> None:
    assert mistakes(file, GOOD.replace('"shop.items"', '"crm.items"')) == [
        '[[table]] "crm.items" does not match source.tables, so it would have no effect'
    ]
    assert mistakes(file, GOOD.replace('"shop.items"', '"shop.orders"')) == [
        '[[table]] "shop.orders" appears twice; keep one'
    ]


def test_a_file_that_is_no_toml_or_is_not_there(file: Path) -> None:
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
    "text",
    [
        GOOD.replace('{ env = "SHOP_PASSWORD" }', '"hunter2"'),
        GOOD.replace("replicator@db", "replicator:hunter2@db"),
        GOOD + '\n[log.options]\n"sasl.password" = "hunter2"\n',
        GOOD + '\n[lake.options]\n"jdbc.password" = "hunter2"\n',
        GOOD.replace("jdbc:sqlite:lake/catalog.db", "jdbc:postgresql://db/lake?user=u&password=hunter2"),
        GOOD.replace("jdbc:sqlite:lake/catalog.db", "jdbc:mysql://u:hunter2@db/lake"),
        GOOD.replace('{ env = "SHOP_PASSWORD" }', '{ value = "hunter2" }'),
        GOOD.replace("password =", "passwort = 'hunter2'\n#"),
    ],
)
def test_a_literal_secret_is_refused_and_never_repeated(file: Path, text: str) -> None:
    assert "hunter2" in text
    lines = mistakes(file, text)
    assert lines
    assert "hunter2" not in "".join(lines)


def test_secrets_are_read_when_they_are_needed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    config = loaded(file, GOOD)
    password = config.source.password
    assert password is not None
    with pytest.raises(ConfigError, match="SHOP_PASSWORD is not set"):
        password.reveal()
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    assert password.reveal().get_secret_value() == "hunter2"
    assert "hunter2" not in repr(password.reveal())


def test_a_secret_from_a_file_beside_the_configuration(file: Path) -> None:
    config = loaded(file, GOOD.replace('{ env = "SHOP_PASSWORD" }', '{ file = "secret.txt" }'))
    password = config.source.password
    assert password is not None
    with pytest.raises(ConfigError, match="cannot read the secret"):
        password.reveal()
    (file.parent / "secret.txt").write_text("hunter2\n")
    assert password.reveal().get_secret_value() == "hunter2"


def test_kafka_options_for_both_clients(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", 'a"b')
    config = loaded(
        file,
        GOOD
        + """
[log.options]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "replicator"
"sasl.password" = { env = "KAFKA_PASSWORD" }
"ssl.ca.location" = "/etc/ca.pem"
"socket.timeout.ms" = 5000
""",
    )
    assert isinstance(config.log, KafkaLog)
    assert config.log.client_options() == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "replicator",
        "sasl.password": 'a"b',
        "ssl.ca.location": "/etc/ca.pem",
        "socket.timeout.ms": "5000",
    }
    spark = config.log.spark_options()
    assert spark["kafka.bootstrap.servers"] == "127.0.0.1:9092"
    assert spark["kafka.ssl.truststore.location"] == "/etc/ca.pem"
    assert spark["kafka.ssl.truststore.type"] == "PEM"
    assert spark["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="replicator" password="a\\"b";'
    )
    assert "kafka.sasl.password" not in spark


def test_an_archive_needs_no_server(tmp_path: Path) -> None:
    values: dict[str, Any] = tomllib.loads(GOOD)
    del values["source"]["url"], values["source"]["password"]
    with pytest.raises(ConfigError, match=r"source\.url is required"):
        parse(values, base=tmp_path)
    values["log"] = {"kind": "archive", "path": "recorded"}
    config = parse(values, base=tmp_path)
    assert config.log == ArchiveLog(kind="archive", path=tmp_path / "recorded")
    with pytest.raises(ConfigError, match=r"source\.url is not set"):
        config.source.server()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500 ms", 0.5),
        ("1 second", 1.0),
        ("10s", 10.0),
        ("1.5 minutes", 90.0),
        ("2 hours", 7200.0),
        ("continuous", 0.0),
    ],
)
def test_triggers(file: Path, text: str, seconds: float) -> None:
    assert loaded(file, GOOD.replace("10 seconds", text)).apply.trigger == seconds


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql://u@h/db", "mysql://u@h:3306/db"),
        ("mysql+pymysql://u@h:1", "mysql://u@h:1/"),
        ("mysql://a%40b@[::1]:3306/db", "mysql://a@b@[::1]:3306/db"),
    ],
)
def test_source_addresses(file: Path, url: str, expected: str) -> None:
    config = loaded(file, GOOD.replace("mysql://replicator@db:3307/shop", url))
    assert str(config.source.server()) == expected


@pytest.mark.parametrize(
    "url", ["postgres://u@h/d", "mysql://h/d", "mysql://u@", "mysql://u@h:x/d", "mysql://u@h/d?a=b"]
)
def test_source_addresses_that_are_none(file: Path, url: str) -> None:
    [line] = mistakes(file, GOOD.replace("mysql://replicator@db:3307/shop", url))
    assert line.startswith("5: source.url: ")
    assert 'write it as "mysql://user@host:3306/database"' in line


def test_remote_places_stay_as_they_are(file: Path) -> None:
    text = GOOD.replace('catalog = "jdbc"', 'catalog = "rest"').replace(
        "jdbc:sqlite:lake/catalog.db", "https://c/api"
    )
    config = loaded(file, text.replace('warehouse = "lake"', 'warehouse = "s3://bucket/lake"'))
    assert (config.lake.uri, config.lake.warehouse) == ("https://c/api", "s3://bucket/lake")


COLUMNS = """
[columns]
hash = ["email"]
hash_key = { env = "HASH_KEY" }
mask = { card = { keep_last = 4 } }

[[table]]
name = "shop.users"
key = ["id"]
columns = { include = ["id", "e*"], mask = { "n?te" = { text = "***" }, born = { null = true } } }
"""


def test_column_rules_and_their_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = loaded(file, GOOD + COLUMNS)
    with pytest.raises(ConfigError, match="HASH_KEY is not set"):
        ColumnRuleBook(config)
    monkeypatch.setenv("HASH_KEY", "too short")
    with pytest.raises(ConfigError, match="shorter than 16 bytes") as caught:
        ColumnRuleBook(config)
    assert "too short" not in str(caught.value)
    monkeypatch.setenv("HASH_KEY", "k" * 16)
    book = ColumnRuleBook(config)
    users, orders = book.of("shop.users"), book.of("shop.orders")
    assert users.leaves_out("name")
    assert not users.leaves_out("Email")
    assert (users.transform("NOTE"), users.transform("born")) == (FixedText("***"), Blank())
    assert users.transform("email") == orders.transform("email") == KeyedHash(b"k" * 16)
    assert orders.transform("card") == KeepLast(4)
    assert not ColumnRuleBook(loaded(file, GOOD)).of("shop.users")


UNLISTED = """
[columns]
include = ["id"]
unlisted = "pause"

[[table]]
name = "shop.users"
key = ["no"]
columns = { mask = { note = { null = true } } }

[[table]]
name = "shop.bills"
columns = { unlisted = "allow" }
"""


def test_unlisted_columns_wait_if_the_table_or_the_mirror_says_so(file: Path) -> None:
    book = ColumnRuleBook(loaded(file, GOOD + UNLISTED))
    names = [SourceName(name, name) for name in ("id", "Note", "no")]
    assert book.of("shop.users").unlisted(names) == ["no"]
    assert not book.of("shop.users").leaves_out("no"), "include leaves out no column, the table waits"
    assert book.of("shop.items").unlisted(names) == ["Note", "no"]
    assert book.of("shop.bills").unlisted(names) == []
    assert book.of("shop.bills").leaves_out("no")


@pytest.mark.parametrize("word", ["wait", "fail", True])
def test_unlisted_is_one_of_two_words(word: object) -> None:
    with pytest.raises(ConfigError, match="unlisted"):
        parse(tomllib.loads(GOOD) | {"columns": {"unlisted": word}}, base=Path("/mirrors"))


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ('exclude = ["a"]\nhash = ["A"]', '"A" appears in two of exclude, hash and mask; keep one'),
        ("mask = { a = {} }", 'give one of { text = "***" }, { keep_last = 4 }, { null = true }'),
        ("mask = { a = { keep_last = 0 } }", "must be at least 1, not 0"),
        ('mask = { a = { text = "x", null = true } }', "give one of"),
        ('hash = ["a"]', 'column "a" is hashed, but no key is set; set hash_key'),
        ('hash_key = "hunter2"', "secrets must not be written in this file"),
        ('exclude = [""]', "is not a column name"),
        (
            'exclude = ["i*"]',
            'column "id" is in the key, so it cannot be excluded or masked; hash it instead',
        ),
        ('include = ["total"]', 'column "id" is in the key'),
        ("mask = { ID = { keep_last = 1 } }", 'column "id" is in the key'),
    ],
)
def test_mistakes_in_column_rules(file: Path, rules: str, expected: str) -> None:
    keyed = '[[table]]\nname = "shop.users"\nkey = ["id"]\n'
    (line,) = mistakes(file, f"{GOOD}\n[columns]\n{rules}\n{keyed}")
    assert expected in line
    assert "hunter2" not in line


def test_helper_tables_and_the_signal_table_are_left_out() -> None:
    def source(**more: Any) -> SourceConfig:
        return SourceConfig(tables=("shop.*",), **more)

    helpers = [f"shop._orders_{end}" for end in ("gho", "ghc", "ghr", "del", "new", "old")]
    assert not any(
        source().includes(name) for name in [*helpers, "shop._orders_20260101_del", "shop.__t_new"]
    )
    assert all(
        source().includes(name) for name in ("shop.orders", "shop.orders_new", "shop._orders", "shop.a_del")
    )
    assert all(source(helper_tables=True).includes(name) for name in helpers)
    signals = source(signal_table="shop.debezium_signal")
    assert not signals.includes("shop.debezium_signal")
    assert signals.includes("shop.debezium_signals")
    assert source().includes("shop.debezium_signal")
    assert not source(signal_table="shop.s?gnal*").includes("shop.s?gnal*")
    assert source(signal_table="shop.s?gnal*").includes("shop.signals")


def test_table_patterns_have_no_character_classes() -> None:
    source = SourceConfig(tables=("shop.*",), exclude=("shop.card[1]",))
    assert not source.includes("shop.card[1]")
    assert source.includes("shop.card1")


@pytest.mark.parametrize(
    "settings",
    [
        {"apply": {"changelog": False, "keyless": "changelog"}},
        {"table": [{"name": "shop.a", "keyless": "changelog", "changelog": False}]},
    ],
)
def test_a_table_without_a_key_needs_a_mirror_or_a_changelog(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="keep one"):
        parse(tomllib.loads(GOOD) | settings, base=Path("/mirrors"))
