"""`replicator pipeline` as a user calls it, without a lake, and what its reports look like."""

import json
from pathlib import Path
from typing import Any

import pytest

from replicator.cli.render_pipeline import print_checked, print_pipelines, print_results
from replicator.pipelines.checking import Checked
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.output.check_log import CheckCounts
from replicator.pipelines.query.definition import Action
from replicator.pipelines.query.names import TableName
from replicator.pipelines.refresh.refresh import Outcome, Refreshed
from replicator.pipelines.service import NotRefreshed
from replicator.pipelines.status import PipelineStatus

TABLE = TableName("shop_pipelines", "revenue")
AT = Boundary("binlog.000007", 1234)
CHANGED = Refreshed(
    "revenue",
    TABLE,
    Outcome.CHANGED,
    AT,
    changes=3,
    added=2,
    removed=1,
    seconds=0.5,
    checks=(CheckCounts("positive", Action.WARN, 2, 1),),
)
PAUSED = NotRefreshed("top", TABLE, "several rows have the key a = 1", "name others")


def define(config: Path, name: str, text: str) -> None:
    (config.parent / "pipelines").mkdir(exist_ok=True)
    (config.parent / "pipelines" / f"{name}.sql").write_text(text)


def test_pipelines_are_listed_without_a_lake(cli: Any, config: Path) -> None:
    done = cli("pipeline", "list")
    assert done.code == 0
    assert "There are no pipelines: write a SELECT to" in done.out
    define(config, "revenue", "-- key: id\nSELECT id FROM shop.orders")
    define(config, "wrong", "SELECT id FROM shop.orders LIMIT")
    done = cli("pipeline", "list", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["version"] == 1
    assert [(p["name"], p["state"], p["table"]) for p in found["pipelines"]] == [
        ("revenue", "new", "shop_pipelines.revenue"),
        ("wrong", "invalid", "shop_pipelines.wrong"),
    ]
    assert "wrong.sql:1" in found["pipelines"][1]["problem"]
    assert found["pipelines"][0]["reads"] == ["shop.orders"]
    done = cli("pipeline", "list")
    assert "next:" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "revenue"), "there is no pipeline revenue"),
        (("run",), "there are no pipelines"),
        (("run", "revenue"), "there are no pipelines"),
        (("drop", "revenue"), "standard input is not a terminal"),
        (("drop", "revenue", "--yes"), "there is no pipeline revenue"),
        (("rebuild", "revenue", "--as-of", "binlog.000001:4"), "--as-of and --to belong together"),
        (("rebuild", "revenue", "--as-of", "soon", "--to", "shop_then"), "--as-of: 'soon' is no position"),
        (("rebuild", "revenue", "--as-of", "binlog.000001:4", "--to", "a"), "there are no pipelines"),
        (("show", "revenue", "--graph", "a.svg"), "there is no pipeline revenue"),
    ],
)
def test_wrong_use_is_explained(cli: Any, config: Path, arguments: tuple[str, ...], message: str) -> None:
    done = cli("pipeline", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "next:" in done.err


def test_no_lake_is_explained(cli: Any, config: Path) -> None:
    define(config, "revenue", "SELECT id FROM shop.orders")
    for command in ("run", "check"):
        done = cli("pipeline", command)
        assert done.code == 2
        assert "there is no lake yet" in done.err


def test_refreshes_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    print_results([CHANGED, PAUSED], as_json=False)
    text = capsys.readouterr().out
    assert (
        "revenue: 3 images of changes read, 2 rows written, 1 removed, up to binlog.000007:1234, in 0.5 s"
        in text
    )
    assert "positive: 1 of 2 rows do not meet it (warn)" in text
    assert "top: paused: several rows have the key a = 1" in text
    print_results([CHANGED, PAUSED], as_json=True)
    changed, paused = json.loads(capsys.readouterr().out)["pipelines"]
    assert changed["outcome"] == "changed"
    assert changed["checks"] == [{"name": "positive", "action": "warn", "rows": 2, "failed": 1}]
    assert paused == {
        "pipeline": "top",
        "table": "shop_pipelines.revenue",
        "outcome": "paused",
        "reason": "several rows have the key a = 1",
        "hint": "name others",
    }


def test_rounds_are_reported_if_something_happened(capsys: pytest.CaptureFixture[str]) -> None:
    same = Refreshed("revenue", TABLE, Outcome.SAME, AT)
    print_results([same], as_json=False, follows=True)
    assert capsys.readouterr().out == ""
    print_results([same], as_json=True, follows=True)
    assert capsys.readouterr().out.count("\n") == 1


def test_comparisons_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    equal = Checked("revenue", TABLE, AT, 7)
    different = Checked(
        "top", TABLE, AT, 7, 1, 1, (("+", {"day": None, "n": 3}), ("-", {"day": None, "n": 2}))
    )
    print_checked([equal, different], as_json=False)
    text = capsys.readouterr().out
    assert "revenue: 7 rows, equal to its computation as a whole" in text
    assert "top: 7 rows, 1 missing, 1 that should not be there" in text
    assert "+ day = None, n = 3" in text
    assert "replicator pipeline check top --repair" in text
    print_checked([equal, different], as_json=True)
    found = json.loads(capsys.readouterr().out)["pipelines"]
    assert [p["equal"] for p in found] == [True, False]
    assert found[1]["examples"][0] == {"sign": "+", "row": {"day": None, "n": 3}}


def test_the_choice_of_auto_is_shown_with_what_refreshes_took(capsys: pytest.CaptureFixture[str]) -> None:
    auto = PipelineStatus(
        "revenue",
        "a.sql",
        "",
        "current",
        "t",
        "signed",
        (),
        refresh="auto",
        seconds_changes=0.7,
        seconds_whole=4.5,
    )
    print_pipelines([auto], Path("pipelines"), as_json=False)
    assert "signed (0.7 s) or full (4.5 s)" in capsys.readouterr().out
