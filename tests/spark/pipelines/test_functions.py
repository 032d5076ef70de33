"""Pipelines in Python: their results equal what DuckDB computes of the source's rows at the same position."""

from typing import Any

from replicator.model.moments import parse_as_of
from replicator.operations.rebuild.results import compute_as_of
from replicator.pipelines.checking import check_result
from replicator.pipelines.refresh.refresh import Refreshed
from replicator.pipelines.service import NotRefreshed
from replicator.pipelines.status import list_pipelines, show_pipeline
from tests.oracle.model import Source, SourceTable
from tests.spark.pipelines.test_refresh import boundary
from tests.support.lake_harness import LakeHarness
from tests.support.pipeline_lake import PipelineLake, Round, oracle, rows_at

LATEST = """
    # key: number, place
    # by key: number
    # changelog: true
    # expect known: number IS NOT NULL, drop
    # input rows: SELECT number, id FROM shop.t0_bigint
    # input pages: SELECT number, page FROM shop.t1_keyless
    '''The rows of each number, and how many pages have it.'''

    from __future__ import annotations

    from dataclasses import dataclass

    from pyspark.sql import DataFrame, Window
    from pyspark.sql import functions as F


    @dataclass
    class Most:
        rows: int = 3


    @F.udf("bigint")
    def doubled(number):
        return None if number is None else number * 2


    def model(rows: DataFrame, pages: DataFrame) -> DataFrame:
        place = F.row_number().over(Window.partitionBy("number").orderBy("id"))
        counted = pages.groupBy("number").agg(F.count("*").alias("pages"))
        numbered = rows.withColumn("place", place).where(F.col("place") <= Most().rows)
        joined = numbered.join(counted, "number", "left")
        return joined.select("number", "place", doubled("id").alias("twice"), "pages")
"""
LATEST_SQL = (
    "SELECT number, place, id * 2, pages FROM (SELECT number, id, row_number() OVER (PARTITION BY number ORDER BY id) "
    "AS place FROM shop.t0_bigint) AS r LEFT JOIN (SELECT number, count(*) AS pages FROM shop.t1_keyless GROUP BY "
    "number) AS p USING (number) WHERE place <= 3 AND number IS NOT NULL"
)
COUNTED = """
    # key: pages
    # input latest: shop_pipelines.latest

    def model(latest):
        return latest.groupBy("pages").count()
"""
COUNTED_SQL = f"SELECT pages, count(*) FROM ({LATEST_SQL}) AS l (number, place, twice, pages) GROUP BY pages"


def assert_exact(pipelines: PipelineLake, source: Source, at: tuple[int, int] | None = None) -> None:
    tables = [(table.name, table, rows_at(table, at)) for table in source.tables]
    assert pipelines.rows("latest") == oracle(LATEST_SQL, tables)
    assert pipelines.rows("counted") == oracle(COUNTED_SQL, tables)


def outcomes(pipelines: PipelineLake, at: tuple[int, int] | None = None) -> dict[str, str]:
    found = pipelines.refreshed(None if at is None else boundary(at))
    return {name: str(result.outcome) for name, result in found.items()}


def test_results_of_functions_are_exact_at_each_boundary(lake: LakeHarness) -> None:
    source = Source(11, alters=0, truncates=False)
    source.start(["bigint", "keyless"], 30)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    pipelines.define("latest", LATEST, "py")
    pipelines.define("counted", COUNTED, "py")
    at = round_.write(transactions=25, later=6)
    assert outcomes(pipelines, at) == {"latest": "built", "counted": "built"}
    assert_exact(pipelines, source, at)
    for _ in range(2):
        at = round_.write(transactions=10, later=3)
        assert outcomes(pipelines, at)["latest"] == "changed"
        assert_exact(pipelines, source, at)
    assert outcomes(pipelines)["latest"] == "changed"
    assert_exact(pipelines, source)
    assert outcomes(pipelines) == {"latest": "same", "counted": "same"}
    opened = pipelines.pipelines()
    (latest, counted) = opened.files.definitions
    assert check_result(opened, latest).is_equal
    assert check_result(opened, counted).is_equal
    shown = {status.name: status for status in list_pipelines(pipelines.config)}
    assert (shown["latest"].state, shown["latest"].rule) == ("current", "affected")
    assert (shown["counted"].state, shown["counted"].rule) == ("current", "full")
    steps = dict(show_pipeline(pipelines.config, "latest")[0].steps)
    assert steps["latest__model"] == "model(rows=latest__input_rows, pages=latest__input_pages)"
    # As of an earlier moment, in batch.
    name = f"mysql-bin.{at[0]:06d}"
    then = compute_as_of(opened, counted, parse_as_of(f"{name}:{at[1]}"), "shop_then")
    tables = [(table.name, table, rows_at(table, at)) for table in source.tables]
    assert then.rows == oracle(COUNTED_SQL, tables).total()
    # Another definition.
    pipelines.define("latest", LATEST.replace("rows: int = 3", "rows: int = 3 # most"), "py")
    assert outcomes(pipelines)["latest"] == "same"
    pipelines.define("latest", LATEST.replace("rows: int = 3", "rows: int = 2"), "py")
    assert outcomes(pipelines)["latest"] == "built"
    assert pipelines.rows("latest") == oracle(LATEST_SQL.replace("<= 3", "<= 2"), _tables(source))


