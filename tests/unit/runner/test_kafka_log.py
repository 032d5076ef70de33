"""Which log a mirror that follows Kafka reads."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from replicator.config import Config, KafkaLog
from replicator.errors import ArchiveError
from replicator.runner.kafka_log import open_kafka_log
from replicator.sources.joined_log import JoinedLog
from replicator.sources.kafka.log import KafkaChangeLog
from tests.support.config import minimal_config


def config(folder: Path, **log: Any) -> tuple[Config, KafkaLog]:
    kafka = {"kind": "kafka", "bootstrap_servers": "127.0.0.1:1", "topic_prefix": "shop", **log}
    source = {"url": "mysql://u@h/shop", "tables": ["shop.*"]}
    found = minimal_config(folder, source=source, log=kafka)
    assert isinstance(found.log, KafkaLog)
    return found, found.log


def test_log_is_joined_to_its_archive_if_it_has_one(tmp_path: Path) -> None:
    with contextlib.closing(open_kafka_log(*config(tmp_path))) as log:
        assert isinstance(log, KafkaChangeLog)
    with contextlib.closing(open_kafka_log(*config(tmp_path, archive="past"))) as log:
        assert isinstance(log, JoinedLog)
        assert (log.topic_prefix, log.grows) == ("shop", True)


def test_archive_in_an_unknown_kind_of_store_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="tape:"):
        open_kafka_log(*config(tmp_path, archive="tape://shop"))
