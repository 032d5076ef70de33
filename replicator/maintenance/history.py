"""Read from a table's own metadata which maintenance it had. Pure: no access to the lake.

A rewrite writes its step to the summary of its snapshot. The deletion of snapshots makes no snapshot: it writes a
table property in the same commit, which also has the steps whose snapshots it may delete. So no commit is made only to
record maintenance.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from replicator.maintenance.plan import DATA_STEPS, DELETE_STEPS, MergedFiles, Step
from replicator.model.recorded import Part, reading, record_in

STEP_KEY: Final = "replicator.maintenance"
"""Key of the step in the summary of a snapshot that maintenance made."""
MAINTAINED_KEY: Final = "replicator.maintained"
"""Table property with the last run of each step, as of the last deletion of snapshots."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StepRun(Part):
    """The last run of a step.

    Attributes:
        ms: when it committed, milliseconds since the epoch.
        data_files, delete_files: number of files of the table after it.
    """

    WHAT = "the record of maintenance"
    ms: int
    data_files: int
    delete_files: int


StepRuns = Mapping[Step, StepRun]
"""Step → its last run, for the steps that are known to have run."""


def step_runs(
    snapshots: Iterable[tuple[int, Mapping[str, str]]], recorded: str | None
) -> dict[Step, StepRun]:
    """Return the last run of each step.

    `snapshots` are the time and the summary of each snapshot, `recorded` is the property `MAINTAINED_KEY`. Steps that
    only another version of the engine knows are ignored.

    Raises:
        ValueError: the property is malformed.
    """
    runs = _from_json(recorded)
    for ms, summary in snapshots:
        step = _step(summary.get(STEP_KEY))
        if step is not None and (step not in runs or ms > runs[step].ms):
            runs[step] = StepRun(ms, _total(summary, "data-files"), _total(summary, "delete-files"))
    return runs


def runs_to_json(runs: StepRuns) -> str:
    """Return the value of the property `MAINTAINED_KEY`."""
    steps = {str(step): run.values() for step, run in sorted(runs.items())}
    return json.dumps({"version": _VERSION, "steps": steps}, separators=(",", ":"))


def merged_files(runs: StepRuns) -> MergedFiles:
    """Return the number of files that the last merge left, or a later step; 0 if none is known.

    Another step may drop files too: a merge of data files drops delete files that apply to none any more.
    """
    data = max((runs[step].ms for step in DATA_STEPS if step in runs), default=None)
    deletes = max((runs[step].ms for step in DELETE_STEPS if step in runs), default=None)
    return MergedFiles(
        0 if data is None else min(run.data_files for run in runs.values() if run.ms >= data),
        0 if deletes is None else min(run.delete_files for run in runs.values() if run.ms >= deletes),
    )


def _from_json(text: str | None) -> dict[Step, StepRun]:
    with reading("the record of maintenance"):
        value = {} if text is None else record_in(text)
        if value.get("version") != _VERSION:
            return {}
        return {
            step: StepRun.of_values(run)
            for name, run in value["steps"].items()
            if (step := _step(name)) is not None
        }


def _step(name: str | None) -> Step | None:
    return Step(name) if name in set(Step) else None


def _total(summary: Mapping[str, str], files: str) -> int:
    return int(summary.get(f"total-{files}") or 0)
