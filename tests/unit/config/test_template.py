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


def test_what_is_written_loads_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "shop.toml"
    write_config(file, ANSWERS)
    config = load(file)
    assert config.source.tables == ANSWERS.tables
    assert isinstance(config.log, KafkaLog)
    assert config.log.connect_url == "http://connect:8083"
    assert config.lake.uri == f"jdbc:sqlite:{file.parent}/lake/catalog.db"


def test_every_commented_default_is_valid_and_is_the_default(tmp_path: Path) -> None:
    text = render_config(ANSWERS)
    # A line of the form `# key = value` is an example that works once the mark is taken away.
    opened = re.sub(r'^# (?=\[|"?[a-z._]+"? = )', "", text, flags=re.MULTILINE)
    opened = opened.replace('state_dir = ".replicator/NAME"', 'state_dir = ".replicator/shop"')
    plain, full = tmp_path / "plain.toml", tmp_path / "full.toml"
    plain.write_text(text)
    full.write_text(opened)
    assert len(tomllib.loads(opened)["apply"]) == 8
    before, after = load(plain), load(full)
    assert after.apply == before.apply
    assert after.mirror == before.mirror
    assert after.tables[0].name == "shop.orders"


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        write_config(file, ANSWERS)
    assert file.read_text() == "mine"
    write_config(file, ANSWERS, replace=True)
    assert load(file).mirror.name == "shop"


def test_an_answer_that_does_not_fit_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="namespace"):
        render_config(Answers(**{**{f: getattr(ANSWERS, f) for f in Answers.__slots__}, "namespace": "a b"}))
