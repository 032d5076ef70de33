"""What a mirror costs at sizes that were not measured: a model of measured parts. Nothing is run.

A source has one process. Its batches follow each other at the trigger. A batch costs a part for each changed
table (its commits and their requests), and a part for each event. A row costs space in the index.
Every part is read from a file in `results`, or is a setting of the engine.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from replicator.config import MaintenanceConfig
from replicator.config.models import ApplyConfig
from replicator.lake.rows.keys import ENTRY_BYTES

_APPLY: Final = ApplyConfig()
_UPKEEP: Final = MaintenanceConfig()
_DAY_S: Final = 86_400
_IN_MEMORY: Final = 1 << 20
"""An index of fewer rows is in the memory of Python; a larger one is a file."""
_COUNTED_CHANGES: Final = 100
"""The number of changes of a batch in `results/requests.json`."""
METHODS: Final = {"PUT": ("PUT",), "GET, HEAD": ("GET", "HEAD"), "DELETE, POST": ("DELETE", "POST")}
"""Kinds of requests → methods of HTTP. A POST deletes many files at once."""

Document = Mapping[str, Any]
"""A JSON file of `results`."""


@dataclass(frozen=True, slots=True)
class Part:
    """A unit cost: what it is, its value and unit, and the file and field, or the code, that it is taken from."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Commits:
    """A batch of one table, mirror and changelog, by the number of changes (`results/commit.json`)."""

    changes: tuple[float, ...]
    cpus: tuple[float, ...]
    durations: tuple[float, ...]

    def cpu(self, changes: float) -> float:
        """Return the CPU seconds: linear between measured numbers of changes, constant beyond them."""
        return self._at(changes, self.cpus)

    def seconds(self, changes: float) -> float:
        """Return the duration, waits included: for files, and for the stream to notice the events."""
        return self._at(changes, self.durations)

    def _at(self, changes: float, values: tuple[float, ...]) -> float:
        # More changes cannot be faster: if they were, that is the noise of the measurement.
        return float(np.interp(changes, self.changes, np.maximum.accumulate(values)))


@dataclass(frozen=True, slots=True)
class Parts:
    """The unit costs. A dictionary has one without and one with a changelog.

    Attributes:
        commits: a batch of one table, without and with its share of maintenance.
        python_cpu: Python's part of its CPU time, with 100 changes.
        mirror_share: its CPU time without a changelog, relative to that with one.
        event, serial_event: an event of a large batch: CPU time, and the time in which one core works.
        requests: kind of `METHODS` → requests of a batch and table.
        expiry: reads of manifest lists by a commit's share of deleting snapshots, more than were counted.
        kept: files of a batch and table that stay until their snapshots are deleted.
        metadata: metadata.json files that a table keeps.
        java, python, table: memory of Java beyond its heap, of Python, and of each table.
        index_row, key_read, fill_row: a row in the index, reading its key into the index, and filling the mirror.
    """

    commits: Mapping[bool, Commits]
    python_cpu: Part
    mirror_share: Part
    event: Mapping[bool, Part]
    serial_event: Part
    requests: Mapping[bool, Mapping[str, Part]]
    expiry: Part
    kept: Mapping[bool, Part]
    metadata: Mapping[bool, Part]
    java: Part
    python: Part
    table: Part
    index_row: Part
    key_read: Part
    fill_row: Part


def read_parts(folder: Path) -> Parts:
    """Read the parts from the results in `folder`. Raises FileNotFoundError if one is missing."""
    commit, drain, size, many, counted, bootstrap = (
        json.loads((folder / f"{name}.json").read_text())
        for name in ("commit", "drain-one", "size", "many", "requests", "bootstrap")
    )
    both = (False, True)
    filled = [run["cpu"] / run["rows"] for run in bootstrap["runs"] if run["name"] == "one table"]
    return Parts(
        {maintained: _commits(commit, maintained=maintained) for maintained in both},
        _python_cpu(counted),
        _mirror_share(counted),
        {changelog: _event(drain, changelog=changelog) for changelog in both},
        _serial_event(drain),
        {changelog: _requests(counted, changelog=changelog) for changelog in both},
        _expiry(counted),
        {changelog: _kept(counted, changelog=changelog) for changelog in both},
        {changelog: _metadata(counted, changelog=changelog) for changelog in both},
        *_memory(size, many),
        Part("a row in the index", ENTRY_BYTES, "bytes", "replicator/lake/rows/keys.py: ENTRY_BYTES"),
        _key_read(size),
        Part("a row, to fill the mirror", median(filled) * 1e6, "µs of CPU", "bootstrap.json: one table: cpu / rows"),
    )  # fmt: skip


