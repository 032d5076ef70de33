"""What refuses the start of a mirror within a moment, before Spark is used."""

import socket
from pathlib import Path
from typing import Any

import pytest

from replicator.config import Config
from replicator.errors import CheckFailed, ConfigError, SourceUnavailable
from replicator.operations import check
from replicator.operations.check import refuse_start
from tests.support.config import minimal_config
from tests.support.kafka_connect import serving
from tests.support.mock_broker import MockBroker


def config(folder: Path, broker: MockBroker, connect_url: str | None = None, **source: Any) -> Config:
    log: dict[str, Any] = {"kind": "kafka", "bootstrap_servers": broker.servers, "topic_prefix": "shop"}
    if connect_url is not None:
        log["connect_url"] = connect_url
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    source = {"url": f"mysql://u@127.0.0.1:{port}/shop", "tables": ["shop.*"], **source}
    return minimal_config(folder, source=source, log=log, bootstrap={"by": "connector"})


@pytest.fixture(scope="module")
def broker() -> MockBroker:
    return MockBroker()


def test_source_that_is_away_refuses_no_start(tmp_path: Path, broker: MockBroker) -> None:
    refuse_start(config(tmp_path, broker))
    assert (tmp_path / "lake").is_dir()


def test_password_that_is_missing_refuses_the_start(
    tmp_path: Path, broker: MockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE is not set"):
        refuse_start(config(tmp_path, broker, password={"env": "NO_SUCH_VARIABLE"}))


def test_lake_that_cannot_be_written_refuses_the_start(tmp_path: Path, broker: MockBroker) -> None:
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(CheckFailed, match=r"lake: warehouse: .* cannot be written"):
        refuse_start(config(tmp_path, broker))


def test_missing_connector_refuses_the_start_unless_kafka_has_topics(
    tmp_path: Path, broker: MockBroker
) -> None:
    with serving() as connect:
        connect.reply("GET /connectors?expand=info&expand=status", 200, {})
        settings = config(tmp_path, broker, connect.url)
        with pytest.raises(CheckFailed, match="no connector has the topic prefix") as caught:
            refuse_start(settings)
        assert caught.value.hint == "run: replicator connect"
        broker.send("shop.shop.orders", b"{}")
        refuse_start(settings)
    refuse_start(settings)


def test_login_that_is_refused_ends_the_start(
    tmp_path: Path, broker: MockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replicator.errors import LoginRefused

    def refuse(*_: Any, **__: Any) -> None:
        raise LoginRefused("MySQL refused the user u", "check source.password")

    monkeypatch.setattr(check, "connect_to", refuse)
    with pytest.raises(SourceUnavailable, match="refused the user"):
        check.refuse_start(config(tmp_path, broker))
