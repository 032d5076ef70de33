"""The published schemas of what the engine writes to the lake."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from replicator.lake.properties import (
    CREATED_KEY,
    LEFT_OUT_KEY,
    LOG_TABLE_PAUSED_KEY,
    PAUSED_KEY,
    RETRYING_KEY,
    REWIND_KEY,
    Pause,
)
from replicator.lake.rebuilt_tables import REBUILT_KEY, Provenance
from replicator.lake.recoveries import RECOVERED_KEY
from replicator.maintenance.history import MAINTAINED_KEY, STEP_KEY, StepRun, runs_to_json
from replicator.maintenance.plan import Step
from replicator.model.binlog import WATCHED_KEY, Watched
from replicator.model.changelog import RESTATED_KEY, Restatement
from replicator.model.commit_marker import (
    COMMIT_KEY,
    MARKER_KEY,
    SEQUENCE_KEY,
    SNAPSHOT_KEY,
    CommitMarker,
)
from replicator.model.compared import (
    COMPARED_DEFINITIONS_KEY,
    COMPARED_KEY,
    MAY_DIFFER_KEY,
    ComparedDefinitions,
    Comparison,
    MayDiffer,
)
from replicator.model.position import SourcePosition
from replicator.model.recorded_rules import RULES_KEY
from replicator.model.reread import (
    DONE_KEY,
    REREAD_KEY,
    STATE_KEY,
    KeySpan,
    Narrowed,
    StagingState,
    new_request,
)
from replicator.model.table import LOG_TOPIC_KEY, LOG_UNNUMBERED_KEY, MIRROR_KEY, SOURCE_KEY, TableId
from replicator.model.verified import CHECKS_KEY, VERIFIED_KEY, CheckHistory, VerifiedTable
from replicator.pipelines.costs import COSTS_KEY, Costs
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.output.record import RECORD_KEY, ResultRecord
from replicator.schema.evolution.changes import (
    FOLLOWED_KEY,
    KEPT_KEY,
    PENDING_CLEAR_KEY,
    PENDING_FILLS_KEY,
    SCHEMA_KEY,
    UNFILLED_KEY,
    KeepRows,
    kept_to_json,
)
from replicator.schema.evolution.own_columns import COLUMNS_KEY, LakeField, OwnColumns
from replicator.schema.evolution.steps import STEPS_KEY, SchemaSteps
from tests.support.lake_schemas import NAMES, PROPERTIES, published, validate, validate_properties
from tests.unit.persisted.test_marker_text import MARKER, STATE_TEXT

MARKER_SCHEMA = "commit-marker-v1.json"
REWIND = (
    '{"version": 1, "database": "shop", "name": "a", "reason": "lost", "file": "binlog.000007", "bytes": 9, '
    '"requested_ms": 1, "phase": "sending", "end_file": "binlog.000009", "end_pos": 600, "events": null, '
    '"ended_ms": null, "problem": null}'
)
"""What an earlier version recorded while the connector sent lost events again."""
NOT_RECORDED = (Step.ORPHANS, Step.PARTITIONS)
"""Steps that are due by a search or by the time alone."""

FULL = {
    **MARKER.properties(),
    SNAPSHOT_KEY: "4711",
    SEQUENCE_KEY: "12",
    SCHEMA_KEY: STATE_TEXT,
    SOURCE_KEY: "shop.orders",
    MIRROR_KEY: "shop",
    LOG_TOPIC_KEY: "clicks",
    LOG_UNNUMBERED_KEY: "true",
    CREATED_KEY: "file:/lake/shop/orders",
    RECORD_KEY: ResultRecord("revenue", "0123456789abcdef", Boundary("binlog.000007", 1234)).to_json(),
    COSTS_KEY: Costs("0123456789abcdef").after_whole(4.5).after_changes(1_000, 0.7).to_json(),
    RULES_KEY: '{"email": "hash 0a1b2c3d"}',
    PENDING_FILLS_KEY: '{"a": "7"}',
    PENDING_CLEAR_KEY: json.dumps(MARKER.truncate.values()) if MARKER.truncate else "",
    UNFILLED_KEY: '["at"]',
    FOLLOWED_KEY: "7",
    KEPT_KEY: kept_to_json([KeepRows("ALTER TABLE a DROP PARTITION p0", 7, "binlog.000001:4")]),
    COLUMNS_KEY: OwnColumns((LakeField(1, "id", "long", True),), frozenset({1})).to_json(),
    STEPS_KEY: SchemaSteps(("id",)).to_json(),
    REBUILT_KEY: Provenance("shop.a", "shop_changes.a", 1, None, "b.000001:4", 5).to_json(),
    MAINTAINED_KEY: runs_to_json({step: StepRun(1, 2, 3) for step in Step if step not in NOT_RECORDED}),
    STATE_KEY: StagingState(
        "1a", "id bigint False; id", ("7",), ("5",), 5, until={0: 3}, since={0: 1}
    ).to_json(),
    DONE_KEY: "1a",
    RESTATED_KEY: Restatement("reread-1a", 7, "topic@1", 1, 2).to_json(),
    "format-version": "2",
}


@pytest.mark.parametrize("name", NAMES)
def test_published_schema_is_valid(name: str) -> None:
    Draft202012Validator.check_schema(published(name))


@pytest.mark.parametrize(
    "change", [{"more": 1}, {"sequence": 0}, {"position": {}}, {"topics": {"t": {"x": {}}}}]
)
def test_marker_schema_refuses_other_markers(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        validate(json.loads(MARKER.to_json()) | change, MARKER_SCHEMA)


def test_marker_is_also_in_readable_properties() -> None:
    found = MARKER.properties()
    assert found == {
        MARKER_KEY: MARKER.to_json(),
        "replicator.position": "mysql-bin.000007:1234/5",
        "replicator.gtid": "3e11:17",
        "replicator.watermark-ms": "1700000000001",
    }
    bare = CommitMarker("shop", 1, 1, position=SourcePosition("binlog.000001", 4)).properties()
    assert (bare["replicator.position"], bare["replicator.gtid"]) == ("binlog.000001:4", None)
    assert set(CommitMarker("shop", 1, 1).properties().values()) == {
        CommitMarker("shop", 1, 1).to_json(),
        None,
    }


CHECK = VerifiedTable(TableId("shop", "a"), "equal", "b.1:4", 5, 6, 0)


def _narrowed(part: Narrowed) -> str:
    return new_request(TableId("shop", "b"), "verify", narrowed=part).to_json()


def test_every_property_is_described() -> None:
    properties = {key: value for key, value in FULL.items() if value is not None}
    validate_properties("table", properties)
    described = published(PROPERTIES)["$defs"]["table"]["patternProperties"]
    names = {pattern.removeprefix("^").removesuffix("$").replace("\\", "") for pattern in described}
    assert {name for name in properties if name.startswith("replicator.")} == {
        name for name in names if name.startswith("replicator.")
    }
    pause = {"reason": "no key", "hint": None, "since_ms": 1, "heal_ms": 2}
    retry = {"reason": "no room", "hint": "free some", "retry_ms": 1}
    validate_properties(
        "namespace",
        {
            f"{PAUSED_KEY}shop.a": json.dumps(pause),
            f"{RETRYING_KEY}shop.a": json.dumps(retry),
            f"{LOG_TABLE_PAUSED_KEY}logs.clicks": Pause("no column", None, 1).to_json(),
            f"{LEFT_OUT_KEY}shop.a": '{"database": "shop", "name": "a", "since_ms": 1}',
            f"{REREAD_KEY}shop.a": new_request(TableId("shop", "a"), "heal").to_json(),
            f"{REREAD_KEY}shop.b": _narrowed(Narrowed("id", (KeySpan(-5, 2**64 - 1, 9),))),
            f"{REREAD_KEY}shop.c": _narrowed(Narrowed("uid", (KeySpan(0, 1, 9), KeySpan(3, 4, 5)), 16)),
            f"{REWIND_KEY}shop.a": REWIND,
            f"{MAY_DIFFER_KEY}shop.a": MayDiffer("a foreign key", "binlog.000007", 4, 1).to_json(),
            COMPARED_DEFINITIONS_KEY: ComparedDefinitions(1, None).to_json(),
            WATCHED_KEY: Watched(
                "3e11-17", "binlog.000007", 4, "binlog.000008", 157, "3e11-17:1-5"
            ).to_json(),
            "replicator.snapshots-known": "7",
            RECOVERED_KEY: '["binlog.000007:157"]',
            f"{VERIFIED_KEY}shop.a": CHECK.to_json(),
            f"{COMPARED_KEY}shop.a": Comparison(
                TableId("shop", "a"), 1, 2, 3, 4, "text", ("7", "x00"), 8
            ).to_json(),
            f"{COMPARED_KEY}shop.b": Comparison(TableId("shop", "b")).to_json(),
            f"{CHECKS_KEY}shop.a": CheckHistory(CHECK.table).followed(CHECK).to_json(),
            "owner": "x",
        },
    )
    validate_properties("snapshot", {COMMIT_KEY: "12", "total-records": "3"})
    for step in Step:
        if step not in NOT_RECORDED:
            validate_properties("snapshot", {STEP_KEY: step})


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        ("table", {"replicator.other": "x"}),
        ("table", {"replicator.watermark-ms": "now"}),
        ("table", {"replicator.marker": "{}"}),
        ("table", {"replicator.unfilled-columns": '{"a": 1}'}),
        ("table", {"replicator.kept-rows": '["ALTER TABLE a DROP PARTITION p0"]'}),
        ("table", {"replicator.followed-statement": "-1"}),
        ("snapshot", {"replicator.commit": "0"}),
        ("snapshot", {"replicator.maintenance": "polish files"}),
        ("namespace", {"replicator.paused.shop.a": "{}"}),
        ("namespace", {"replicator.purging.0a1b": '{"table": "shop.a"}'}),
    ],
)
def test_schemas_refuse_other_properties(kind: str, properties: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        validate_properties(kind, properties)
