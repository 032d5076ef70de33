"""A configuration file without mistakes, and functions that load variants of it."""

from pathlib import Path

import pytest

from replicator.config import Config, load
from replicator.errors import ConfigError

ARCHIVE_MIRROR = """
[mirror]
name = "shop"
[source]
tables = ["shop.*"]
[log]
kind = "archive"
path = "archive"
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:lake/catalog.db"
warehouse = "lake"
namespace = "shop"
"""
"""A mirror of the archive in the folder of the file; a test may append to the section `lake` and add others."""

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


def load_text(file: Path, text: str) -> Config:
    """Write the file and load it."""
    file.write_text(text, encoding="utf-8")
    return load(file)


def mistakes_in(file: Path, text: str) -> list[str]:
    """Write the file, which must not load, and return the lines of the error without the file's name."""
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file)
    lines = caught.value.message.splitlines()
    if len(lines) > 1:
        assert lines.pop(0) == f"{file} has {len(lines)} errors:"
    return [line.strip().removeprefix(f"{file}:").strip() for line in lines]
