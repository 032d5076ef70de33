"""`[[log_table]]` in the configuration file."""

from pathlib import Path

import pytest

from replicator.config import Config, load
from replicator.config.changes import changed_keys
from replicator.errors import ConfigError

HEAD = """
[mirror]
name = "shop"
[source]
url = "mysql://root@db:3306/shop"
tables = ["shop.*"]
[log]
kind = "kafka"
bootstrap_servers = "broker:9092"
topic_prefix = "shop"
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:lake/catalog.db"
warehouse = "lake"
namespace = "shop"
"""


def loaded(folder: Path, *sections: str) -> Config:
    file = folder / "mirror.toml"
    file.write_text(HEAD + "".join(f"[[log_table]]\n{section}\n" for section in sections))
    return load(file)


def test_a_log_table(tmp_path: Path) -> None:
    text = 'topic = "clicks"\ntable = "logs.clicks"\n[log_table.columns]\nid = "long"\nprice = "decimal(10, 2)"\n'
    [settings] = loaded(tmp_path, text + 'device = { os = "string" }').log_tables
    assert settings.policy == "discard"
    assert {name: str(kind) for name, kind in settings.columns.items() if name != "device"} == {
        "id": "long",
        "price": "decimal(10, 2)",
    }
    assert settings.record_columns.keys() == {"kafka_partition", "kafka_offset", "kafka_timestamp"}


TOPIC = 'topic = "clicks"\n'
TABLE = 'table = "logs.clicks"\n'


@pytest.mark.parametrize(
    ("section", "line", "message"),
    [
        (TABLE, 16, "log_table[0].topic: required, but missing"),
        (TOPIC + 'table = "clicks"', 18, 'log_table[0].table: must be "NAMESPACE.TABLE"'),
        (TOPIC + 'table = "shop_ops.clicks"', 18, '"shop_ops" is a namespace of the mirror'),
        (TOPIC + 'table = "shop.clicks"', 18, '"shop" is a namespace of the mirror'),
        ('topic = "shop.shop.orders"\n' + TABLE, 17, '"shop.shop.orders" is a topic of the mirror'),
        (TOPIC + TABLE + 'columns = { id = "number" }', 19, '"id" has the type "number"; known are boolean'),
        (
            TOPIC + TABLE + 'columns = { a = "int", A = "int" }',
            19,
            "differs from another column only in letter case",
        ),
        (
            TOPIC + TABLE + 'columns = { kafka_offset = "int" }',
            16,
            'columns has "kafka_offset", which record names',
        ),
        (TOPIC + TABLE + 'format = "csv"', 16, "needs columns"),
        (TOPIC + TABLE + 'format = "text"\nschema = "evolve"', 16, "remove columns and schema"),
        (TOPIC + TABLE + 'delimiter = ";"', 16, 'delimiter has no effect without format = "csv"'),
        (TOPIC + TABLE + 'partition = "day"', 16, "partition needs event_time"),
        (TOPIC + TABLE + 'event_time = "at"\nschema = "freeze"', 16, "which is not among the columns"),
        (
            TOPIC + TABLE + 'event_time = "at"\ncolumns = { at = "long" }',
            16,
            'event_time is "at", which is long',
        ),
        (TOPIC + TABLE + 'event_time = "at"\nretention = "1 day"', 16, "retention deletes whole partitions"),
        (
            TOPIC + TABLE + 'partion = "day"',
            19,
            'log_table[0].partion: unknown key; did you mean "partition"?',
        ),
        (
            TOPIC + TABLE + 'schema = "ignore"',
            19,
            'must be one of "evolve", "freeze", "discard", "quarantine"',
        ),
        (TOPIC + TABLE + "record = []", 16, "record is empty"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, section: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, section)
    assert f"mirror.toml:{line}: " in raised.value.message
    assert message in raised.value.message


def test_a_table_has_one_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="appears twice"):
        loaded(tmp_path, TOPIC + TABLE, 'topic = "views"\n' + TABLE)


def test_a_reload_names_what_changed(tmp_path: Path) -> None:
    before = loaded(tmp_path, TOPIC + TABLE)
    after = loaded(tmp_path, TOPIC + TABLE + 'schema = "freeze"\ncolumns = { id = "int" }')
    assert changed_keys(before, after) == (
        'log_table "logs.clicks".columns',
        'log_table "logs.clicks".schema',
    )
    assert changed_keys(before, loaded(tmp_path)) == ('log_table "logs.clicks"',)
