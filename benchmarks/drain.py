"""Measure how fast a backlog is applied: a million snapshot rows, then half a million changes, compared with Flink.

Every case is verified: rows, sum of amounts and a checksum of all values must equal those of the source.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks import engine, lake
from benchmarks.broker import broker_and_registry, cache_folder
from benchmarks.engine import Target
from benchmarks.load import Load, ensure, read_once
from benchmarks.peers import flink
from benchmarks.processes import StealMeter, Usage, typical
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.workload import Layout

_SMALL_ROWS, _SMALL_CHANGES = 20_000, 10_000


@dataclass(frozen=True, slots=True)
class Options:
    """What to run; `warm_runs` is the number of measured warm runs, `small` tests the benchmark itself."""

    strategies: Sequence[str] = engine.STRATEGIES
    layouts: Sequence[str] = ("one", "many")
    with_flink: bool = True
    cold: bool = True
    warm_runs: int = 2
    small: bool = False
    driver_memory: str = "4g"
    bootstrap: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One way to drain one log. `namespaces` are those that it filled, that of a cold run first."""

    layout: str
    engine: str
    changelog: bool
    namespaces: tuple[str, ...]
    cold: Usage | None
    warm: tuple[Usage, ...]

    @property
    def name(self) -> str:
        """Return the name for tables."""
        return f"{self.engine}{' + changelog' if self.changelog else ''}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case with the state of its first namespace. `written_per_changed` is in bytes, with metadata.

    The first namespace is used because a cold run is long enough for several checkpoints of Flink, as in production. A
    warm run may have only one checkpoint, after which a reader has nothing to merge.
    `stolen` is the share of the machine's time that its host gave to other machines.
    """

    case: Case
    look: lake.Look
    events: int
    written_per_changed: float
    stolen: float

    def row(self) -> tuple[object, ...]:
        """Return the row of the table."""
        warm, cold = typical(self.case.warm), self.case.cold
        return (
            self.case.name,
            cold.seconds if cold else None,
            cold.cpu_seconds if cold else None,
            warm.seconds,
            warm.cpu_seconds,
            self.events / warm.seconds,
            self.events / warm.cpu_seconds,
            max(usage.peak_rss for usage in (warm, cold) if usage) / 2**20,
            (self.look.read_seconds or 0) * 1000,
            (self.look.compacted_read_seconds or 0) * 1000,
            self.written_per_changed,
            f"{self.look.data_files}+{self.look.delete_files}",
            f"{self.stolen:.0%}",
        )


COLUMNS = (
    "engine", "cold s", "cold CPU-s", "warm s", "warm CPU-s", "events/s", "events/CPU-s", "peak MiB",
    "read ms", "compacted ms", "written/changed", "files", "stolen",
)  # fmt: skip


def layouts(*, small: bool) -> dict[str, Layout]:
    """Return the logs: one table on two partitions (JSON, JSON with schemas, Avro), and 100 tables on one each."""
    full = {
        "one": Layout("bench", partitions=2),
        "many": Layout("bench100", tables=100),
        "schemas": Layout("benchschemas", partitions=2, with_schemas=True),
        "avro": Layout("benchavro", partitions=2, avro=True),
    }
    if not small:
        return full
    return {
        name: replace(
            layout, prefix=f"{layout.prefix}-small", snapshot_rows=_SMALL_ROWS, changes=_SMALL_CHANGES
        )
        for name, layout in full.items()
    }


def drain(options: Options, results: Path) -> bool:
    """Run all cases, print and save the results of each layout. Return False if a table is wrong."""
    right = True
    avro = "avro" in options.layouts
    with broker_and_registry(options.bootstrap, registry=avro) as (bootstrap, known, registry):
        if options.cold:
            _start_once(bootstrap, known, options)
        for name in options.layouts:
            layout = layouts(small=options.small)[name]
            CONSOLE.print(f"[bold]{name}[/]: {layout.tables} table(s), topics {layout.prefix}.*")
            load = ensure(bootstrap, layout, known, registry)
            read_once(bootstrap, layout)
            outcomes: list[Outcome] = []
            wrong: list[str] = []
            for outcome, problems in _outcomes(name, load, options, bootstrap, registry):
                outcomes += [outcome] if outcome else []
                wrong += problems
            right &= not wrong
            _publish(name, load, options, outcomes, wrong, results)
    return right


def _publish(
    name: str,
    load: Load,
    options: Options,
    outcomes: Sequence[Outcome],
    wrong: Sequence[str],
    results: Path,
) -> None:
    rows = [outcome.row() for outcome in outcomes]
    show(f"drain, {name}: {load.layout.tables} table(s), {load.events:,} events", COLUMNS, rows)
    goals = _goals(outcomes) if name == "one" else []
    show_goals(goals)
    for line in wrong:
        CONSOLE.print(f"[red]wrong[/] {line}")
    found = [asdict(outcome) | {"look": _without_tables(outcome.look)} for outcome in outcomes]
    result = {"options": asdict(options), "outcomes": found, "wrong": wrong}
    save(results, f"drain-{name}{'-small' if options.small else ''}", result, goals)


def _start_once(bootstrap: str, known: Path, options: Options) -> None:
    """Start the engine once, so that Java's class archive exists before the measured starts."""
    load = ensure(bootstrap, layouts(small=True)["one"], known)
    target = Target(cache_folder() / "lakes" / "first-start", bootstrap, options.driver_memory)
    shutil.rmtree(target.folder, ignore_errors=True)
    try:
        engine.drain_cold(target, target.config("first", load.layout.prefix))
    finally:
        shutil.rmtree(target.folder, ignore_errors=True)


