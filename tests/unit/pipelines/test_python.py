"""Pipelines in Python: their files, and by which rule their results are brought up to date."""

import random
from pathlib import Path
from textwrap import dedent

import pytest

from replicator.errors import PipelineError
from replicator.pipelines.files import read_pipelines
from replicator.pipelines.query.analysis import InputSchema, analyse
from replicator.pipelines.query.definition import Definition, Refresh
from replicator.pipelines.query.explain import explained
from replicator.pipelines.query.graph import reads
from replicator.pipelines.query.names import TableName
from replicator.pipelines.query.plan import Plan, Rule, plan_of
from replicator.pipelines.query.python import parse_function
from replicator.pipelines.results import results_over
from tests.support.config import minimal_config
from tests.support.pipeline_duckdb import DuckPipeline
from tests.support.pipeline_queries import SCHEMAS
from tests.unit.pipelines.test_law import REFRESHES, changed_tables, first_tables, same

SCORES = """
    # key: k
    # by key: k
    # expect known: n > 0, warn
    # input orders: shop.orders
    # input kinds: SELECT id AS k, z FROM shop.kinds WHERE z > 0
    '''Scores.'''

    LEAST = 3

    def model(orders, kinds):
        return orders.join(kinds, "k")
"""


def parsed(text: str) -> Definition:
    return parse_function(dedent(text).strip(), "scores", "pipelines/scores.py", "p")


def planned(text: str, schemas: dict[TableName, InputSchema] | None = None) -> Plan:
    return plan_of(analyse(parsed(text), schemas or SCHEMAS))


def refused(text: str) -> str:
    with pytest.raises(PipelineError) as found:
        planned(text)
    assert found.value.hint
    return found.value.message.removeprefix("pipelines/scores.py:")


def test_the_header_names_the_inputs() -> None:
    definition = parsed(SCORES)
    assert definition.inputs == ("orders", "kinds")
    assert (definition.key, definition.by_key) == (("k",), ("k",))
    assert definition.refresh is Refresh.INCREMENTAL
    assert reads(definition) == (TableName("shop", "orders"), TableName("shop", "kinds"))
    assert definition.header_error("model", "x").message == "pipelines/scores.py:10: x"
    assert definition.setting("table: a.b") == "# table: a.b"


def test_comments_and_layout_are_no_change_of_a_function() -> None:
    same_code = SCORES.replace("LEAST = 3", "LEAST = (3)  # at least")
    other = SCORES.replace("LEAST = 3", "LEAST = 4")
    prints = [planned(text).fingerprint for text in (SCORES, same_code, other)]
    assert prints[0] == prints[1] != prints[2]


def test_a_function_without_a_key_is_computed_as_a_whole() -> None:
    text = SCORES.replace("    # by key: k\n", "")
    plan = planned(text)
    assert plan.rule is Rule.FULL
    assert plan.reason == "the function has no key by which it computes its result"
    assert [step.view for step in plan.before] == [
        "scores__input_orders",
        "scores__input_kinds",
        "scores__model",
    ]
    assert plan.full == "SELECT * FROM `scores__model`"
    assert plan.before[-1].call == ("scores__input_orders", "scores__input_kinds")
    assert "`ID` AS" not in plan.before[0].sql
    assert planned(SCORES.replace("# key: k", "# refresh: full")).reason == "the file says refresh: full"
    assert refused(text.replace("# key: k", "# refresh: incremental")).startswith(
        "1: it is not known which rows"
    )


def test_a_function_with_a_key_gets_the_rows_of_affected_keys() -> None:
    plan = planned(SCORES)
    assert (plan.rule, plan.unit, plan.undivided) == (Rule.AFFECTED, ("k",), ())
    by_view = {step.view: step for step in plan.steps}
    assert {(n.view, n.column) for n in by_view["scores__input_orders"].narrow} == {("scores__in0_now", "k")}
    assert {(n.view, n.column) for n in by_view["scores__input_kinds"].narrow} == {("scores__in1_now", "id")}
    assert {(n.view, n.column) for n in by_view["scores__old"].narrow} == {("scores__output", "k")}
    lines = explained(plan)
    assert "  recomputed: the rows with the k that changes touch" in lines
    assert "  shop.kinds: its changes, and rows by id" in lines
    assert plan.changes == plan.checked == "scores__net"


