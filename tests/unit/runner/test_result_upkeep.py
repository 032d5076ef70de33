"""When results and log tables are maintained: when they are first written, and then after some commits."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from replicator.config import Config
from replicator.lake.catalog.tables import Lake
from replicator.maintenance.plan import MergedFiles
from replicator.pipelines.query.names import TableName
from replicator.runner import result_upkeep
from replicator.runner.result_upkeep import ResultUpkeep

A, B = TableName("s", "a"), TableName("s", "b")
LEFT = MergedFiles(1, 0)


class Harness:
    """Maintenance of some tables; `answers` tells what comes of a table, by default that it is complete."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.maintained: list[str] = []
        self.answers: dict[str, MergedFiles | Exception | None] = {}
        self.present = {A, B}
        known = {
            "enabled": True,
            "merge_files": 3,
            "slice_time": 10.0,
            "slice_bytes": 1,
            "max_share": 0.25,
        } | settings
        config = SimpleNamespace(maintenance=SimpleNamespace(**known))
        monkeypatch.setattr(result_upkeep, "Maintenance", lambda _, table, *__: table)
        monkeypatch.setattr(result_upkeep, "carry_out", self.carry_out)
        self.upkeep = ResultUpkeep(cast("Config", config))

    def carry_out(self, table: str, _: MergedFiles) -> MergedFiles | None:
        self.maintained.append(table)
        answer = self.answers.get(table, LEFT)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def load(self, namespace: str, name: str) -> str | None:
        return name if TableName(namespace, name) in self.present else None

    def run(self, *changed: TableName) -> list[str]:
        """Return what is maintained after a round that wrote tables."""
        self.maintained.clear()
        self.upkeep.run(cast("Lake", self), changed)
        return list(self.maintained)


def test_tables_are_inspected_first_and_then_after_some_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(monkeypatch)
    assert [harness.run(A) for _ in range(5)] == [["a"], [], [], ["a"], []]
    assert harness.run(A, B) == ["b"]
    assert harness.run() == []


def test_a_table_that_a_limit_stopped_is_continued_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(monkeypatch)
    harness.answers["a"] = None
    assert harness.run(A) == harness.run() == ["a"]
    del harness.answers["a"]
    assert harness.run() == ["a"]
    assert harness.run() == []


def test_a_failure_is_tried_again_after_further_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(monkeypatch)
    harness.answers["a"] = ValueError("no")
    assert [harness.run(A, B), harness.run(A), harness.run(A), harness.run(A)] == [["a", "b"], [], [], ["a"]]


def test_dropped_tables_and_switched_off_maintenance_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(monkeypatch)
    harness.present = {B}
    assert harness.run(A, B) == ["b"]
    assert Harness(monkeypatch, enabled=False).run(A) == []


def test_no_table_is_maintained_once_the_time_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Harness(monkeypatch, slice_time=0.0).run(A) == []