def _tables(source: Source) -> list[tuple[str, SourceTable, list[dict[str, Any]]]]:
    return [(table.name, table, rows_at(table)) for table in source.tables]


def test_an_input_without_the_key_makes_the_whole_be_computed(lake: LakeHarness) -> None:
    source = Source(5, alters=0, truncates=False)
    source.start(["bigint", "keyless"], 20)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    pipelines.define(
        "shares",
        """
        # key: ID
        # by key: id
        # input rows: SELECT id, number FROM shop.t0_bigint
        # input pages: SELECT page FROM shop.t1_keyless

        def model(rows, pages):
            total = pages.count()
            return rows.selectExpr("id", "number", f"{total} AS pages")
        """,
        "py",
    )
    query = "SELECT id, number, (SELECT count(*) FROM shop.t1_keyless) FROM shop.t0_bigint"
    found = []
    for _ in range(4):
        round_.write(transactions=3)
        result = pipelines.refreshed()["shares"]
        found.append(result.reason or str(result.outcome))
        assert pipelines.rows("shares") == oracle(query, _tables(source))
    assert "changed" in found
    assert "shop.t1_keyless changed, which has no column id" in found


FAILING = {
    "import": ("import no_such_module", "rows", "4: ModuleNotFoundError: No module named 'no_such_module'"),
    "exit": ("raise SystemExit(3)", "rows", "4: SystemExit: 3"),
    "column": ("", "rows.select('nubmer')", "5: Spark refuses it: [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
    "error": ("def of(rows):\n    return {}['x']", "of(rows)", "5: KeyError: 'x'"),
    "none": ("", "None", "4: model() must return a DataFrame of Spark, not NoneType"),
    "random": (
        "from pyspark.sql.functions import uuid",
        "rows.select('id', uuid().alias('u'))",
        "5: its result",
    ),
    "argument": ("", "rows.orderBy()", "5: [CANNOT_BE_EMPTY] At least one cols must"),
    "eager": ("", "rows.limit(rows.selectExpr('id DIV 0').head()[0])", "5: TypeError: 'NoneType' object"),
    "key": ("", "rows.select('number')", "1: key: the result has no column id"),
    "hidden": (
        "",
        "rows.select('id', rows.number.alias('_State'))",
        "4: _State is the name of a hidden column",
    ),
    "twice": ("", "rows.select('id', 'ID')", "4: the result has two columns id"),
    "worker": (
        "from pyspark.sql.functions import udf\n@udf('int')\ndef half(n):\n    return 1 // (n - n)",
        "rows.select('id', half('id').alias('h'))",
        "7: ZeroDivisionError: integer division or modulo by zero",
    ),
    "columns": (
        "",
        "rows.select('id', *(['number'] if rows.count() > 9 else []))",
        "4: the columns are id, and were",
    ),
}
"""Code, what the function returns, and the error after the name of the file."""


def test_errors_of_functions_pause_them_alone_with_file_and_line(lake: LakeHarness) -> None:
    source = Source(3, alters=0, truncates=False)
    source.start(["bigint"], 20)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    round_.write(transactions=20)
    pipelines.define("right", "SELECT id FROM shop.t0_bigint")
    header = ["# key: id", "# by key: id", "# input rows: shop.t0_bigint"]
    for name, (code, returned, _) in FAILING.items():
        lines = [*header, *filter(None, [code]), "def model(rows):", f"    return {returned}"]
        pipelines.define(name, "\n".join(lines), "py")
    first = {result.pipeline: result for result in pipelines.refresh()}
    assert isinstance(first["columns"], Refreshed)
    round_.write(transactions=1)
    found = {result.pipeline: result for result in pipelines.refresh(retry=False)}
    assert isinstance(found.pop("right"), Refreshed)
    assert found.keys() == FAILING.keys()
    for name, result in found.items():
        assert isinstance(result, NotRefreshed)
        assert not result.waits
        assert result.reason.partition(f"{name}.py:")[2].startswith(FAILING[name][2])
        assert result.hint
    # What inputs may get is tried at each refresh; code is run again when it changed.
    pauses = pipelines.pipelines().pauses.read()
    assert {name for name, pause in pauses.items() if pause.text is None} == {"column"}
    pipelines.define("import", "\n".join([*header, "def model(rows):", "    return rows.select('id')"]), "py")
    (again,) = pipelines.refresh(None, "import", retry=False)
    assert isinstance(again, Refreshed)
    assert pipelines.rows("import") == pipelines.rows("right")
