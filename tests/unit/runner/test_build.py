"""The objects of a mirror that need no Spark session."""

from unittest.mock import Mock

import pytest

from replicator.decode.avro.format import AvroFormat
from replicator.runner.build import event_format
from replicator.sources.archive.change_log import ArchiveChangeLog
from tests.support.config import minimal_config


@pytest.mark.parametrize(("allowed", "refused"), [([], True), (["value.converter"], False)])
def test_event_format_of_an_archive_refuses_lost_nulls_unless_they_are_allowed(
    allowed: list[str], refused: bool
) -> None:
    """Apicurio's converter writes defaults for NULL; `replay` refuses such events as `run` does."""
    archive = Mock(spec=ArchiveChangeLog)
    archive.writer_schemas.return_value = {}
    config = minimal_config(
        source={"url": "mysql://cdc@db:3306/shop", "tables": ["shop.*"]},
        log={
            "kind": "kafka",
            "bootstrap_servers": "broker:9092",
            "topic_prefix": "shop",
            "format": "avro",
            "registry_url": "http://registry/apis/ccompat/v7",
            "allow_lossy": allowed,
        },
    )
    found = event_format(config, archive)
    assert isinstance(found, AvroFormat)
    assert found.refuse_defaults is refused