def heap_bytes(size: str) -> int:
    """Return the bytes of a Java heap such as `4g` or `512m`."""
    return int(size[:-1]) << {"k": 10, "m": 20, "g": 30}[size[-1].lower()]


def _commits(commit: Document, *, maintained: bool) -> Commits:
    version = "now" if maintained else "now, no maintenance"
    costs = sorted((c["changes"], c["cpu"], c["seconds"]) for c in commit["costs"] if c["version"] == version)
    return Commits(*zip(*costs, strict=True))


def _counted(counted: Document, *, changelog: bool) -> Document:
    return next(found for found in counted["counted"] if found["case"]["changelog"] == changelog)


def _python_cpu(counted: Document) -> Part:
    """Return Python's part. It is measured as such, because Java's code was new and its part too large."""
    found = _counted(counted, changelog=True)
    return Part("… Python's part, 100 changes", found["python_cpu"], "CPU s", "requests.json: python_cpu")


def _mirror_share(counted: Document) -> Part:
    cpu, cpu_of_mirror = (
        found["python_cpu"] + found["java_cpu"]
        for found in (_counted(counted, changelog=True), _counted(counted, changelog=False))
    )
    share = min(1.0, cpu_of_mirror / cpu)
    return Part("… without a changelog", share, "of CPU", "requests.json: CPU without / with it")


def _drain(drain: Document, *, changelog: bool) -> list[dict[str, float]]:
    """Return the warm runs of a backlog, with seconds and CPU seconds of an event in place of those of all events."""
    wanted = ("split", changelog)
    found = next(o for o in drain["outcomes"] if (o["case"]["engine"], o["case"]["changelog"]) == wanted)
    names, events = ("seconds", "cpu_seconds"), found["events"]
    return [{name: run[name] / events for name in names} for run in found["case"]["warm"]]


def _event(drain: Document, *, changelog: bool) -> Part:
    cpu = median(run["cpu_seconds"] for run in _drain(drain, changelog=changelog))
    name = f"an event of a large batch, {_case(changelog=changelog)}"
    return Part(name, cpu * 1e6, "µs of CPU", "drain-one.json: cpu_seconds / events")


def _serial_event(drain: Document) -> Part:
    """Return the time of an event during which only one core works: the driver's.

    On `c` cores, a run of `s` seconds and `u` CPU seconds, `x` of them serial, takes `s = x + (u - x) / c`. Waits, and
    what the broker takes from these cores, count as serial too: it is an upper bound. A changelog makes no difference
    that can be measured, so the larger median counts.
    """
    cores = drain["machine"]["cores"]
    serial = max(
        median((cores * run["seconds"] - run["cpu_seconds"]) / (cores - 1) for run in _drain(drain, changelog=c))
        for c in (False, True)
    )  # fmt: skip
    source = "drain-one.json: (c·seconds - cpu_seconds) / (c - 1) / events"
    return Part("… on one core only, at most", serial * 1e6, "µs", source)


def _case(*, changelog: bool) -> str:
    return f"{'with' if changelog else 'without'} changelog"


def _requests(counted: Document, *, changelog: bool) -> dict[str, Part]:
    made = _counted(counted, changelog=changelog)["requests"]
    found = {}
    for kind, methods in METHODS.items():
        count = sum(number for key, number in made.items() if key.split()[0] in methods)
        name = f"{kind} of a batch and table, {_case(changelog=changelog)}"
        found[kind] = Part(name, count, "requests", "requests.json: requests")
    return found


def _expiry(counted: Document) -> Part:
    """Return the requests that deleting snapshots adds to a commit if as many are kept as by default.

    Iceberg reads the manifest list of each snapshot that stays, and of each that goes, by a HEAD and a GET. A tenth of
    the snapshots goes at once (`maintenance.plan`), at least those of the commits between two inspections. The counted
    mirrors kept fewer, so that their snapshots were deleted at all.
    """

    def lists(kept: int) -> float:
        gone = max(kept / 10, _UPKEEP.merge_files)
        return (kept + gone) / gone

    count = 2 * (lists(_UPKEEP.max_snapshots) - lists(counted["options"]["snapshots"]))
    return Part(
        "… more of a commit, to delete snapshots", count, "requests", "computed; requests.json: options"
    )


def _kept(counted: Document, *, changelog: bool) -> Part:
    made = _counted(counted, changelog=changelog)["requests"]
    count = sum(n for key, n in made.items() if key.startswith("PUT ") and "metadata.json" not in key)
    return Part("", count, "files", "requests.json: PUT without metadata.json")