def test_an_input_without_the_key_is_given_as_a_whole() -> None:
    unknown = {**SCHEMAS, TableName("shop", "kinds"): InputSchema({"id": "int", "z": "int"}, ("id",), False)}
    plan = planned(SCORES.replace("id AS k", "id"), unknown)
    assert plan.undivided == (TableName("shop", "kinds"),)
    assert "  as a whole if shop.kinds changes, which has no such column" in explained(plan)
    # Its changes need not be known; those of others must be.
    lacking = r"cannot be maintained incrementally: shop\.kinds has no changelog"
    with pytest.raises(PipelineError, match=r"scores\.py:4:17: " + lacking):
        planned(SCORES.replace("shop.orders", "shop.kinds").replace("# by key: k", "# by key: z"), unknown)
    both = SCORES.replace("shop.orders", "SELECT id AS k, z FROM shop.kinds").replace(
        "id AS k, z FROM", "id, z FROM", 1
    )
    with pytest.raises(PipelineError, match=lacking):
        planned(both, unknown)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("LEAST = 3", "LEAST = (3", "8:9: not valid Python: '(' was never closed"),
        ("def model", "def other", "1: has no function model"),
        ("# input", "# inputs", '4:3: inputs orders: unknown key; did you mean "input"?'),
        ("# by key", "# by keys", '2:3: by keys: unknown key; did you mean "by key"?'),
        ("# input orders", "# orders ", '4:3: orders: unknown key; did you mean "refresh"?'),
        ("(orders, kinds)", "(orders)", "5: model() has no parameter kinds"),
        ("(orders, kinds)", "(orders, kinds, days)", "10: the header has no input days"),
        ("shop.orders", "orders", "4:17: orders is no table of the lake"),
        ("shop.orders", "shop.ordres", "4:17: no table shop.ordres in the lake"),
        (
            "shop.orders",
            "shop.orders o JOIN",
            '4:17: input orders: "shop.orders o JOIN" is not a table or a SELECT',
        ),
        ("shop.orders", "", '4:1: input orders: "" is not a table or a SELECT'),
        ("shop.orders", "(DELETE FROM shop.orders)", "4:17: input orders: "),
        ("id AS k, z", "id AS k, zz", "5:32: no column zz in shop.kinds"),
        ("z > 0", "z > rand()", "5:60: rand() gives other values at each refresh"),
        ("by key: k", "by key: kk", "2: by key: no input has the column kk"),
        ("orders: shop", "or-ders: shop", "4:18: input or-ders: its name must be one of a parameter"),
        ("# key: k", "# table: shop", '1:3: table: "shop" is not a table'),
        (
            "shop.orders",
            "SELECT k, max(v) AS v FROM shop.orders GROUP BY k LIMIT 3",
            "4:73: cannot be maintained",
        ),
    ],
)
def test_what_cannot_be_a_pipeline_is_refused_with_its_place(old: str, new: str, message: str) -> None:
    assert refused(SCORES.replace(old, new)).startswith(message)


def test_a_function_cannot_keep_rows_that_it_does_not_get() -> None:
    logs = {name: InputSchema(schema.columns, is_log=True) for name, schema in SCHEMAS.items()}
    with pytest.raises(
        PipelineError, match=r"scores\.py:1: keep_expired: a function gets the rows that are left"
    ):
        planned(SCORES.replace("# key: k", "# keep_expired: true", 1), logs)


def test_parameters_may_be_optional_or_collected() -> None:
    assert parsed(SCORES.replace("(orders, kinds)", "(orders, *, kinds, least=3)")).inputs
    assert parsed(SCORES.replace("(orders, kinds)", "(**tables)")).inputs


