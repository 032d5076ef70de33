"""The configuration that `init` writes."""

import re
import tomllib
from pathlib import Path

import pytest

from replicator.config import KafkaLog, load
from replicator.config.template import Answers, render_config, write_config
from replicator.errors import UsageError

ANSWERS = Answers(
    name="shop",
    url="mysql://replicator@db:3306/shop",
    tables=("shop.*", 'shop."odd"'),
    namespace="shop",
    password_env="SHOP_PASSWORD",
    bootstrap_servers="broker:9092",
    connect_url="http://connect:8083",
    topic_prefix="shop",
    warehouse="lake",
)


def test_write_config_writes_a_file_that_load_accepts(tmp_path: Path) -> None:
    file = tmp_path / "new" / "shop.toml"
    write_config(file, ANSWERS)
    config = load(file)
    assert config.source.tables == ANSWERS.tables
    assert isinstance(config.log, KafkaLog)
    assert config.log.connect_url == "http://connect:8083"
    assert config.lake.uri == f"jdbc:sqlite:{file.parent}/lake/catalog.db"


def test_render_config_writes_defaults_in_comments_that_are_valid_toml(tmp_path: Path) -> None:
    text = render_config(ANSWERS)
    # A line of the form `# key = value` is an example that is valid without its comment sign.
    opened = re.sub(r'^# (?=\[|"?[a-z._]+"? = )', "", text, flags=re.MULTILINE)
    opened = opened.replace('state_dir = ".replicator/NAME"', 'state_dir = ".replicator/shop"')
    plain, full = tmp_path / "plain.toml", tmp_path / "full.toml"
    plain.write_text(text)
    full.write_text(opened)
    assert len(tomllib.loads(opened)["apply"]) == 11
    before, after = load(plain), load(full)
    assert after.apply == before.apply
    assert after.mirror == before.mirror
    assert after.tables[0].name == "shop.orders"


def test_write_config_keeps_an_existing_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        write_config(file, ANSWERS)
    assert file.read_text() == "mine"
    write_config(file, ANSWERS, replace=True)
    assert load(file).mirror.name == "shop"
