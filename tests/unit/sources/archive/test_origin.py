"""The origin of an imported archive."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import validate

from replicator.errors import ArchiveError
from replicator.sources.archive.origin import ORIGIN_NAME, Origin, is_import, load_origin, save_origin
from replicator.sources.archive.storage import open_storage
from replicator.sources.archive.writer import ArchiveWriter

ORIGIN = Origin("mysql-bin.000001", 1_700_000_000, 1, "0" * 64)
SCHEMAS = Path(__file__).parents[4] / "schemas"


def test_origin_is_kept_in_the_published_format(tmp_path: Path) -> None:
    archive = open_storage(tmp_path / "archive")
    save_origin(archive, ORIGIN)
    save_origin(archive, ORIGIN)
    assert load_origin(archive) == ORIGIN
    assert load_origin(open_storage(tmp_path)) is None
    assert ORIGIN_NAME == "origin.json"
    schema = json.loads((SCHEMAS / "archive-origin-v1.json").read_text())
    validate(json.loads((tmp_path / "archive" / ORIGIN_NAME).read_text()), schema)


def test_an_archive_of_another_origin_is_refused(tmp_path: Path) -> None:
    archive, recorded = (open_storage(tmp_path / name) for name in ("imported", "recorded"))
    save_origin(archive, ORIGIN)
    with pytest.raises(ArchiveError, match=r"contains events of mysql-bin\.000001"):
        save_origin(archive, replace(ORIGIN, settings="1" * 64))
    ArchiveWriter(recorded, topic_prefix="shop", encoding="json").close()
    with pytest.raises(ArchiveError, match="contains events of Kafka's topics"):
        save_origin(recorded, ORIGIN)


@pytest.mark.parametrize("content", ["{", "[]", '{"format": "replicator-binlog-import", "version": 1}'])
def test_a_damaged_origin_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / ORIGIN_NAME).write_text(content)
    with pytest.raises(ArchiveError, match="damaged"):
        load_origin(open_storage(tmp_path))


def test_topics_have_the_id_of_the_first_file() -> None:
    known = ORIGIN.topic_id("shop.shop.t")
    # Lakes contain it.
    assert known == "binlog:21c7064db99dfe602a276dfc5fbb1cda"
    assert is_import(known)
    assert not is_import("Zm9v")
    assert not is_import(None)
    # Definitions and selected tables do not change the offsets of a topic.
    assert replace(ORIGIN, settings="1" * 64).topic_id("shop.shop.t") == known
    others = {replace(ORIGIN, created=1).topic_id("shop.shop.t"), ORIGIN.topic_id("shop.shop.u"), known}
    assert len(others) == 3
