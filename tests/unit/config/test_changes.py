"""Which keys of a configuration have changed, and which of them a running mirror can change."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from replicator.config import ArchiveLog, Config, KafkaLog
from replicator.config.changes import FIXED, changed_keys, refuse_fixed
from replicator.errors import ConfigError
from tests.support.config_files import GOOD, load_text

RELOADABLE = [
    "source.password",
    "source.ssl_mode",
    "source.tables",
    "source.exclude",
    "source.helper_tables",
    "source.watch_binlog",
    "source.cascades",
    "source.signal_table",
    "log.bootstrap_servers",
    "log.registry_url",
    "log.registry_user",
    "log.registry_password",
    "log.schemas",
    "log.partitions",
    "log.transactions",
    "log.connect_url",
    "log.archive",
    "log.allow_lossy",
    "log.options",
    "apply.trigger",
    "apply.max_events",
    "apply.max_size",
    "apply.driver_max_events",
    "apply.max_index_size",
    "apply.parallel_tables",
    "apply.strategy",
    "apply.format_version",
    "apply.changelog",
    "apply.on_bad_event",
    "apply.keyless",
    "bootstrap.by",
    "bootstrap.parallel_tables",
    "bootstrap.chunk_rows",
    "bootstrap.max_rows_per_second",
    "bootstrap.max_replica_lag",
    "bootstrap.replica_urls",
    "bootstrap.replica_password",
    "heal.mode",
    "heal.max_rows",
    "heal.min_interval",
    "maintenance.enabled",
    "maintenance.merge_files",
    "maintenance.target_file_size",
    "maintenance.delete_ratio",
    "maintenance.max_snapshots",
    "maintenance.snapshot_age",
    "maintenance.orphan_age",
    "maintenance.slice_time",
    "maintenance.slice_bytes",
    "maintenance.max_share",
    "maintenance.max_lag",
    "pipelines.folder",
    "pipelines.every",
    "pipelines.check_every",
    "pipelines.on_difference",
    "tags.every",
    "tags.keep",
    "verify.enabled",
    "verify.every",
    "verify.on_difference",
    "verify.max_rows_per_second",
    "verify.exclude",
    "schema_changes.add",
    "schema_changes.drop",
    "schema_changes.rename",
    "schema_changes.order",
    "schema_changes.type",
    "schema_changes.key",
    "schema_changes.recreate",
    "schema_changes.unlogged",
    "columns.include",
    "columns.exclude",
    "columns.hash",
    "columns.mask",
    "columns.unlisted",
]
"""Everything that these keys configure is created for each session of a run."""


def all_keys() -> Iterator[str]:
    for name, field in Config.model_fields.items():
        for kind in [KafkaLog, ArchiveLog] if name == "log" else [field.annotation]:
            section: Any = kind
            if isinstance(section, type) and issubclass(section, BaseModel):
                yield from (f"{name}.{key}" for key in section.model_fields)


def is_fixed(key: str) -> bool:
    try:
        refuse_fixed([key])
    except ConfigError:
        return True
    return False


def test_every_key_is_known_to_be_reloadable_or_not() -> None:
    """A new key must be put into `RELOADABLE`, or into `FIXED` with a reason."""
    assert {key for key in all_keys() if not is_fixed(key)} == set(RELOADABLE)
    sections = {name for name, _ in FIXED if "." not in name}
    assert sections <= set(Config.model_fields)
    assert {name for name, _ in FIXED} - sections <= set(all_keys())


def changes(file: Path, *replaced: tuple[str, str], extra: str = "") -> tuple[str, ...]:
    text = GOOD + extra
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return changed_keys(load_text(file, GOOD), load_text(file, text))


def test_changed_keys_are_those_with_other_values(file: Path) -> None:
    assert changes(file) == ()
    assert changes(file, ('["shop.*"]', '["shop.*", "crm.people"]'), ("10 seconds", "1 second")) == (
        "source.tables",
        "apply.trigger",
    )
    # The same value in other words.
    assert changes(file, ("10 seconds", "10 s")) == ()
    assert changes(file, extra="[heal]\nmode = 'auto'\n") == ()


def test_sections_of_tables_are_named(file: Path) -> None:
    assert changes(
        file,
        ('strategy = "copy-on-write"', 'key = ["id"]'),
        ('"shop.items"\nchangelog = false', '"shop.parts"'),
    ) == (
        'table "shop.orders".key',
        'table "shop.orders".strategy',
        'table "shop.items"',
        'table "shop.parts"',
    )


def test_refusal_names_each_key_and_its_reason_and_no_value(file: Path) -> None:
    found = changes(file, ("shop.*", "crm.*"), ('"shop.orders"', '"crm.o"'), ('"shop.items"', '"crm.i"'))
    refuse_fixed(found)
    secret = 'hash_key = { env = "HUNTER2" }\n'
    fixed = changes(
        file,
        ("@db:3307", "@hunter2:3306"),
        extra=f'[spark]\nconf = {{ "spark.x" = "hunter2" }}\n[columns]\n{secret}',
    )
    assert fixed == ("source.url", "spark.conf", "columns.hash_key")
    with pytest.raises(ConfigError) as caught:
        refuse_fixed(fixed)
    assert caught.value.message == (
        "a running mirror cannot change source.url (the positions of two servers cannot be compared); "
        "spark.conf (Java has been started with it); "
        "columns.hash_key (Spark hides it in its output only if it was started with it)"
    )
    assert "restart" in (caught.value.hint or "")
    assert "hunter2" not in " ".join((*fixed, caught.value.message)).lower()


def test_changed_keys_contain_no_value_of_an_option(file: Path) -> None:
    found = changes(
        file,
        ('{ env = "SHOP_PASSWORD" }', '{ env = "HUNTER2" }'),
        extra='[log.options]\n"client.id" = "hunter2"\n[columns]\nmask = { card = { text = "hunter2" } }\n',
    )
    assert found == ("source.password", "log.options", "columns.mask")
