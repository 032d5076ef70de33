"""The cost model: it grows with each input, names the limit that is reached, and reads its parts from the results."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.cost import SCENARIOS, Cost, Parts, Workload, cost, heap_bytes, read_parts
from benchmarks.cost_report import CHECKS, checked

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
NOWHERE = replace(Workload(), catalog=1e9, index=1e9, memory=1e9, request=0)
"""A workload with its changed tables far from the limits that are not measured."""


@pytest.fixture(scope="module")
def parts() -> Parts:
    return read_parts(RESULTS)


@pytest.mark.parametrize(
    ("field", "values", "figure"),
    [
        ("changes", (0, 1, 10, 1e3, 1e5, 1e6, 1e7), lambda c: c.cores),
        ("changes", (0, 1, 10, 1e3, 1e5, 1e6, 1e7), lambda c: c.batch),
        ("changes", (0, 1, 5, 10, 1e6), lambda c: c.requests["PUT"]),
        ("changed", (1, 2, 10, 50, 100), lambda c: c.cores),
        ("changed", (4, 10, 50, 100), lambda c: c.batch),
        ("changed", (1, 2, 10, 50, 100), lambda c: c.standing),
        ("changed", (1, 2, 10, 50, 100), lambda c: c.files_a_day),
        ("tables", (10, 100, 10_000), lambda c: c.process),
        ("sources", (1, 2, 10), lambda c: c.memory),
        ("rows", (0, 1e6, 1e8, 1e11), lambda c: c.index),
        ("rows", (0, 1e6, 1e8, 1e11), lambda c: c.standing),
        ("rows", (0, 1e6, 1e8, 1e11), lambda c: c.fill),
        ("backlog", (0, 1e6, 1e9), lambda c: c.catch_up),
        ("heap", (1, 4, 16), lambda c: c.process),
        ("request", (0, 0.01, 0.1), lambda c: c.batch),
        ("changelog", (False, True), lambda c: c.cores),
        ("changelog", (False, True), lambda c: c.requests["PUT"]),
        ("changelog", (False, True), lambda c: c.commits),
        ("maintained", (False, True), lambda c: c.cores),
    ],
)
def test_more_never_costs_less(
    parts: Parts, field: str, values: tuple[Any, ...], figure: Callable[[Cost], float]
) -> None:
    figures = [figure(cost(parts, replace(Workload(), **{field: value}))) for value in values]
    assert figures == sorted(figures)
    assert figures[0] < figures[-1]


@pytest.mark.parametrize("changelog", [False, True])
def test_backlog_takes_as_long_as_was_measured(parts: Parts, changelog: bool) -> None:
    drain = json.loads((RESULTS / "drain-one.json").read_text())
    wanted = ("split", changelog)
    found = next(o for o in drain["outcomes"] if (o["case"]["engine"], o["case"]["changelog"]) == wanted)
    load = replace(NOWHERE, changes=0, backlog=found["events"], cores=2, changelog=changelog)
    seconds = median(run["seconds"] for run in found["case"]["warm"])
    assert cost(parts, load).catch_up == pytest.approx(seconds, rel=0.15)


def test_longer_trigger_costs_less(parts: Parts) -> None:
    costs = [cost(parts, replace(Workload(), trigger=trigger)) for trigger in (1, 2, 10, 60)]
    for figures in ([c.cores for c in costs], [c.files_a_day for c in costs], [c.commits for c in costs]):
        assert figures == sorted(figures, reverse=True)


@pytest.mark.parametrize(
    ("load", "limit"),
    [
        (replace(NOWHERE, changes=1e6), "Python's lock of a process"),
        (replace(NOWHERE, changes=1e6, cores=1), "cores of a process"),
        (replace(NOWHERE, tables=10_000, changed=1_000, request=0.03), "changed tables in turn"),
        (
            replace(NOWHERE, tables=10_000, changed=1_000, request=0.03, threads=128),
            "Python's lock of a process",
        ),
        (replace(NOWHERE, memory=1), "memory of a process"),
        (replace(NOWHERE, rows=1e12, index=8), "index of a process"),
        (replace(NOWHERE, catalog=0.1), "commits of the catalog"),
    ],
)
def test_first_limit_is_the_most_used_one(parts: Parts, load: Workload, limit: str) -> None:
    found = cost(parts, load)
    assert found.first.name == limit
    assert found.first.used == max(other.used for other in found.limits)


def test_sources_do_not_share_a_process(parts: Parts) -> None:
    load = replace(NOWHERE, sources=1)
    every = replace(
        load, sources=10, tables=10 * load.tables, changed=10 * load.changed, changes=10 * load.changes,
        rows=10 * load.rows,
    )  # fmt: skip
    one, ten = cost(parts, load), cost(parts, every)
    assert ten.process == pytest.approx(one.process)
    assert ten.batch == pytest.approx(one.batch)
    assert ten.cores == pytest.approx(10 * one.cores)
    assert ten.memory == pytest.approx(10 * one.memory)


def test_idle_tables_need_only_memory(parts: Parts) -> None:
    idle = cost(parts, replace(Workload(), changes=0))
    assert (idle.cores, idle.commits, idle.files_a_day, idle.batch) == (0, 0, 0, 0)
    assert idle.process > Workload().heap


def test_parts_are_read_from_the_results(tmp_path: Path, parts: Parts) -> None:
    shutil.copytree(RESULTS, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "commit.json"
    document = json.loads(path.read_text())
    for found in document["costs"]:
        found["cpu"] *= 2
    path.write_text(json.dumps(document))
    changed = read_parts(tmp_path)
    assert changed.commits[True].cpu(100) == 2 * parts.commits[True].cpu(100)
    assert changed.event == parts.event
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_parts(tmp_path)


def test_parts_are_positive_and_name_their_source(parts: Parts) -> None:
    assert 0 < parts.python_cpu.value < parts.commits[True].cpu(100)
    assert 0 < parts.mirror_share.value <= 1
    for part in (*parts.event.values(), parts.serial_event, parts.java, parts.python, parts.table):
        assert part.value > 0
        assert ".json" in part.source
    assert heap_bytes("2g") == 2 << 30


def test_checks_use_files_or_fields_that_are_no_parts(parts: Parts) -> None:
    # Of `many`, the batches are checked and its memory is a part.
    used = {"commit", "drain-one", "size", "bootstrap", "requests"}
    assert {check.file for check in CHECKS} & used == set()
    assert all(found.predicted > 0 and found.measured > 0 for found in checked(RESULTS))


def test_scenarios_each_reach_another_limit(parts: Parts) -> None:
    first = [cost(parts, load).first for load in SCENARIOS.values()]
    assert len({limit.name for limit in first}) == len(SCENARIOS)
    assert all(limit.used > 1 for limit in first)
