"""Count what a batch of few changes does: requests to an object store, and CPU time of Python and of Java.

The store is an S3 server in this process (moto), with Iceberg's `S3FileIO` and a JDBC catalog, so the mirror reads and
writes `metadata.json`; a REST catalog does that itself. Java's code is still new, so its CPU time is too large.
"""

import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from moto.moto_server.werkzeug_app import MotoRequestHandler
from moto.server import ThreadedMotoServer
from pyarrow.fs import FileSelector, S3FileSystem

from benchmarks.broker import broker, cache_folder
from benchmarks.engine import Target
from benchmarks.events import EventWriter
from benchmarks.following import follow_log, running_mirror
from benchmarks.load import Sender, fill
from benchmarks.report import CONSOLE, save, show
from benchmarks.workload import UPDATE, Change, Layout, row

_BUCKET = "lake"
_ROWS = 10_000
"""Rows of each table."""
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
    """What to run.

    Attributes:
        changes: changes of a table in each batch.
        warm_up: batches before the measured ones, more than the metadata.json files that a table keeps.
        batches: measured batches.
        snapshots: `maintenance.max_snapshots`, small so that snapshots are deleted as fast as they are made.
    """

    changes: int = 100
    warm_up: int = 60
    batches: int = 40
    snapshots: int = 20


@dataclass(frozen=True, slots=True)
class Case:
    """A mirror of one table, with or without a changelog."""

    changelog: bool

    @property
    def namespace(self) -> str:
        """The namespace of the mirror; none begins with the name of the other."""
        return "both" if self.changelog else "mirror_only"


@dataclass(frozen=True, slots=True)
class Counted:
    """One case, for each batch.

    Attributes:
        requests: HTTP method and kind of file → requests; deletes of many files are one POST.
        standing: kind of file → files at the end.
        python_cpu, java_cpu: CPU seconds.
    """

    case: Case
    requests: dict[str, float]
    standing: dict[str, int]
    python_cpu: float
    java_cpu: float


CASES = (Case(changelog=True), Case(changelog=False))


def requests(options: Options, results: Path) -> None:
    """Run, print and save."""
    counted = []
    with broker() as (bootstrap, _), _store() as store:
        for case in CASES:
            counted.append(_count(options, case, bootstrap, store))
            CONSOLE.print(str(counted[-1]))
    show("for each batch", ("case", "requests", "Python CPU s", "Java CPU s"),
         [(str(c.case), sum(c.requests.values()), c.python_cpu, c.java_cpu) for c in counted])  # fmt: skip
    save(results, "requests", {"options": asdict(options), "counted": [asdict(c) for c in counted]}, [])


@dataclass(slots=True)
class _Source:
    """The log of the table, and the version of each row."""

    layout: Layout
    bootstrap: str
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    versions: Counter[int] = field(default_factory=Counter)
    position: int = 0

    def write_round(self, changes: int) -> None:
        """Update rows that are chosen uniformly."""
        texts, sender = EventWriter(self.layout), Sender(self.bootstrap)
        for key in self.chance.sample(range(1, _ROWS + 1), changes):
            before, after = row(key, self.versions[key]), row(key, self.versions[key] + 1)
            self.versions[key] += 1
            self.position += 1
            change = Change(UPDATE, key, self.position // 100, 1, 1_000 + self.position * 300)
            value = texts.value(0, change, before, after)
            sender.send(self.layout.topic(0), 0, texts.key(0, key), value)
        sender.finish()


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


def _count(options: Options, case: Case, bootstrap: str, store: _Store) -> Counted:
    layout = Layout("requests", snapshot_rows=_ROWS, changes=0)
    fill(bootstrap, layout)
    source = _Source(layout, bootstrap)
    target = Target(cache_folder() / "lakes" / "requests", bootstrap)
    shutil.rmtree(target.folder, ignore_errors=True)
    config, log = _config(options, case, target, layout, store), target.log(case.namespace)
    with running_mirror(config, log) as mirror:
        batches = (line for line in follow_log(log, mirror) if line.get("event") == "batch")
        _take(batches, layout.snapshot_rows)
        for _ in range(options.warm_up):
            source.write_round(options.changes)
            _take(batches, options.changes)
        began, commits = _cpu(mirror.pid), 0
        store.counts.clear()
        for _ in range(options.batches):
            source.write_round(options.changes)
            commits += _take(batches, options.changes)
        ended, made = _cpu(mirror.pid), dict(store.counts)
    standing = store.standing(case.namespace)
    return Counted(
        case,
        {kind: count / commits for kind, count in sorted(made.items())},
        dict(sorted(standing.items())),
        (ended[0] - began[0]) / commits,
        (ended[1] - began[1]) / commits,
    )


def _config(options: Options, case: Case, target: Target, layout: Layout, store: _Store) -> Path:
    config = target.config(case.namespace, layout.prefix, trigger="continuous", changelog=case.changelog)
    text = config.read_text() + _SETTINGS.format(snapshots=options.snapshots)
    config.write_text(
        text.replace(str(target.warehouse), f"s3://{_BUCKET}") + _S3.format(endpoint=store.endpoint)
    )
    return config


def _take(batches: Iterator[dict[str, object]], events: int) -> int:
    """Wait for the batches that have this many events. Return the number of those that committed."""
    commits = 0
    while events > 0:
        batch = next(batches)
        events -= int(str(batch["events"]))
        commits += int(str(batch["tables"]))
    return commits


def _cpu(pid: int) -> tuple[float, float]:
    """Return the CPU seconds of the mirror's own process, which is Python's, and of all others, which are Java's."""
    root = psutil.Process(pid)
    own, others = (
        [process.cpu_times() for process in found] for found in ([root], root.children(recursive=True))
    )
    python, java = (sum(times.user + times.system for times in found) for found in (own, others))
    return python, java
