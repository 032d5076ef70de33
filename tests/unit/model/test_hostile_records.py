"""What the catalog, Kafka Connect and files say is not trusted: each `from_json` returns a valid value or one error.

What becomes SQL consists of numbers, quoted names, and a known form of expression.
"""

import ast
import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicator
from replicator.consumer.cursor import Cursor, Point
from replicator.errors import UsageError
from replicator.lake.properties import PURGING_KEY, Pause, purge_record, recorded_purges
from replicator.lake.rebuilt_tables import Provenance
from replicator.maintenance.history import StepRun, runs_to_json, step_runs
from replicator.maintenance.plan import Step
from replicator.model.binlog import ConnectorOffset, Watched
from replicator.model.changelog import Restatement
from replicator.model.commit_marker import CommitMarker, HighWater, PartitionProgress
from replicator.model.common import quoted
from replicator.model.compared import ComparedDefinitions, Comparison, MayDiffer
from replicator.model.gtid import Transaction
from replicator.model.position import SourcePosition
from replicator.model.recorded import Part, checked_sql, names_in, record_in
from replicator.model.recorded_rules import rules_from_json, rules_to_json
from replicator.model.reread import KeySpan, Narrowed, Request, StagingState, new_request
from replicator.model.seen_transactions import SeenNumbers, SeenTransactions
from replicator.model.snapshot import SnapshotRead, Truncate
from replicator.model.table import TableId
from replicator.model.tags import TAG_KEY, TagPoint, TagRecord, TagState, recorded_tags
from replicator.model.verified import CheckHistory, PastCheck, VerifiedTable
from replicator.pipelines.costs import Costs
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.progress import InputProgress
from replicator.pipelines.output.record import ResultRecord
from replicator.recovery.connector_repair import _Begun
from replicator.runner.run_record import ReloadOutcome, RunRecord
from replicator.schema.evolution.changes import (
    ChangeNote,
    KeepRows,
    SchemaState,
    fills_from_json,
    fills_to_json,
    kept_from_json,
    kept_to_json,
)
from replicator.schema.evolution.own_columns import LakeField, OwnColumns
from replicator.schema.evolution.steps import Added, Converted, SchemaStep, SchemaSteps
from replicator.schema.history.partitions import RowCondition

TABLE = TableId("shop", "a.b")
AT = SourcePosition("mysql-bin.000007", 4, 1, 2, "3e11fa47-71ca-11e1-9e33-c80aa9429562:23")
SEEN = SeenTransactions((("3e11fa47", SeenNumbers(1, 9, 5)),), (Transaction("3e11fa47", 9),))
HIGH = HighWater(AT, 1, 5, 1, is_replay=True, transactions=SEEN, snapshot=AT)
READ = SnapshotRead(AT, 1, {0: 1}, (0, 2), False, True)
GONE = Truncate(0, 5, AT, 6)
MARKER = CommitMarker("m", 1, 2, {"t": {0: PartitionProgress(3, HIGH)}}, AT, 5, 6, GONE, {"t": "id"}, READ)
SPANS = (KeySpan(-5, 7, 1), KeySpan(9, 1 << 63, 1))
STEPS = SchemaSteps(
    ("id",),
    (
        SchemaStep(
            5,
            (Added("a", 5, "1"),),
            {"b": "c"},
            {"d": "_d"},
            (Converted("e", "_e", "f", "CASE WHEN {0} RLIKE '^[0-9]{{4}}$' THEN TRY_CAST({0} AS DATE) END"),),
            ("k",),
            False,
            "ALTER TABLE t DROP PARTITION p",
            7,
            RowCondition(("x", "y"), "NOT ({0} <=> 5) AND ({1} IS NULL OR {1} < DATE'2020-01-01')"),
        ),
    ),
    forgotten=1,
)
POINT = Point(1, 2, 3, {"t": {0: 5}}, {"t": "id"})
BOUNDARY = Boundary("b.000001", 4, "a:1-5")
PROGRESS = InputProgress("uuid", 7, {0: 5}, 6, 8)
CURSOR = Cursor("shop.a", "uuid", POINT, scan=POINT)


