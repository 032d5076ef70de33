"""The command line of the benchmarks. Without a command it runs all of them."""

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import age as age_module
from benchmarks import binlog as binlog_module
from benchmarks import bootstrap as bootstrap_module
from benchmarks import cluster as cluster_module
from benchmarks import commit as commit_module
from benchmarks import cost as cost_module
from benchmarks import cost_report
from benchmarks import deletes as deletes_module
from benchmarks import drain as drain_module
from benchmarks import drop as drop_module
from benchmarks import freshness as freshness_module
from benchmarks import log_table as log_table_module
from benchmarks import many as many_module
from benchmarks import pipeline as pipeline_module
from benchmarks import replay as replay_module
from benchmarks import requests as requests_module
from benchmarks import shop as shop_module
from benchmarks import size as size_module
from benchmarks import start as start_module
from benchmarks import verify as verify_module
from benchmarks import versions as versions_module
from benchmarks.engine import STRATEGIES

app = typer.Typer(no_args_is_help=False, add_completion=False, pretty_exceptions_enable=False)

Results = Annotated[Path, typer.Option(help="Folder for the JSON results.")]
Memory = Annotated[str, typer.Option(help="Heap of the engine's driver, and of Flink.")]
Bootstrap = Annotated[
    str | None, typer.Option(help="A broker to use; by default one is started, with its data in the cache.")
]
WarmRuns = Annotated[int, typer.Option(min=1, help="Measured runs in a warm process.")]
Small = Annotated[bool, typer.Option(help="A log of 30,000 events, to try the benchmark itself.")]
_STRATEGIES = list(STRATEGIES)
_LAYOUTS = ["one", "many"]
_DIFFERENCES = [0, 1, 100, 10_000]
_RESULTS = Path(__file__).parent / "results"


@app.callback(invoke_without_command=True)
def everything(context: typer.Context) -> None:
    """Run all benchmarks with their defaults: start, drain, freshness (about 40 minutes on two cores)."""
    # On SIGTERM, a benchmark still stops what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if context.invoked_subcommand is None:
        right = [
            start_module.start(start_module.Options(), _RESULTS),
            drain_module.drain(drain_module.Options(), _RESULTS),
            freshness_module.freshness(freshness_module.Options(), _RESULTS),
        ]
        _end(right=all(right))


@app.command()
def drain(  # noqa: PLR0917 - typer calls it, by name
    strategy: Annotated[list[str], typer.Option(help="Strategies of the engine.")] = _STRATEGIES,
    layout: Annotated[
        list[str], typer.Option(help="one (table), many, schemas (in events), avro.")
    ] = _LAYOUTS,
    flink: Annotated[bool, typer.Option(help="Run Flink beside it.")] = True,
    cold: Annotated[bool, typer.Option(help="Run cold processes too.")] = True,
    warm_runs: WarmRuns = 2,
    small: Small = False,
    driver_memory: Memory = "4g",
    bootstrap: Bootstrap = None,
    results: Results = _RESULTS,
) -> None:
    """Drain 1.5 million events into tables, beside Flink with Iceberg."""
    options = drain_module.Options(
        tuple(strategy), tuple(layout), flink, cold, warm_runs, small, driver_memory, bootstrap
    )
    _end(right=drain_module.drain(options, results))


@app.command()
def cluster(
    workers: Annotated[str, typer.Option(help="Numbers of workers, each with one core.")] = "1,2,4",
    warm_runs: WarmRuns = 2,
    small: Small = False,
    driver_memory: Memory = "4g",
    bootstrap: Bootstrap = None,
    results: Results = _RESULTS,
) -> None:
    """Drain 1.5 million events into one table with local[1], and with Spark clusters on this machine."""
    options = cluster_module.Options(
        tuple(map(int, workers.split(","))), warm_runs, small, driver_memory, bootstrap
    )
    _end(right=cluster_module.cluster(options, results))


@app.command()
def verify(
    rows: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 10_000_000,
    differences: Annotated[
        list[int], typer.Option(min=0, help="Rows that differ; each number is measured in turn.")
    ] = _DIFFERENCES,
    reladiff: Annotated[bool, typer.Option(help="Compare with reladiff too.")] = True,
    runs: Annotated[int, typer.Option(min=1, help="Measured runs.")] = 3,
    driver_memory: Memory = "2g",
    results: Results = _RESULTS,
) -> None:
    """Compare a mirror with its source, equal and with differences, beside reladiff."""
    options = verify_module.Options(rows, tuple(differences), reladiff, runs, driver_memory)
    _end(right=verify_module.verify(options, results))