def test_files_in_python_are_pipelines_like_others(tmp_path: Path) -> None:
    folder, outside = tmp_path / "pipelines", tmp_path / "outside.py"
    folder.mkdir()
    outside.write_text(dedent(SCORES))
    (folder / "scores.py").write_text(dedent(SCORES))
    (folder / "best.sql").write_text("-- refresh: auto\nSELECT k FROM shop_pipelines.scores")
    (folder / "twice.sql").write_text("SELECT k FROM shop.orders")
    (folder / "twice.py").write_text(dedent(SCORES))
    (folder / "linked.py").symlink_to(outside)
    (folder / "taken.py").write_text(dedent(SCORES.replace("# key: k", "# table: shop.orders")))
    config = minimal_config(tmp_path)
    files = read_pipelines(config)
    assert [d.name for d in files.definitions] == ["scores", "best"]
    assert [pipeline.name for pipeline in files.with_inputs(["best"])] == ["scores", "best"]
    reasons = {name: broken.error.message for name, broken in files.broken.items()}
    assert reasons.keys() == {"twice", "linked", "taken"}
    assert "is a pipeline of this name, too" in reasons["twice"]
    assert f"is a link to {outside}" in reasons["linked"]
    assert files.broken["taken"].error.hint == "name another one: # table: shop_pipelines.orders"
    assert results_over(config)("kinds") == ("shop_pipelines.best", "shop_pipelines.scores")


FUNCTIONS = {
    "one": (
        "# input orders: shop.orders",
        "SELECT k, sum(v) AS s, count(DISTINCT s) AS n FROM {0} GROUP BY k",
        "SELECT k, sum(v) AS s, count(DISTINCT s) AS n FROM shop.orders GROUP BY k",
    ),
    "two": (
        "# input orders: shop.orders\n# input kinds: SELECT id AS k, z FROM shop.kinds WHERE z > 0",
        "SELECT o.k, o.id, kinds.z FROM {0} o LEFT JOIN {1} kinds ON kinds.k = o.k",
        "SELECT o.k, o.id, n.z FROM shop.orders o LEFT JOIN shop.kinds n ON n.id = o.k AND n.z > 0",
    ),
    "several of one table": (
        "# input all: SELECT k, v FROM shop.orders UNION ALL SELECT k, w FROM shop.items\n# input log: shop.log",
        "SELECT k, sum(v) AS s FROM {0} i WHERE NOT EXISTS (SELECT 1 FROM {1} g WHERE g.k = i.k) GROUP BY k",
        (
            "SELECT k, sum(v) AS s FROM (SELECT k, v FROM shop.orders UNION ALL SELECT k, w FROM shop.items) AS a "
            "WHERE NOT EXISTS (SELECT 1 FROM shop.log g WHERE g.k = a.k) GROUP BY k"
        ),
    ),
    "joined input": (
        "# input both: SELECT i.k, i.w, n.z FROM shop.items i LEFT JOIN shop.kinds n ON n.id = i.k",
        "SELECT k, w, row_number() OVER (PARTITION BY k ORDER BY w, z) AS place FROM {0} WHERE w IS NOT NULL",
        (
            "SELECT i.k, i.w, row_number() OVER (PARTITION BY i.k ORDER BY i.w, n.z) AS place FROM shop.items i "
            "LEFT JOIN shop.kinds n ON n.id = i.k WHERE i.w IS NOT NULL"
        ),
    ),
}
"""Inputs of a function, what it computes of their views, and the same of the tables."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_by_key_give_what_they_give_as_a_whole(name: str) -> None:
    inputs, function, query = FUNCTIONS[name]
    parameters = ", ".join(line.split()[2].rstrip(":") for line in inputs.splitlines())
    plan = planned(f"# by key: k\n{inputs}\ndef model({parameters}): ...")
    assert plan.rule is Rule.AFFECTED
    for seed in range(12):
        r = random.Random(seed)
        pipeline = DuckPipeline(plan, narrows=r.random() < 0.7, function=function)
        tables = first_tables(r)
        pipeline.build(tables)
        for _ in range(REFRESHES):
            later = changed_tables(r, tables)
            pipeline.refresh(tables, later)
            assert same(pipeline.rows(), pipeline.expected(query)), (name, seed)
            tables = later
