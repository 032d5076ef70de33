"""The files of pipelines beside the configuration."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlglot import exp

from replicator.config import Config
from replicator.errors import PipelineError, UsageError
from replicator.pipelines.files import chosen, of_log_tables, read_pipelines
from replicator.pipelines.inputs.log_ends import ends_reader
from replicator.pipelines.query import graph
from replicator.pipelines.query.names import TableName
from replicator.pipelines.results import results_over
from replicator.pipelines.status import show_pipeline
from tests.support.config import minimal_config


def configured(folder: Path, **files: str) -> Config:
    (folder / "pipelines").mkdir()
    for name, text in files.items():
        (folder / "pipelines" / f"{name}.sql").write_text(text)
    return minimal_config(folder)


def test_no_folder_has_no_pipelines(tmp_path: Path) -> None:
    config = minimal_config(tmp_path)
    files = read_pipelines(config)
    assert not files
    with pytest.raises(UsageError, match="there is no pipeline revenue") as error:
        chosen(files, ["revenue"], config)
    assert "revenue.sql" in str(error.value.hint)


def test_each_pipeline_is_after_those_that_it_reads(tmp_path: Path) -> None:
    config = configured(
        tmp_path,
        a="SELECT n FROM shop_pipelines.b",
        b="SELECT count(*) AS n FROM shop_pipelines.c",
        c="SELECT id FROM shop.orders",
        d="SELECT id FROM shop.orders",
    )
    files = read_pipelines(config)
    names = [definition.name for definition in files.definitions]
    assert names.index("c") < names.index("b") < names.index("a")
    assert [pipeline.name for pipeline in files.with_inputs(["b"])] == ["c", "b"]
    assert [pipeline.name for pipeline in chosen(files, ["b"], config)] == ["b"]


def test_file_that_cannot_be_used_stops_no_other(tmp_path: Path) -> None:
    config = configured(
        tmp_path,
        right="SELECT id FROM shop.orders",
        wrong="SELECT id FROM FROM",
        logged="-- changelog: yes\nSELECT id FROM shop.orders",
        changes="SELECT id\nFROM shop_pipelines_changes.right",
        mirror="-- table: shop.orders\nSELECT id FROM shop.orders",
        nowhere="SELECT id FROM orders",
        circle="SELECT id FROM shop_pipelines.circle",
        same="-- table: marts.t\nSELECT id FROM shop.orders",
        twice="-- table: marts.t\nSELECT id FROM shop.orders",
    )
    files = read_pipelines(config)
    assert [definition.name for definition in files.definitions] == ["right"]
    assert set(files.broken) == {"wrong", "logged", "changes", "mirror", "nowhere", "circle", "same", "twice"}
    assert (
        "changes.sql:2:6: shop_pipelines_changes.right is the changelog"
        in files.broken["changes"].error.message
    )
    assert "logged.sql:1" in files.broken["logged"].error.message
    assert "is a namespace of the mirror itself" in files.broken["mirror"].error.message
    assert TableName("shop", "orders") not in files.results
    with pytest.raises(PipelineError, match=r"wrong\.sql:1"):
        chosen(files, ["wrong"], config)
    with pytest.raises(UsageError, match="there is no pipeline other") as error:
        chosen(files, ["other"], config)
    assert (
        error.value.hint == "pipelines: changes, circle, logged, mirror, nowhere, right, same, twice, wrong"
    )


def test_results_over_a_mirror_are_those_that_read_it_through_others_too(tmp_path: Path) -> None:
    config = configured(
        tmp_path,
        a="SELECT n FROM shop_pipelines.b",
        b="SELECT count(*) AS n FROM shop_changes.orders",
        c="-- table: marts.all\nSELECT id FROM `shop*`.`ord*`",
        d="SELECT id FROM shop.items",
    )
    over = results_over(config)
    assert over("orders") == ("marts.all", "shop_pipelines.a", "shop_pipelines.b")
    assert over("items") == ("shop_pipelines.d",)
    assert over("customers") == ()


def test_pipelines_of_log_tables_alone_have_no_source_position(tmp_path: Path) -> None:
    log_table = {"topic": "clicks", "table": "logs.clicks"}
    configured(
        tmp_path,
        a_over="SELECT id FROM shop_pipelines.clean",
        clean="SELECT id FROM logs.CLICKS",
        joined="SELECT c.id FROM logs.clicks c JOIN shop.orders o ON o.id = c.id",
        over="SELECT id FROM shop_pipelines.joined",
        any="SELECT id FROM `logs`.`c*`",
        orders="SELECT id FROM shop.orders",
    )
    source = {"url": "mysql://root@nowhere:3306/shop", "tables": ["shop.*"]}
    log = {"kind": "kafka", "bootstrap_servers": "nowhere:9092", "topic_prefix": "shop"}
    config = minimal_config(tmp_path, log=log, source=source, log_table=[log_table])
    assert of_log_tables(read_pipelines(config), config) == {"a_over", "clean"}
    # Only those that need a position need Kafka Connect.
    with pytest.raises(UsageError, match=r"log\.connect_url is not set"):
        ends_reader(config)
    read = ends_reader(config, required=False)
    with pytest.raises(UsageError, match=r"log\.connect_url is not set"):
        read()


def test_each_file_is_searched_for_its_tables_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: a hundred pipelines are listed at once."""
    searched, search = 0, graph.references

    def counted(query: exp.Query) -> Iterator[exp.Table]:
        nonlocal searched
        searched += 1
        return search(query)

    count = 40
    texts = {f"p{n}": f"SELECT id FROM shop_pipelines.p{n - 1}" for n in range(1, count)}
    config = configured(tmp_path, p0="SELECT id FROM shop.orders", **texts)
    monkeypatch.setattr(graph, "references", counted)
    files = read_pipelines(config)
    assert [definition.name for definition in files.definitions] == [f"p{n}" for n in range(count)]
    assert len(show_pipeline(config, "p20")) == 1 + count
    assert searched < 10 * count