@app.command()
def bootstrap(
    rows: Annotated[int, typer.Option(min=1, help="Rows of the single table.")] = 10_000_000,
    tpch: Annotated[float, typer.Option(help="Scale of TPC-H's tables; 0 leaves them out.")] = 1.0,
    debezium_rows: Annotated[
        int, typer.Option(help="Rows for Debezium's snapshot; 0 leaves it out.")
    ] = 1_000_000,
    dlt: Annotated[bool, typer.Option(help="Load the single table with dlt too.")] = True,
    runs: Annotated[int, typer.Option(min=1, help="Measured runs.")] = 3,
    changelog: Annotated[bool, typer.Option(help="Write a changelog too.")] = False,
    driver_memory: Memory = "2g",
    results: Results = _RESULTS,
) -> None:
    """Fill a new mirror from MySQL, beside Debezium's snapshot, dlt and MySQL's own client."""
    options = bootstrap_module.Options(rows, tpch, debezium_rows, dlt, runs, changelog, driver_memory)
    _end(right=bootstrap_module.bootstrap(options, results))


@app.command("log_table")
def log_table(
    events: Annotated[int, typer.Option(min=1, help="Events of the topic.")] = 4_000_000,
    batch: Annotated[int, typer.Option(min=1, help="Events of a batch.")] = 1_000_000,
    runs: Annotated[int, typer.Option(min=1, help="Measured runs.")] = 3,
    policy: Annotated[str, typer.Option(help="For unknown fields: evolve, discard.")] = "evolve",
    driver_memory: Memory = "3g",
    results: Results = _RESULTS,
) -> None:
    """Append events of 300 bytes to a log table."""
    options = log_table_module.Options(events, batch, runs, policy, driver_memory)
    _end(right=log_table_module.log_table(options, results))


@app.command()
def freshness(
    minutes: Annotated[float, typer.Option(help="How long to write.")] = 5.0,
    rate: Annotated[float, typer.Option(help="Changes a second.")] = 1000.0,
    trigger: Annotated[str, typer.Option(help="As in the config: continuous, 2 seconds, …")] = "continuous",
    maintenance: Annotated[bool, typer.Option(help="Maintain the tables between batches.")] = True,
    checks: Annotated[bool, typer.Option(help="Compare rows with the source beside the batches.")] = True,
    driver_memory: Memory = "4g",
    results: Results = _RESULTS,
) -> None:
    """From commits in a real MySQL to commits in the lake, at a steady rate."""
    options = freshness_module.Options(
        minutes, rate, trigger, driver_memory=driver_memory, maintenance=maintenance, checks=checks
    )
    _end(right=freshness_module.freshness(options, results))


@app.command()
def start(driver_memory: Memory = "4g", bootstrap: Bootstrap = None, results: Results = _RESULTS) -> None:
    """From the start of `replicator run` to its first batch, and batches with few of many tables changed."""
    _end(right=start_module.start(start_module.Options(bootstrap, driver_memory), results))


@app.command()
def age(
    marks: Annotated[str, typer.Option(help="Numbers of commits after which the table is inspected.")] = (
        "100,1000,10000"
    ),
    rows: Annotated[int, typer.Option(min=1, help="Rows of the snapshot.")] = 2_000_000,
    changes: Annotated[int, typer.Option(min=1, help="Changes in each commit.")] = 1_000,
    maintenance: Annotated[bool, typer.Option(help="Maintain the table.")] = True,
    peer: Annotated[
        age_module.Peer | None, typer.Option(help="Measure this engine instead of the mirror.")
    ] = None,
    driver_memory: Memory = "4g",
    results: Results = _RESULTS,
) -> None:
    """What a batch and a reader cost after many small commits (10,000 take about two hours)."""
    options = age_module.Options(
        tuple(map(int, marks.split(","))), rows, changes, maintenance, driver_memory, peer
    )
    _end(right=age_module.age(options, results))


@app.command()
def commit(
    changes: Annotated[str, typer.Option(help="Numbers of changes in each batch.")] = "10,100,1000,10000",
    batches: Annotated[int, typer.Option(min=2, help="Measured batches of each size.")] = 100,
    before: Annotated[
        Path | None, typer.Option(help="Another checkout, with an environment in .venv, to be compared.")
    ] = None,
    partition: Annotated[str, typer.Option(help='Partition of the mirror, such as "bucket(8, id)".')] = "",
    results: Results = _RESULTS,
) -> None:
    """CPU seconds of a commit to a mirror and its changelog, by the number of changes."""
    options = commit_module.Options(
        tuple(map(int, changes.split(","))),
        batches=batches,
        before=before and before.resolve(),
        partition=partition,
    )
    commit_module.commit(options, results)