def of_object(read: Callable[[dict[str, Any]], object]) -> Callable[[str], object]:
    """Return a reader of texts, from one of parsed objects."""

    return lambda text: read(record_in(text))


def of_property(read: Callable[[dict[str, str]], object], key: str, **others: str) -> Callable[[str], object]:
    return lambda text: read({key: text, **others})


READERS: dict[str, tuple[Callable[[str], object], str]] = {
    "SeenTransactions": (of_object(SeenTransactions.of_values), json.dumps(SEEN.values())),
    "MayDiffer": (MayDiffer.from_json, MayDiffer("a foreign key", "b.000001", 4, 5).to_json()),
    "Watched": (Watched.from_json, Watched("s", "b.000001", 4, "b.000001", 5, "a:1-5").to_json()),
    "Truncate": (of_object(Truncate.of_values), json.dumps(GONE.values())),
    "HighWater": (of_object(HighWater.of_values), json.dumps(HIGH.values())),
    "CommitMarker": (CommitMarker.from_json, MARKER.to_json()),
    "ConnectorOffset": (
        of_object(ConnectorOffset.from_json),
        json.dumps({"file": "b.000001", "pos": 4, "gtids": "a:1-5", "ts_sec": 1, "snapshot": True}),
    ),
    "VerifiedTable": (
        VerifiedTable.from_json,
        VerifiedTable(TABLE, "equal", "b.000001:4", 1, 2, 3, True, "r", {0: 1}, "id").to_json(),
    ),
    "CheckHistory": (
        CheckHistory.from_json,
        CheckHistory(TABLE, (PastCheck("equal", "b.000001:4", 1, 2, 3),)).to_json(),
    ),
    "TagRecord": (
        lambda text: recorded_tags({TAG_KEY + "t": text})[0],
        TagRecord(
            "t", TagState.COMPLETE, 1, point=TagPoint("b.000001", 4, "a:1", 5), left_out=("x",)
        ).to_json(),
    ),
    "Request": (Request.from_json, new_request(TABLE, "r", 5, Narrowed("id", SPANS)).to_json()),
    "Request of bytes": (
        Request.from_json,
        new_request(TABLE, "r", 5, Narrowed("id", (KeySpan(3, 1 << 63, 1),), 16)).to_json(),
    ),
    "StagingState": (
        StagingState.from_json,
        StagingState("r", "f", ("1",), ("0",), 1, True, "b.000001", 4, "a:1", 5, {0: 1}, {0: 2}).to_json(),
    ),
    "Restatement": (Restatement.from_json, Restatement("reread-1", 2, "x@1", 1, 2).to_json()),
    "SourcePosition": (of_object(SourcePosition.of_values), json.dumps(AT.values())),
    "SnapshotRead": (of_object(SnapshotRead.of_values), json.dumps(READ.values())),
    "SchemaSteps": (SchemaSteps.from_json, STEPS.to_json()),
    "SchemaState": (
        SchemaState.from_json,
        SchemaState(5, ("a",), "gone", (ChangeNote("b.000001:4", 1, 2, ("c",), True),)).to_json(),
    ),
    "OwnColumns": (
        OwnColumns.from_json,
        OwnColumns(
            (LakeField(1, "a", "int", True), LakeField(2, "b", "decimal(5, 2)", False)), frozenset({1})
        ).to_json(),
    ),
    "Point": (of_object(Point.of_values), json.dumps(POINT.values())),
    "Cursor": (Cursor.from_json, CURSOR.to_json()),
    "Provenance": (Provenance.from_json, Provenance("shop.a", "c.a", 1, "now", "b.000001:4", 5).to_json()),
    "Comparison": (
        Comparison.from_json,
        Comparison(TABLE, 1, 2, 3, 4, "a cause", ("5",), 6).to_json(),
    ),
    "ComparedDefinitions": (ComparedDefinitions.from_json, ComparedDefinitions(5, "a problem").to_json()),
    "StepRun": (of_object(StepRun.of_values), json.dumps(StepRun(1, 2, 3).values())),
    "RunRecord": (
        RunRecord.from_json,
        RunRecord(1, 2, "m.toml", (ReloadOutcome(1.5, ("a",), None, None),)).to_json(),
    ),
    "_Begun": (_Begun.from_json, _Begun(True, 5).to_json()),
    "Boundary": (of_object(Boundary.of_values), json.dumps(BOUNDARY.values())),
    "InputProgress": (of_object(InputProgress.of_values), json.dumps(PROGRESS.values())),
    "Costs": (Costs.from_json, Costs("f").after_whole(4.5).after_changes(1_000, 0.7).to_json()),
    "ResultRecord": (
        ResultRecord.from_json,
        ResultRecord("r", "f", BOUNDARY, {"shop.a": PROGRESS}, ("k",), True).to_json(),
    ),
    "Pause": (Pause.from_json, Pause("a reason", "a hint", 5, "f").to_json()),
    "kept_from_json": (kept_from_json, kept_to_json([KeepRows("ALTER", 5, "b.000001:4")])),
    "fills_from_json": (fills_from_json, fills_to_json({"a": "1"})),
    "rules_from_json": (rules_from_json, rules_to_json({"a": "hash"})),
    "step_runs": (
        lambda text: list(step_runs((), text).values()),
        runs_to_json({Step.EXPIRE: StepRun(1, 2, 3)}),
    ),
    "names_in": (names_in, '["a"]'),
    "recorded_purges": (
        of_property(recorded_purges, PURGING_KEY + "a"),
        purge_record("shop.a", "/lake/a")[1],
    ),
}
"""Name → (reader of a text, a text that it accepts)."""

