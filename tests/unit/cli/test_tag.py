"""`replicator tag`, `rebuild` and `restore` as a user calls them, without a mirror."""

from pathlib import Path
from typing import Any

import pytest

KAFKA = """kind = "kafka"
bootstrap_servers = "127.0.0.1:1"
topic_prefix = "shop"
connect_url = "http://127.0.0.1:1"
"""


@pytest.fixture
def kafka(config: Path) -> Path:
    text = config.read_text()
    log = text[text.index('kind = "archive"') : text.index("[lake]")]
    config.write_text(
        text.replace(log, KAFKA).replace("[source]", '[source]\nurl = "mysql://u@127.0.0.1:1/shop"')
    )
    return config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tag", "noon"), "the log is an archive"),
        (("tag", "main"), "uses"),
        (("tag", "--delete"), "--delete needs the name"),
        (("rebuild", "--as-of", "yesterday", "--yes"), "is no position"),
        (("rebuild",), "standard input is not a terminal"),
        (("rebuild", "--yes"), "the lake has no changelog yet"),
        (("restore", "--as-of", "2026-07-25", "--to", "shop_ops"), "is a namespace of the mirror itself"),
    ],
)
def test_wrong_use_is_explained(cli: Any, config: Path, arguments: tuple[str, ...], message: str) -> None:
    done = cli(*arguments)
    assert done.code == 2
    assert message in done.err
    assert "next:" in done.err
