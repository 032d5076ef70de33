"""Run the demo: replay a recording of a real MySQL database into a local lake and compare it with its source."""

import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from replicator.config import Config, load
from replicator.errors import UsageError
from replicator.operations.demo.compare import DemoResult, RecordedSource, compare_lake
from replicator.runner.process import replay
from replicator.sources.archive.reader import ArchiveReader
from replicator.telemetry import setup_logging

RECORDING: Final = Path(__file__).parent / "recording"
"""The bundled event archive, with the source's checksums in source.json."""

CONFIG_NAME: Final = "replicator.toml"
LOG_NAME: Final = "demo.log"
_HEADER: Final = "# Written by `replicator demo`; the next demo replaces this folder's content.\n"
# All events in one batch: a batch costs each table about as much as its events do.
_MAX_EVENTS: Final = 100_000
PIPELINE: Final = "revenue"
_PIPELINE: Final = """-- key: tier, currency
-- description: Revenue by tier of customers
SELECT c.tier, o.currency, sum(o.total) AS revenue, count(*) AS orders
FROM shop.orders o JOIN shop.customers c ON c.id = o.customer_id
WHERE o.status <> 'cancelled'
GROUP BY c.tier, o.currency
"""

ProgressBar = Callable[[str], AbstractContextManager[Callable[[str, int, int], None]]]
"""Opens a progress bar with a text; see `replicator.cli.output`."""


def run_demo(directory: Path, progress_bar: ProgressBar) -> tuple[DemoResult, RecordedSource]:
    """Replay the bundled recording into a lake in `directory`. Return the comparison, and the source.

    The folder also contains a configuration, so that `replicator status -c` works there, and the engine's log.

    Raises:
        UsageError: `directory` contains something other than an earlier demo.
        ReplicatorError: the replay failed.
    """
    folder = directory.absolute()
    config = prepare(folder, RECORDING)
    source = RecordedSource.load(RECORDING)
    started = time.monotonic()
    with (folder / LOG_NAME).open("w", encoding="utf-8") as log:
        setup_logging(log)
        try:
            events = _replay(config, progress_bar)
        finally:
            setup_logging()
    replayed = time.monotonic() - started
    with progress_bar("comparing every table with the source"):
        return compare_lake(config, source, folder=folder, events=events, seconds=replayed), source


def prepare(folder: Path, recording: Path) -> Config:
    """Empty an earlier demo's folder, or create a new one, with a configuration for `recording`."""
    file = folder / CONFIG_NAME
    if folder.exists() and any(folder.iterdir()):
        if not file.exists() or not file.read_text(encoding="utf-8").startswith(_HEADER):
            raise UsageError(
                f"{folder} is not empty and not a demo's folder", "Give another folder with --dir."
            )
        for name in ("lake", ".replicator"):
            shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "lake").mkdir(parents=True, exist_ok=True)
    file.write_text(_config_text(recording), encoding="utf-8")
    (folder / "pipelines").mkdir(exist_ok=True)
    (folder / "pipelines" / f"{PIPELINE}.sql").write_text(_PIPELINE, encoding="utf-8")
    return load(file)


def _config_text(recording: Path) -> str:
    path = str(recording).replace("\\", "\\\\").replace('"', '\\"')
    return f"""{_HEADER}
[mirror]
name = "demo"

[source]
tables = ["shop.*"]

[log]
kind = "archive"
path = "{path}"

[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:lake/catalog.db"
warehouse = "lake"
namespace = "shop"

[apply]
max_events = {_MAX_EVENTS}
"""


def _replay(config: Config, progress_bar: ProgressBar) -> int:
    """Replay with a progress bar, and the pipeline; return the number of events. KeyboardInterrupt: it was stopped."""
    total = sum(
        entry.count
        for (topic, _), entry in ArchiveReader(RECORDING).manifest.partitions.items()
        if topic.count(".") >= 2
    )
    reached = 0
    with progress_bar("starting Spark") as show:

        def report(done: int, of: int) -> None:
            nonlocal reached, total
            reached, total = done, of
            show("replaying", done, of)

        replay(config, on_progress=report)
    if reached < total:
        raise KeyboardInterrupt
    return total