TEXTS = [
    *(
        "1) UNION SELECT User, authentication_string FROM mysql.user -- ",
        "{0.__class__}",
        "{",
        "",
        "x",
        "0 OR 1=a",
    ),
    *(
        "reflect('java.lang.System', 'exit', '1')",
        "(SELECT max(secret) FROM other)",
        "`x`",
        "b.000001",
        "\ud800",
    ),
    *("\0", "٣", "a" * 300, "{0} /* */", "{0} -- ", "{99}", "X'zz'", "DATE'x' || 'y'"),
]
VALUES = st.one_of(
    st.sampled_from([*TEXTS, "-1", "1e9", "9" * 30, "9" * 5000]),
    st.sampled_from(
        [None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**400, 0.5, 1e400, float("nan"), [], {}]
    ),
    st.sampled_from(
        [[[1]], [None], [{}], {"a": 1}, {"": None}, [[1, 2, 3]], [["1 OR 1=1", 2, 3]], {"version": 1}]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ),
).map(deepcopy)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """Return a recorded text in which values are replaced, removed, added, or have another name."""
    value = json.loads(text)
    for _ in range(draw(st.integers(1, 3))):
        if not (known := places(value)[1:]):
            break
        *path, last = draw(st.sampled_from(known))
        parent = value
        for key in path:
            parent = parent[key]
        match draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "rename"])):
            case "replace" if not isinstance(parent, dict) or last in parent:
                parent[last] = draw(VALUES)
            case "remove" if isinstance(parent, list) or last in parent:
                del parent[last]
            case "add" if isinstance(parent, list):
                parent.append(draw(VALUES))
            case "rename" if isinstance(parent, dict) and last in parent:
                parent[draw(st.sampled_from(TEXTS))] = parent.pop(last)
            case _ if isinstance(parent, dict):
                parent[draw(st.text(max_size=5))] = draw(VALUES)
    return json.dumps(value)


_QUOTED: Final = re.compile(r"`(?:[^`]|``)*`")


