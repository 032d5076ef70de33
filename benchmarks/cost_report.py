"""Print what `benchmarks.cost` computes, and compare it with measurements that no part of the model is taken from."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.cost import SCENARIOS, Cost, Document, Part, Parts, Workload, cost, heap_bytes, read_parts
from benchmarks.report import CONSOLE, show

_FAR: Final = 1.5
_SHOWN_LIMITS: Final = 3
_WARM_UP_S: Final = 60
"""How long `freshness` writes before it measures."""


@dataclass(frozen=True, slots=True)
class Check:
    """A measured figure: its name, the file in `results`, and how to predict it and to read it from the file."""

    name: str
    file: str
    predict: Callable[[Parts, Document], float]
    measured: Callable[[Document], float]


@dataclass(frozen=True, slots=True)
class Checked:
    """A predicted and a measured figure, and the file, date and revision of the measurement."""

    name: str
    predicted: float
    measured: float
    source: str

    @property
    def ratio(self) -> float:
        """The predicted figure divided by the measured one."""
        return self.predicted / self.measured

    @property
    def is_far(self) -> bool:
        """Whether the prediction is wrong by more than a factor of 1.5."""
        return not 1 / _FAR <= self.ratio <= _FAR


def print_costs(folder: Path, loads: Mapping[str, Workload] = SCENARIOS) -> None:
    """Print the unit costs, the workloads, what these cost, and their limits."""
    parts = read_parts(folder)
    costs = {name: cost(parts, load) for name, load in loads.items()}
    show(
        "Unit costs",
        ("", "value", "unit", "source"),
        [(p.name, p.value, p.unit, p.source) for p in _all(parts)],
    )
    show("Workloads", ("", *loads), _columns([_given(load) for load in loads.values()]))
    show("Costs", ("", *loads), _columns([_figures(found) for found in costs.values()]))
    limits = [
        (name, limit.name, limit.needed, limit.available, limit.unit, f"{limit.used:.0%}")
        for name, found in costs.items()
        for limit in found.limits[:_SHOWN_LIMITS]
    ]
    show("The most used limits; the first of each ends it", ("", "limit", "needed", "is", "", "used"), limits)
    load = next(iter(loads.values()))
    CONSOLE.print(
        f"Assumed, not measured: a request takes {load.request * 1000:.0f} ms; "
        f"the catalog takes {load.catalog:.0f} commits/s."
    )


def print_checks(folder: Path) -> None:
    """Print what the model predicts of measured points, and what was measured."""
    rows = [
        (
            found.name,
            found.predicted,
            found.measured,
            f"{found.ratio:.2f}{' !' if found.is_far else ''}",
            found.source,
        )
        for found in checked(folder)
    ]
    show("Points of which no unit cost is made", ("", "predicted", "measured", "ratio", "measured in"), rows)
    CONSOLE.print(
        f"!: wrong by more than a factor of {_FAR}. The machine's speed differs by up to a factor of two between days."
    )


def checked(folder: Path) -> list[Checked]:
    """Return the outcome of all checks."""
    parts, found = read_parts(folder), []
    for check in CHECKS:
        document = json.loads((folder / f"{check.file}.json").read_text())
        source = f"{check.file}.json, {document['at'][:10]}, {document['machine']['revision'][:7]}"
        found.append(Checked(check.name, check.predict(parts, document), check.measured(document), source))
    return found


def _all(parts: Parts) -> Iterator[Part]:
    """Yield the unit costs to be printed: commits by their number of changes, then all that have a name."""
    commits = parts.commits[True]
    for changes in commits.changes:
        name = f"a batch of one table, {changes:,} changes"
        yield Part(name, commits.cpu(changes), "CPU s", "commit.json: now: cpu")
    values = [getattr(parts, field.name) for field in fields(parts)]
    while values:
        value = values.pop(0)
        if isinstance(value, Mapping):
            values = [*value.values(), *values]
        elif isinstance(value, Part) and value.name:
            yield value


def _given(load: Workload) -> dict[str, object]:
    return {
        "sources": load.sources, "tables": load.tables, "changed in a batch": load.changed,
        "changes/s": load.changes, "rows, millions": load.rows / 1e6,
        "files, TB": load.rows * load.row_bytes / 1e12, "trigger, s": load.trigger,
        "changelog": "yes" if load.changelog else "no", "events in backlog, millions": load.backlog / 1e6,
    }  # fmt: skip


def _figures(found: Cost) -> dict[str, object]:
    return {
        "cores": found.cores, "memory, GB": found.memory, "memory of a process, GB": found.process,
        **{f"{kind} requests/s": number for kind, number in found.requests.items()},
        "new files, millions a day": found.files_a_day / 1e6, "standing files, millions": found.standing / 1e6,
        "index, GB": found.index, "commits/s": found.commits, "a batch, s": found.batch,
        "backlog applied after, s": found.catch_up, "to fill the mirror, CPU hours": found.fill / 3600,
        "to read all keys of a source, minutes": found.read_keys / 60,
        "first limit": found.first.name, "used of it": f"{found.first.used:.0%}",
    }  # fmt: skip


def _columns(columns: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [(name, *(column[name] for column in columns)) for name in columns[0]]


_MEASURED: Final = Workload(cores=2, request=0)
"""What all measurements have: two cores, and local files."""


def _steady(document: Document) -> Workload:
    """Return the workload of `freshness`: its trigger is `continuous`, so the interval follows from its commits.

    These are counted in the whole process, as its CPU time is, and the changes are spread over its time.
    """
    options, tables, seconds = document["options"], 10, document["usage"]["seconds"]
    written = options["minutes"] * 60 + _WARM_UP_S
    return replace(
        _MEASURED, tables=tables, changed=tables, changes=options["changes_per_second"] * written / seconds,
        rows=2e5, trigger=seconds * tables / document["freshness"]["commits"],
        heap=heap_bytes(options["driver_memory"]) / 1e9,
    )  # fmt: skip


def _batches(tables: int, changed: int, changes: int, **more: bool) -> Workload:
    """Return batches with `changes` changes in each changed table. Their cost does not depend on the trigger."""
    return replace(_MEASURED, tables=tables, changed=changed, changes=changed * changes, trigger=1, **more)


def _drained(parts: Parts, document: Document) -> float:
    """Return the CPU seconds of a backlog in a hundred tables, in two batches: the first of a new table is small."""
    load = _batches(100, 100, document["events"] // 200, changelog=False, maintained=False)
    return 2 * cost(parts, load).cores


def _aged(parts: Parts, document: Document) -> float:
    return cost(
        parts, _batches(1, 1, document["options"]["changes"], changelog=False, maintained=False)
    ).batch


def _cores(document: Document) -> float:
    return float(document["usage"]["cpu_seconds"] / document["usage"]["seconds"])


CHECKS: Final = (
    Check("cores: 1,000 changes/s of ten tables", "freshness", lambda p, d: cost(p, _steady(d)).cores, _cores),
    Check("… the same on a slow day", "freshness-beside", lambda p, d: cost(p, _steady(d)).cores, _cores),
    Check(
        "… its memory, GB", "freshness", lambda p, d: cost(p, _steady(d)).process,
        lambda d: d["usage"]["peak_rss"] / 1e9,
    ),
    Check(
        "s: a batch, 100 of 1,000 tables", "many", lambda p, _: cost(p, _batches(1_000, 100, 10)).batch,
        lambda d: median(d["figures"]["batches"]),
    ),
    Check(
        "s: a batch, 10 of 100 tables, cold", "start", lambda p, _: cost(p, _batches(100, 10, 100)).batch,
        lambda d: median(d["batch_seconds"]),
    ),
    Check(
        "CPU s: 1.5 million events, 100 tables", "versions-many", _drained,
        lambda d: median(run["cpu_seconds"] for run in d["runs"] if run["engine"] == "this version"),
    ),
    Check(
        "s: a batch, 1,000 changes of one table", "age", _aged,
        lambda d: next(m["batch_median"] for m in d["marks"] if m["commits"] == 1_000),
    ),
)  # fmt: skip
"""What the model is compared with. All are of two cores and local files."""