def _outcomes(
    name: str, load: Load, options: Options, bootstrap: str, registry: str
) -> Iterator[tuple[Outcome | None, list[str]]]:
    """Run and inspect each case, and delete its files before the next. Yield its outcome and what is wrong."""
    for program, kind, changelog in _plans(options, load.layout):
        target = Target(
            cache_folder() / "lakes" / f"{name}-{program}-{kind}",
            bootstrap,
            options.driver_memory,
            registry if load.layout.avro else None,
        )
        shutil.rmtree(target.folder, ignore_errors=True)
        title = f"{program} {kind}{' with changelog' if changelog else ''}"
        CONSOLE.print(f"running {title}")
        steal = StealMeter()
        try:
            if program == "flink":
                case = _flink_case(name, load.layout, target, kind, options)
            else:
                case = _engine_case(name, load.layout, target, kind, options, changelog=changelog)
            yield _judge(case, target, load, steal.share())
        except RuntimeError as error:
            # The other cases are still run. The files are kept for inspection.
            yield None, [f"{name}, {title}: {error}"]
        else:
            shutil.rmtree(target.folder, ignore_errors=True)


def _plans(options: Options, layout: Layout) -> list[tuple[str, str, bool]]:
    """Return (program, strategy or mode, with changelog) of each case. Compared cases run one after the other."""
    ours = [("replicator", strategy, log) for strategy in options.strategies for log in (False, True)]
    # Flink's job reads JSON.
    if not options.with_flink or layout.avro:
        return ours
    upsert, *others = [("flink", mode, False) for mode in flink.MODES]
    return [*ours[:1], upsert, *ours[1:], *others]


def _flink_case(name: str, layout: Layout, target: Target, mode: str, options: Options) -> Case:
    cold, *warm = flink.drain(target, layout, mode, options.warm_runs)
    namespaces = tuple(flink.namespace(mode, run + 1) for run in range(options.warm_runs + 1))
    return Case(name, f"flink, {mode}", changelog=False, namespaces=namespaces, cold=cold, warm=tuple(warm))


def _engine_case(
    name: str, layout: Layout, target: Target, strategy: str, options: Options, *, changelog: bool
) -> Case:
    def config(role: str) -> Path:
        namespace = f"{strategy}_{'full' if changelog else 'mirror'}_{role}".replace("-", "_")
        return target.config(namespace, layout.prefix, strategy=strategy, changelog=changelog)

    cold_config, first = config("cold"), config("first")
    measured = [config(f"warm{run}") for run in range(options.warm_runs)]
    cold = engine.drain_cold(target, cold_config) if options.cold else None
    warm = engine.drain_warm(target, first, measured)
    namespaces = tuple(path.stem for path in [*([cold_config] if cold else []), *measured])
    return Case(name, strategy, changelog, namespaces, cold, tuple(warm))


def _judge(case: Case, target: Target, load: Load, stolen: float) -> tuple[Outcome, list[str]]:
    first, last = case.namespaces[0], case.namespaces[-1]
    probe = target.config("probe", load.layout.prefix)
    looks = lake.look(probe, list(dict.fromkeys([first, last])), target.log("look"))
    written = sum(
        lake.written_bytes(target.warehouse, n) for n in (first, f"{first}_changes", f"{first}_ops")
    )
    wrong = [
        f"{case.layout}, {case.name}, {look.namespace}: {line}"
        for look in looks.values()
        for line in lake.differences(load.tables, look.tables)
    ]
    return Outcome(case, looks[first], load.events, written / load.changed_bytes, stolen), wrong


def _without_tables(look: lake.Look) -> dict[str, object]:
    fields = asdict(look)
    del fields["tables"]
    return fields


def _goals(outcomes: Sequence[Outcome]) -> list[Goal]:
    """Return the goals of the default strategy compared with Flink's upsert mode; none if either was not run."""
    peers = [outcome for outcome in outcomes if outcome.case.engine == "flink, upsert"]
    ours = {o.case.changelog: o for o in outcomes if o.case.engine == engine.STRATEGIES[0]}
    if not peers or len(ours) < 2:
        return []
    peer, mirror, full = peers[0], ours[False], ours[True]
    mirrored, logged, theirs = typical(mirror.case.warm), typical(full.case.warm), typical(peer.case.warm)
    goals = [
        Goal(
            "mirror only, warm, events/s, times Flink's",
            theirs.seconds / mirrored.seconds,
            1.2,
            at_least=True,
        ),
        Goal(
            "mirror only, warm, events/CPU-s, times Flink's",
            theirs.cpu_seconds / mirrored.cpu_seconds,
            1.2,
            at_least=True,
        ),
        Goal(
            "with changelog, warm, events/s, times Flink's",
            theirs.seconds / logged.seconds,
            1.0,
            at_least=True,
        ),
        Goal(
            "with changelog, warm, events/CPU-s, times Flink's",
            theirs.cpu_seconds / logged.cpu_seconds,
            1.0,
            at_least=True,
        ),
    ]
    if peer.look.read_seconds and mirror.look.read_seconds:
        ratio = peer.look.read_seconds / mirror.look.read_seconds
        goals.append(Goal("reading, times faster", ratio, 3.0, at_least=True))
    if mirror.case.cold and peer.case.cold:
        ratio = mirror.case.cold.seconds / peer.case.cold.seconds
        goals.append(Goal("mirror only, cold process, time, times Flink's", ratio, 1.0, at_least=False))
    return goals