def check_types(value: Any) -> None:
    """Assert that all values are of exact types: no text is a number, no number a boolean."""
    if is_dataclass(value):
        for field in fields(value):
            found, kind = getattr(value, field.name), str(field.type)
            if kind == "<class 'int'>":
                assert type(found) is int
            if kind == "<class 'str'>":
                assert isinstance(found, str)
                found.encode()
            check_types(found)
    elif isinstance(value, tuple | list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            check_types(part)


def check_sql(value: object) -> None:
    """Assert that SQL that is made of a value has a known form."""
    if isinstance(value, Request) and value.narrowed is not None:
        condition = value.narrowed.condition(quoted("c"))
        assert re.fullmatch(r"(`c` BETWEEN (-?\d+|X'[0-9A-F]+') AND (-?\d+|X'[0-9A-F]+')( OR )?)+", condition)
        assert len(value.narrowed.describe()) < 10_000
    if isinstance(value, SchemaSteps):
        for step in value.steps:
            sql = [c.using.format("x") for c in step.converted if c.using is not None]
            # Within backticks, a name may have any text.
            sql += [] if step.removed is None else [_QUOTED.sub("`c`", step.removed.of_columns())]
            assert not [text for text in sql if re.search(r"SELECT|reflect|secret|--|/\*|class", text)]


def check(name: str, text: str) -> None:
    read, _ = READERS[name]
    try:
        found = read(text)
    except (ValueError, UsageError):
        return
    check_types(found)
    check_sql(found)


@pytest.mark.parametrize("name", READERS)
def test_what_was_written_is_read(name: str) -> None:
    read, text = READERS[name]
    found = read(text)
    assert found
    check_types(found)
    check_sql(found)
    if hasattr(found, "to_json"):
        assert json.loads(found.to_json()) == json.loads(text)
    elif isinstance(found, Part):
        assert json.loads(json.dumps(found.values())) == json.loads(text)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_a_damaged_record_is_a_valid_value_or_one_error(name: str, data: st.DataObject) -> None:
    check(name, data.draw(damaged(READERS[name][1])))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "1",
        '"x"',
        "{}",
        '{"version": 1}',
        "[" * 100_000,
        '{"version": ' + "9" * 5000 + "}",
        "\ud800",
    ],
)
def test_a_text_that_is_no_record_is_one_error(name: str, text: str) -> None:
    check(name, text)


@pytest.mark.parametrize("column", ["spans", "width", "column"])
@pytest.mark.parametrize(
    "text", [*TEXTS, [["1 OR 1=1", 5, 1]], [[5, 1, 1]], [[1, 2]], [], [[1, 2**65, 1]], 0, -1, 10**9, True]
)
def test_a_part_of_a_table_has_numbers_only(column: str, text: Any) -> None:
    value = json.loads(READERS["Request of bytes"][1])
    value["narrowed"][column] = text
    check("Request", json.dumps(value))
    if column != "column":
        with pytest.raises(ValueError, match=r"request to read a table again|a record is malformed"):
            Request.from_json(json.dumps(value))


@pytest.mark.parametrize(
    "text", [*TEXTS, "{0} || (SELECT 1)", "JAVA_METHOD('a', 'b')", "{1}", "{0} IN (TABLE x)", "'{0}'", "a.b"]
)
def test_sql_in_a_record_is_a_known_expression(text: str) -> None:
    with pytest.raises(ValueError, match="recorded SQL"):
        checked_sql(text, 1)


def test_every_from_json_is_checked() -> None:
    found: set[str] = set()
    package = Path(replicator.__file__).parent
    for path in package.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
                if "from_json" in methods or {"Part", "Record"} & {ast.unparse(base) for base in node.bases}:
                    found.add(node.name)
            elif (
                isinstance(node, ast.FunctionDef) and node.name.endswith("from_json") and node.name[0] != "_"
            ):
                found.add(node.name)
    assert found - {"Record"} <= READERS.keys()
