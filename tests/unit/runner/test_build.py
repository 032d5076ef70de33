"""The objects of a mirror that need no Spark session."""

from unittest.mock import Mock

import pytest

from replicator.decode.avro.format import AvroFormat
from replicator.runner.build import Supervision, _watches, event_format
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.watch.binlog_watch import BinlogWatch
from replicator.watch.definition_checks import DefinitionChecks
from replicator.watch.failed_connector import FailedConnector
from tests.support.config import minimal_config


@pytest.mark.parametrize(("allowed", "refused"), [([], True), (["value.converter"], False)])
def test_event_format_of_an_archive_refuses_lost_nulls_unless_they_are_allowed(
    allowed: list[str], refused: bool
) -> None:
    """Apicurio's converter writes defaults for NULL; `replay` refuses such events as `run` does."""
    archive = Mock(spec=ArchiveChangeLog, reader=Mock(**{"writer_schemas.return_value": {}}))
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


def test_a_mirror_watches_what_its_configuration_names() -> None:
    kafka = {
        "kind": "kafka",
        "bootstrap_servers": "broker:9092",
        "topic_prefix": "shop",
        "connect_url": "http://connect:8083",
    }
    source = {"url": "mysql://cdc@db:3306/shop", "tables": ["shop.*"]}
    found = []
    for watched, definitions in ((True, True), (True, False), (False, True)):
        config = minimal_config(source={**source, "watch_binlog": watched}, log=kafka)
        supervision = Supervision.of(config, definitions=definitions)
        watches = _watches(Mock(config=config), supervision, Mock())
        found.append([type(watch) for watch in watches])
    assert found == [
        [BinlogWatch, DefinitionChecks, FailedConnector],
        [BinlogWatch, FailedConnector],
        [DefinitionChecks, FailedConnector],
    ]


def test_lost_binlogs_and_other_failures_are_noted_apart() -> None:
    source = {"url": "mysql://cdc@db:3306/shop", "tables": ["shop.*"]}
    log = {"kind": "kafka", "bootstrap_servers": "b:1", "topic_prefix": "shop", "connect_url": "http://c:1"}
    supervision = Supervision.of(minimal_config(source=source, log=log))
    assert supervision.noted.note("a.B: reads x, but this is no longer available on the server.")
    assert supervision.noted.lacks_binlogs
    assert supervision.noted.take() is None
    assert supervision.noted.note(
        "a.B: Error processing row in a, internal schema size 3, but row size 1 , x"
    )
    assert supervision.noted.take() is not None
