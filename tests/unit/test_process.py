"""What a mirror is made of before there is a Spark session."""

import tomllib
from pathlib import Path
from unittest.mock import Mock

import pytest

from replicator.config import parse
from replicator.decode.avro_book import AvroBook
from replicator.process import _book
from replicator.source.archive import ArchiveChangeLog

TEXT = """
[mirror]
name = "shop"
[source]
url = "mysql://cdc@db:3306/shop"
tables = ["shop.*"]
[log]
kind = "kafka"
bootstrap_servers = "broker:9092"
topic_prefix = "shop"
format = "avro"
registry_url = "http://registry/apis/ccompat/v7"
MORE
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:catalog.db"
warehouse = "lake"
namespace = "shop"
"""


@pytest.mark.parametrize(("more", "refused"), [("", True), ('allow_lossy = ["value.converter"]', False)])
def test_an_archive_is_replayed_under_the_rules_of_its_log(more: str, refused: bool) -> None:
    """What Apicurio's converter made of NULLs is refused by `replay` as it is by `run`."""
    archive = Mock(spec=ArchiveChangeLog)
    archive.writer_schemas.return_value = {}
    book = _book(parse(tomllib.loads(TEXT.replace("MORE", more)), base=Path("/mirrors")), archive)
    assert isinstance(book, AvroBook)
    assert book._refuse_defaults is refused
