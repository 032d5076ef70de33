"""Let Flink keep one Iceberg table up to date: small commits in upsert mode, with Iceberg's own maintenance."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks.engine import Target
from benchmarks.following import Stretch, follow_log, running
from benchmarks.load import Sender, change_records
from benchmarks.peers import flink
from benchmarks.workload import Layout
from replicator.config import MaintenanceConfig

_INTERVAL_MS = 500
"""Time from the end of a checkpoint to the next one. Flink's sink commits after each checkpoint."""
_FILLED = "changelog"
"""The mode in which the table is filled: it writes no delete for a row of the snapshot."""

Record = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Commit:
    """A batch that is visible.

    Attributes:
        at: when it was, in seconds of the system's clock.
        snapshots: number of snapshots that have it.
        maintenance: seconds of the maintenance that ended meanwhile.
    """

    at: float
    snapshots: int
    maintenance: float


class FlinkTable:
    """A table of a Flink job. The events of a commit are sent once the previous commit is visible.

    With `one_job`, the job that writes also maintains the table. Otherwise a second job does so in the same process: a
    file that is rewritten delays the checkpoints of its job, and so the commits.
    """

    def __init__(
        self, target: Target, changes: Layout, per_commit: int, *, maintained: bool, one_job: bool
    ) -> None:
        self._target, self._layout, self._per_commit = target, changes, per_commit
        self._maintenance = "none" if not maintained else "same-job" if one_job else "own-job"
        self._records = change_records(changes)
        self._sent = changes.snapshot_rows
        self.namespace = flink.namespace(_FILLED, 1)
        self.config = target.config("probe", changes.prefix)

    def fill(self) -> None:
        """Fill the table with a separate job whose checkpoints are far apart, as an operator would."""
        flink.drain(self._target, self._layout, _FILLED, warm_runs=0)

    def apply(self, commits: int, log: Path) -> Stretch:
        """Run the job for a number of commits."""
        sender = Sender(self._target.bootstrap)
        sent_at: list[float] = []
        done: list[_Commit] = []
        with running(flink.command(self._target, "Age", self._settings()), log) as job:
            lines = follow_log(log, job)
            batch = self._next_batch()
            while len(done) < commits:
                sent_at.append(self._send(sender, batch))
                # Flink works while the next events are written as text.
                batch = self._next_batch() if len(sent_at) < commits else []
                done.append(self._await_commit(lines))
        seconds = [max(0.0, commit.at - sent) for commit, sent in zip(done, sent_at, strict=True)]
        return Stretch(
            seconds,
            sum(commit.snapshots for commit in done),
            sum(commit.maintenance for commit in done),
            alternating=False,
        )

    def _settings(self) -> dict[str, str]:
        ours = MaintenanceConfig()
        return {
            "bootstrap": self._target.bootstrap,
            "topic": self._layout.topic(0),
            "offset": str(self._sent),
            "schemas": "false",
            "uri": self._target.uri,
            "warehouse": str(self._target.warehouse),
            "namespace": self.namespace,
            "table": self._layout.table(0),
            "interval": str(_INTERVAL_MS),
            "maintenance": self._maintenance,
            "merge-files": str(ours.merge_files),
            "target-file-size": str(ours.target_file_size),
            "slice-bytes": str(ours.slice_bytes),
            "max-snapshots": str(ours.max_snapshots),
        }

    def _next_batch(self) -> list[Record]:
        return list(islice(self._records, self._per_commit))

    def _send(self, sender: Sender, batch: Sequence[Record]) -> float:
        """Send events; return when the broker had all of them."""
        for key, value in batch:
            sender.send(self._layout.topic(0), 0, key, value)
        sender.finish()
        self._sent += len(batch)
        return time.time()

    def _await_commit(self, lines: Iterator[dict[str, object]]) -> _Commit:
        """Wait until all events of a batch are in the table. A checkpoint may divide them into two snapshots."""
        visible, snapshots, maintenance = 0, 0, 0.0
        for line in lines:
            if line["event"] == "maintained":
                maintenance += float(str(line["seconds"]))
            elif line["operation"] != "replace":
                visible += int(str(line["events"]))
                snapshots += 1
                if visible == self._per_commit:
                    return _Commit(float(str(line["at"])), snapshots, maintenance)
        raise RuntimeError("the log of a running job has no end")