@app.command()
def cost(  # noqa: PLR0917 - typer calls it, by name
    sources: Annotated[
        int | None, typer.Option(min=1, help="MySQL servers, each with its own mirror.")
    ] = None,
    tables: Annotated[int | None, typer.Option(min=1, help="Tables of all sources.")] = None,
    changed: Annotated[int | None, typer.Option(min=1, help="Tables that change in a batch.")] = None,
    changes: Annotated[float | None, typer.Option(min=0, help="Changed rows a second.")] = None,
    backlog: Annotated[float | None, typer.Option(min=0, help="Events that wait.")] = None,
    rows: Annotated[float | None, typer.Option(min=0, help="Rows of all tables.")] = None,
    row_bytes: Annotated[float | None, typer.Option(min=1, help="Bytes of a row in files.")] = None,
    trigger: Annotated[float | None, typer.Option(min=0.1, help="Seconds between batches.")] = None,
    request: Annotated[
        float | None, typer.Option(min=0, help="Seconds of a request to the object store.")
    ] = None,
    catalog: Annotated[float | None, typer.Option(min=1, help="Commits/s that the catalog takes.")] = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Cores of the machine of a mirror.")] = None,
    memory: Annotated[float | None, typer.Option(min=1, help="Its memory, GB.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="apply.parallel_tables.")] = None,
    changelog: Annotated[bool, typer.Option(help="Each table has a changelog.")] = True,
    check: Annotated[bool, typer.Option("--check", help="Compare with measurements instead.")] = False,
    results: Results = _RESULTS,
) -> None:
    """What a mirror costs at any size, computed from the results; four scenarios if no size is given."""
    given: dict[str, Any] = {
        "sources": sources, "tables": tables, "changed": changed, "changes": changes, "backlog": backlog,
        "rows": rows, "row_bytes": row_bytes, "trigger": trigger, "request": request, "catalog": catalog,
        "cores": cores, "memory": memory, "threads": threads, "changelog": None if changelog else False,
    }  # fmt: skip
    if check:
        cost_report.print_checks(results)
    elif any(value is not None for value in given.values()):
        load = cost_module.Workload(**{n: value for n, value in given.items() if value is not None})
        cost_report.print_costs(results, {"given": load})
    else:
        cost_report.print_costs(results)


@app.command()
def requests(
    changes: Annotated[int, typer.Option(min=1, help="Changes of a table in each batch.")] = 100,
    warm_up: Annotated[int, typer.Option(min=0, help="Batches before the measured ones.")] = 60,
    batches: Annotated[int, typer.Option(min=1, help="Measured batches.")] = 40,
    results: Results = _RESULTS,
) -> None:
    """Requests to an object store and files of a batch, and the parts of Python and Java in its CPU time."""
    options = requests_module.Options(changes, warm_up=warm_up, batches=batches)
    requests_module.requests(options, results)


@app.command()
def size(
    rows: Annotated[str, typer.Option(help="Numbers of rows of the table.")] = "1000000,10000000,100000000",
    batches: Annotated[int, typer.Option(min=4, help="Batches on each table.")] = 30,
    driver_memory: Memory = "4g",
    results: Results = _RESULTS,
) -> None:
    """What a batch of 10,000 uniform keys costs on tables of different sizes."""
    options = size_module.Options(
        tuple(map(int, rows.split(","))), batches=batches, driver_memory=driver_memory
    )
    _end(right=size_module.size(options, results))


@app.command()
def pipeline(
    rows: Annotated[str, typer.Option(help="Numbers of rows of the table.")] = "1000000,10000000",
    refreshes: Annotated[int, typer.Option(min=4, help="Refreshes of each result.")] = 12,
    driver_memory: Memory = "4g",
    results: Results = _RESULTS,
) -> None:
    """What a refresh of a pipeline with 1,000 changes costs on tables of different sizes."""
    options = pipeline_module.Options(
        tuple(map(int, rows.split(","))), refreshes=refreshes, driver_memory=driver_memory
    )
    _end(right=pipeline_module.pipeline(options, results))


@app.command()
def shop(
    engine: Annotated[
        list[shop_module.Engine] | None,
        typer.Option(help="What to measure; by default, all of them."),
    ] = None,
    minutes: Annotated[float, typer.Option(help="How long to write, after a minute of warm-up.")] = 2.0,
    rate: Annotated[float, typer.Option(help="Changes a second.")] = 1000.0,
    orders: Annotated[int, typer.Option(min=1_000, help="Orders at the beginning.")] = 1_000_000,
    seconds: Annotated[int, typer.Option(min=1, help="Interval of batches, refreshes, checkpoints.")] = 2,
    flink_state: Annotated[
        shop_module.flink.State, typer.Option(help="Where Flink has its state.")
    ] = shop_module.flink.State.ROCKSDB,
    driver_memory: Memory = "4g",
    results: Results = _RESULTS,
) -> None:
    """From commits in a real MySQL to results in three stages, by changes and as a whole, beside Flink SQL."""
    engines = tuple(engine or shop_module.Engine)
    options = shop_module.Options(engines, minutes, rate, orders, seconds, flink_state, driver_memory)
    _end(right=shop_module.shop(options, results))


@app.command()
def many(
    tables: Annotated[int, typer.Option(min=2, help="Tables of the mirror.")] = 1_000,
    changed: Annotated[int, typer.Option(min=1, help="Tables that change; fewer than all.")] = 100,
    batches: Annotated[int, typer.Option(min=2, help="Measured batches.")] = 20,
    seconds: Annotated[float, typer.Option(help="How long tables change at a constant rate.")] = 180.0,
    backlog: Annotated[int, typer.Option(min=1, help="Events of the backlog in one table.")] = 5_000_000,
    driver_memory: Memory = "4g",
    results: Results = _RESULTS,
) -> None:
    """Batches of a mirror of a thousand tables, and the delay of changes beside a backlog in one of them."""
    options = many_module.Options(
        tables, changed, batches=batches, seconds=seconds, backlog=backlog, driver_memory=driver_memory
    )
    _end(right=many_module.many(options, results))


@app.command()
def drop(
    files: Annotated[int, typer.Option(min=1, help="Data files of the table.")] = 100_000,
    runs: Annotated[int, typer.Option(min=1, help="Tables that are made and dropped.")] = 3,
    spark: Annotated[bool, typer.Option(help="Drop such a table with Spark too.")] = True,
    results: Results = _RESULTS,
) -> None:
    """Drop a table of many small files."""
    _end(right=drop_module.drop(drop_module.Options(files, runs=runs, with_spark=spark), results))


@app.command()
def replay(
    events: Annotated[int, typer.Option(min=1_000, help="Events of the log.")] = 10_000_000,
    tables: Annotated[int, typer.Option(min=1, help="Tables of the mirror.")] = 1,
    runs: Annotated[int, typer.Option(min=1, help="Processes of each case.")] = 3,
    changelog: Annotated[str, typer.Option(help="without, with, both.")] = "both",
    driver_memory: Memory = "4g",
    bootstrap: Bootstrap = None,
    results: Results = _RESULTS,
) -> None:
    """Record a log into an archive, and replay it, beside the drain of the same log."""
    cases = {"without": (False,), "with": (True,), "both": (False, True)}[changelog]
    options = replay_module.Options(events, tables, runs, cases, driver_memory, bootstrap)
    _end(right=replay_module.replay(options, results))


@app.command()
def deletes(
    rows: Annotated[int, typer.Option(min=1_000, help="Rows of each table.")] = 2_000_000,
    results: Results = _RESULTS,
) -> None:
    """What deleted rows in a data file cost a reader, in format versions 2 and 3."""
    deletes_module.deletes(deletes_module.Options(rows), results)


@app.command()
def binlog(
    changes: Annotated[int, typer.Option(min=1_000, help="Row changes in the files.")] = 2_000_000,
    compressed: Annotated[bool, typer.Option(help="In compressed transactions.")] = False,
    results: Results = _RESULTS,
) -> None:
    """Import binary logs, beside Debezium on the live server and plain parsing."""
    _end(right=binlog_module.binlog(binlog_module.Options(changes, compressed), results))


@app.command()
def versions(
    before: Annotated[Path, typer.Argument(help="The other checkout, with an environment in .venv.")],
    layout: Annotated[str, typer.Option(help="one (table), many.")] = "one",
    processes: Annotated[int, typer.Option(min=1, help="Processes of each version and case.")] = 2,
    warm_runs: Annotated[int, typer.Option(min=1, help="Measured runs in each process.")] = 3,
    changelog: Annotated[str, typer.Option(help="without, with, both.")] = "both",
    flink: Annotated[bool, typer.Option(help="Run Flink too.")] = True,
    results: Results = _RESULTS,
) -> None:
    """Compare the drain of this version with that of another checkout."""
    cases = {"without": (False,), "with": (True,), "both": (False, True)}[changelog]
    options = versions_module.Options(before.resolve(), layout, processes, warm_runs, cases, flink)
    versions_module.versions(options, results)


def _end(*, right: bool) -> None:
    """Exit with code 1 if any table is wrong."""
    if not right:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