def _metadata(counted: Document, *, changelog: bool) -> Part:
    count = _counted(counted, changelog=changelog)["standing"]["metadata.json"]
    return Part("", count, "files", "requests.json: standing")


def _memory(size: Document, many: Document) -> tuple[Part, Part, Part]:
    """Return the memory of Java beyond its heap, of Python, and of a table.

    The last is an upper bound: what a process of many tables needs more than one of one table. Neither filled its heap.
    """
    sizes = sorted(size["sizes"], key=lambda found: found["rows"])
    one, largest = sizes[0], sizes[-1]
    java = largest["java"] - heap_bytes(size["options"]["driver_memory"])
    table = (many["figures"]["memory"][0] - one["python"] - one["java"]) / many["options"]["tables"]
    return (
        Part("Java beyond its heap", java / 1e6, "MB", "size.json: most rows: java - driver_memory"),
        Part("Python", one["python"] / 1e6, "MB", "size.json: fewest rows: python"),
        Part("a table, at most", table / 1e6, "MB", "many.json: memory - size.json: python, java; / tables"),
    )


def _key_read(size: Document) -> Part:
    points = sorted((found["rows"], found["index"]) for found in size["sizes"])
    (few, before), (most, after) = points[0], points[-1]
    seconds = (after - before) / (most - few)
    return Part(
        "a key read into the index, once in a process", seconds * 1e6, "µs", "size.json: index, by rows"
    )


@dataclass(frozen=True, slots=True)
class Workload:
    """What is mirrored, and on what. Counts are of all sources together.

    Attributes:
        sources: MySQL servers; each has a mirror process on a machine of its own.
        tables, changed: source tables, and those of them that have changes in a batch; others in the next one.
        changes: changed rows a second, one event each.
        backlog: events that are not applied yet.
        rows, row_bytes: rows of all tables, and bytes of a row in the lake's files.
        trigger: seconds from the beginning of a batch to that of the next one.
        changelog: whether each table has a changelog.
        maintained: whether files are merged and old ones deleted.
        snapshots: `maintenance.max_snapshots`.
        cores, memory: of the machine of a process; memory in GB.
        heap: Java's heap, GB.
        threads: `apply.parallel_tables`, the tables of a process that are committed at the same time.
        index: `apply.max_index_size` of a process, GB.
        request: seconds of a request to the object store. It was not measured: the parts are from local files.
        catalog: commits a second that the catalog takes from all processes together. It was not measured.
    """

    sources: int = 1
    tables: int = 100
    changed: int = 10
    changes: float = 1_000
    backlog: float = 0
    rows: float = 1e8
    row_bytes: float = 200
    trigger: float = _APPLY.trigger
    changelog: bool = True
    maintained: bool = True
    snapshots: int = _UPKEEP.max_snapshots
    cores: int = 16
    memory: float = 64
    heap: float = 3 * 1.073741824
    threads: int = _APPLY.parallel_tables
    index: float = _APPLY.max_index_size / 1e9
    request: float = 0.03
    catalog: float = 100


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that ends: what is needed of it and what there is, both in `unit`."""

    name: str
    needed: float
    available: float
    unit: str

    @property
    def used(self) -> float:
        """The needed part of what there is; above 1, the workload does not fit."""
        return self.needed / self.available


@dataclass(frozen=True, slots=True)
class Cost:
    """What a workload costs, all processes together if nothing else is said. Sizes are in GB.

    Attributes:
        cores: CPU seconds a second.
        memory, process: memory of all processes, and of one.
        requests: kind of `METHODS` → requests to the object store a second.
        files_a_day, standing: new files of a day, and files that exist once old snapshots are deleted.
        index: size of all indexes.
        commits: commits a second of lake tables.
        batch: seconds of a batch of one process. It is the shortest trigger.
        fill: CPU seconds to fill the mirror from the source.
        read_keys: seconds in which a process reads the keys of all its rows, once it needs them.
        catch_up: seconds until the backlog is applied; infinite if the changes need the whole process.
        limits: the most used one first.
    """

    cores: float
    memory: float
    process: float
    requests: Mapping[str, float]
    files_a_day: float
    standing: float
    index: float
    commits: float
    batch: float
    fill: float
    read_keys: float
    catch_up: float
    limits: tuple[Limit, ...]

    @property
    def first(self) -> Limit:
        """The limit that is reached first if everything grows alike."""
        return self.limits[0]


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of one process: changed tables; CPU seconds, those under Python's lock; seconds of all tables in turn."""

    tables: float
    cpu: float
    locked: float
    in_turn: float


