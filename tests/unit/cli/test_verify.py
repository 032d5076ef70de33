"""`replicator verify` on the command line, without a server."""

from pathlib import Path
from typing import Any

import pytest


def test_verify_refuses_a_mirror_of_an_archive(cli: Any, config: Path) -> None:
    ran = cli("verify", "-c", str(config))
    assert ran.code == 2
    assert "a mirror of an archive cannot be compared with the source" in ran.err


def test_verify_refuses_a_mirror_without_kafka_connect(cli: Any, config: Path) -> None:
    text = config.read_text().replace(
        'kind = "archive"\npath = "recorded"', 'kind = "kafka"\nbootstrap_servers = "x:1"'
    )
    config.write_text(text.replace("[source]", '[source]\nurl = "mysql://u@localhost:1/shop"'))
    ran = cli("verify", "-c", str(config))
    assert ran.code == 2
    assert "log.connect_url is not set" in ran.err


@pytest.mark.parametrize("option", [("--sample", "101"), ("--max-rows-per-second", "0"), ("--wait", "-1")])
def test_verify_refuses_values_out_of_range(cli: Any, config: Path, option: tuple[str, str]) -> None:
    ran = cli("verify", "-c", str(config), *option)
    assert ran.code == 2
    assert option[0] in ran.err
