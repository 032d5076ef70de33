"""Which tables have a history, by the configuration."""

from pathlib import Path

import pytest

from replicator.errors import ConfigError
from replicator.pipelines.files import chosen, read_pipelines
from replicator.pipelines.history.definition import OwnNames, histories_of
from replicator.pipelines.results import has_pipelines, results_over
from tests.support.config import minimal_config

ORDERS = {"name": "shop.orders", "history": "scd2"}


def test_history_is_a_pipeline_named_like_its_table(tmp_path: Path) -> None:
    config = minimal_config(tmp_path, table=[ORDERS, {"name": "shop.items"}])
    (history,) = histories_of(config)
    assert (str(history.mirror), history.name, str(history.kind)) == (
        "shop.orders",
        "shop_history.orders",
        "scd2",
    )
    files = read_pipelines(config)
    assert files
    assert has_pipelines(config)
    assert chosen(files, ["shop_history.orders"], config) == [history]
    assert files.with_inputs(["shop_history.orders"]) == [history]
    assert files.with_inputs(["revenue"]) == []
    assert results_over(config)("orders") == ("shop_history.orders",)


def test_pipeline_that_reads_a_history_needs_it(tmp_path: Path) -> None:
    config = minimal_config(tmp_path, table=[ORDERS])
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "n.sql").write_text(
        "-- refresh: auto\nSELECT count(*) AS n FROM shop_history.orders"
    )
    files = read_pipelines(config)
    assert [pipeline.name for pipeline in files.with_inputs(["n"])] == ["shop_history.orders", "n"]


def test_columns_of_a_history_leave_out_those_of_the_key(tmp_path: Path) -> None:
    config = minimal_config(tmp_path, table=[ORDERS | {"history_columns": ["STATUS"]}])
    (history,) = histories_of(config)
    assert history.tracked(["id", "status", "total"], ["id"]) == ["status"]
    (every,) = histories_of(minimal_config(tmp_path, table=[ORDERS]))
    assert every.tracked(["id", "status", "total"], ["id"]) == ["status", "total"]
    assert every.fingerprint != history.fingerprint


def test_own_columns_make_way_for_those_of_the_table() -> None:
    own = OwnNames.beside(["id", "Valid_From", "_valid_from", "_version"])
    assert (own.valid_from, own.valid_to, own.version) == ("__valid_from", "valid_to", "__version")


@pytest.mark.parametrize(
    ("table", "sections", "message"),
    [
        ({"history": "append", "changelog": False}, {}, "written from the changelog"),
        ({"history": "soft_delete", "history_columns": ["a"]}, {}, 'only with history = "scd2"'),
        ({"history_columns": ["a"]}, {}, 'only with history = "scd2"'),
        ({"history": "scd2", "changelog": False}, {}, "written from the changelog"),
        ({"history": "scd2"}, {"apply": {"changelog": False}}, "written from the changelog"),
        ({"history": "typo"}, {}, "scd2"),
    ],
)
def test_history_that_cannot_be_is_refused(
    tmp_path: Path, table: dict[str, object], sections: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        minimal_config(tmp_path, table=[{"name": "shop.orders", **table}], **sections)


def test_history_of_a_kafka_log_needs_kafka_connect(tmp_path: Path) -> None:
    log = {"kind": "kafka", "bootstrap_servers": "k:9092", "topic_prefix": "shop"}
    source = {"url": "mysql://u@h/shop", "tables": ["shop.*"]}
    with pytest.raises(ConfigError, match=r"needs log\.connect_url"):
        minimal_config(tmp_path, log=log, source=source, table=[ORDERS])
    known = minimal_config(
        tmp_path, log=log | {"connect_url": "http://c:8083"}, source=source, table=[ORDERS]
    )
    assert len(histories_of(known)) == 1