def _batch(parts: Parts, load: Workload) -> _Batch:
    events = load.changes * load.trigger / load.sources
    # Each changed table has at least one event.
    tables = min(load.changed / load.sources, load.tables / load.sources, events)
    if not tables:
        return _Batch(0, 0, 0, 0)
    commits, a_table = parts.commits[load.maintained], events / tables
    share = 1.0 if load.changelog else parts.mirror_share.value
    small = tables * commits.cpu(a_table) * share
    # Python's part of a batch is assumed to grow with the number of changes as the whole batch does.
    python = small * parts.python_cpu.value / commits.cpu(_COUNTED_CHANGES)
    large = tables * max(0.0, a_table - _APPLY.driver_max_events) / 1e6
    # Maintenance of large batches was not measured; the engine limits it to this part of the time.
    upkeep = 1 / (1 - _UPKEEP.max_share) if load.maintained else 1.0
    # An upper bound: all requests one after the other, with those of maintenance.
    counted = sum(part.value for part in parts.requests[load.changelog].values())
    waits = load.request * (counted + parts.expiry.value * (1 + load.changelog))
    return _Batch(
        tables,
        small + large * parts.event[load.changelog].value * upkeep,
        python + large * parts.serial_event.value,
        (commits.seconds(a_table) * share + waits) * tables / min(load.threads, max(1.0, tables)),
    )


def cost(parts: Parts, load: Workload) -> Cost:
    """Return what a workload costs."""
    batch = _batch(parts, load)
    tasks = batch.tables * load.sources / load.trigger
    index = load.rows * parts.index_row.value / 1e9
    in_memory = min(index / load.sources, load.index) if load.rows / load.tables < _IN_MEMORY else 0.0
    more = parts.java.value + parts.python.value + load.tables / load.sources * parts.table.value
    process = load.heap + more / 1e3 + in_memory
    commits = tasks * (1 + load.changelog)
    requests = {kind: part.value * tasks for kind, part in parts.requests[load.changelog].items()}
    requests["GET, HEAD"] += parts.expiry.value * commits
    seconds = max(batch.locked, batch.cpu / load.cores, batch.in_turn)
    spare = 1 - seconds / load.trigger
    # As the part on one core was found: the rest is on all cores.
    serial = parts.serial_event.value
    event = serial + max(0.0, parts.event[load.changelog].value - serial) / load.cores
    backlog = load.backlog / load.sources * event / 1e6
    limits = (
        Limit("Python's lock of a process", batch.locked / load.trigger, 1, "cores"),
        Limit("cores of a process", batch.cpu / load.trigger, load.cores, "cores"),
        Limit("changed tables in turn", batch.in_turn, load.trigger, "s"),
        Limit("memory of a process", process, load.memory, "GB"),
        Limit("index of a process", index / load.sources, load.index, "GB"),
        Limit("commits of the catalog", commits, load.catalog, "commits/s"),
    )
    return Cost(
        cores=batch.cpu / load.trigger * load.sources,
        memory=process * load.sources,
        process=process,
        requests=requests,
        files_a_day=requests["PUT"] * _DAY_S,
        standing=_standing(parts, load, tasks),
        index=index,
        commits=commits,
        batch=seconds,
        fill=load.rows * parts.fill_row.value / 1e6,
        read_keys=load.rows / load.sources * parts.key_read.value / 1e6,
        catch_up=0.0 if not backlog else backlog / spare if spare > 0 else float("inf"),
        limits=tuple(sorted(limits, key=lambda limit: -limit.used)),
    )


def _standing(parts: Parts, load: Workload, tasks: float) -> float:
    """Return the files that exist once the oldest snapshots are deleted; `tasks` are changed tables a second."""
    commits = tasks / load.tables * _UPKEEP.snapshot_age
    snapshots = min(commits, load.snapshots)
    metadata = min(commits * (1 + load.changelog), parts.metadata[load.changelog].value)
    data = load.rows * load.row_bytes / _UPKEEP.target_file_size
    return load.tables * (snapshots * parts.kept[load.changelog].value + metadata) + data


SCENARIOS: Final[Mapping[str, Workload]] = {
    "10,000 tables": Workload(tables=10_000, changed=1_000),
    "100 sources": Workload(sources=100, tables=10_000, changed=1_000, changes=100_000, rows=1e10),
    "10 TB": Workload(rows=5e10),
    "1 M changes/s": Workload(changes=1_000_000),
}
"""The scenarios of the documentation: the default workload with more of one thing, or a hundred times of all."""
