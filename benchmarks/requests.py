"""Count what a batch of few changes does: requests to an object store, and CPU time of Python and of Java.

The store is an S3 server in this process (moto), with Iceberg's `S3FileIO` and a JDBC catalog, so the mirror reads and
writes `metadata.json`; a REST catalog does that itself. CPU time is measured on local files, without the server.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from moto.moto_server.werkzeug_app import MotoRequestHandler
from moto.server import ThreadedMotoServer
from pyarrow.fs import FileSelector, S3FileSystem

from benchmarks.broker import broker, cache_folder
from benchmarks.engine import Target
from benchmarks.following import follow_log, running_mirror
from benchmarks.load import fill
from benchmarks.report import CONSOLE, save, show
from benchmarks.workload import Layout

_BUCKET = "lake"
_KINDS = (
    ("metadata.json", r"\.metadata\.json"),
    ("manifest list", r"/snap-[^/]*\.avro"),
    ("manifest", r"\.avro"),
    ("delete file", r"deletes[^/]*\.parquet"),
    ("data file", r"\.parquet"),
)
_SETTINGS = """[maintenance]
max_lag = "1000000 days"
max_snapshots = {snapshots}
"""
_S3 = """[lake.options]
"io-impl" = "org.apache.iceberg.aws.s3.S3FileIO"
"s3.endpoint" = "{endpoint}"
"s3.path-style-access" = "true"
"client.region" = "us-east-1"
"s3.access-key-id" = {{ env = "BENCHMARK_S3_KEY" }}
"s3.secret-access-key" = {{ env = "BENCHMARK_S3_KEY" }}
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run. `changes` is per table and batch; `snapshots` is `max_snapshots`, small so that many are deleted."""

    changes: int = 100
    warm_up: int = 150
    batches: int = 150
    snapshots: int = 50


@dataclass(frozen=True, slots=True)
class Case:
    """Where the files are, whether there is a changelog, and the number of tables that change in each batch."""

    store: str
    changelog: bool
    tables: int


@dataclass(frozen=True, slots=True)
class Counted:
    """One case, for each batch and changed table.

    Attributes:
        requests: HTTP method and kind of file → requests; deletes of many files are one POST.
        standing: kind of file → files at the end, for each changed table; only in S3.
        python_cpu, java_cpu: CPU seconds.
    """

    case: Case
    requests: dict[str, float]
    standing: dict[str, float]
    python_cpu: float
    java_cpu: float


CASES = (
    Case("s3", True, 1), Case("s3", False, 1),
    Case("local", True, 1), Case("local", False, 1), Case("local", True, 10),
)  # fmt: skip


def requests(options: Options, results: Path) -> None:
    """Run, print and save."""
    counted = []
    with broker() as (bootstrap, _), _store() as store:
        for tables in sorted({case.tables for case in CASES}):
            layout = _layout(options, tables)
            fill(bootstrap, layout)
            for case in CASES:
                if case.tables == tables:
                    counted.append(_count(options, case, layout, bootstrap, store))
                    CONSOLE.print(str(counted[-1]))
    show("for each batch and changed table", ("case", "requests", "Python CPU s", "Java CPU s"),
         [(str(c.case), sum(c.requests.values()), c.python_cpu, c.java_cpu) for c in counted])  # fmt: skip
    save(results, "requests", {"options": asdict(options), "counted": [asdict(c) for c in counted]}, [])


def _layout(options: Options, tables: int) -> Layout:
    rows, changes = (n * options.changes * tables for n in (options.warm_up, options.batches + 20))
    return Layout(f"requests{tables}", tables=tables, snapshot_rows=rows, changes=changes)


@dataclass(slots=True)
class _Store:
    endpoint: str
    files: S3FileSystem
    counts: Counter[str]

    def standing(self, name: str) -> Counter[str]:
        """Return kind → number of the files in the namespaces whose names begin with `name`."""
        every = self.files.get_file_info(FileSelector(_BUCKET, recursive=True))
        paths = [found.path for found in every if found.path.startswith(f"{_BUCKET}/{name}")]
        return Counter(map(kind_of, filter(re.compile(r"\.").search, paths)))


def kind_of(path: str) -> str:
    """Return which kind of file of a table a path names; `other` for none."""
    return next((kind for kind, pattern in _KINDS if re.search(pattern, path)), "other")


@contextmanager
def _store() -> Iterator[_Store]:
    counts: Counter[str] = Counter()

    def count(handler: MotoRequestHandler, *_: object) -> None:
        counts[f"{handler.command} {kind_of(handler.path)}"] += 1

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    # The server has no hook for requests; it logs each of them.
    MotoRequestHandler.log_request = count  # type: ignore[method-assign, assignment]
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        os.environ |= {"BENCHMARK_S3_KEY": "key", "AWS_EC2_METADATA_DISABLED": "true"}
        files = S3FileSystem(
            access_key="key", secret_key="key", endpoint_override=endpoint, region="us-east-1",
            allow_bucket_creation=True,
        )  # fmt: skip
        files.create_dir(_BUCKET)
        yield _Store(endpoint, files, counts)
    finally:
        server.stop()


def _count(options: Options, case: Case, layout: Layout, bootstrap: str, store: _Store) -> Counted:
    target = Target(cache_folder() / "lakes" / "requests", bootstrap)
    shutil.rmtree(target.folder, ignore_errors=True)
    name = f"{case.store}_{case.changelog}_{case.tables}".lower()
    config = target.config(
        name, layout.prefix, trigger="continuous", changelog=case.changelog,
        max_events=options.changes * case.tables,
    )  # fmt: skip
    text = config.read_text() + _SETTINGS.format(snapshots=options.snapshots)
    if case.store == "s3":
        text = text.replace(str(target.warehouse), f"s3://{_BUCKET}") + _S3.format(endpoint=store.endpoint)
    config.write_text(text)
    log, batches, began = target.log(name), 0, (0.0, 0.0)
    with running_mirror(config, log) as mirror:
        for line in follow_log(log, mirror):
            batches += line.get("event") == "batch"
            if batches == options.warm_up and not any(began):
                began = _cpu(mirror.pid)
                store.counts.clear()
            if batches == options.warm_up + options.batches:
                break
        ended, made = _cpu(mirror.pid), dict(store.counts)
    share = 1 / (options.batches * case.tables)
    standing = store.standing(name) if case.store == "s3" else Counter()
    return Counted(
        case,
        {kind: count * share for kind, count in sorted(made.items())},
        {kind: count / case.tables for kind, count in sorted(standing.items())},
        (ended[0] - began[0]) * share,
        (ended[1] - began[1]) * share,
    )


def _cpu(pid: int) -> tuple[float, float]:
    """Return the CPU seconds of the mirror's own process, which is Python's, and of all others, which are Java's."""
    root = psutil.Process(pid)
    own, others = (
        [process.cpu_times() for process in found] for found in ([root], root.children(recursive=True))
    )
    python, java = (sum(times.user + times.system for times in found) for found in (own, others))
    return python, java
