"""Refresh the results of pipelines, compute them again, compare them with a computation as a whole, and drop them."""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from replicator.config import Config
from replicator.model.common import ShowProgress
from replicator.pipelines.checking import Checked, check_when_settled
from replicator.pipelines.files import PipelineFiles, chosen, of_log_tables, read_pipelines
from replicator.pipelines.inputs.log_ends import ReadEnds, ends_reader
from replicator.pipelines.opening import known_pipelines, opened_pipelines
from replicator.pipelines.rounds import refresh_when_reached
from replicator.pipelines.service import Result

_SETTLE_S: Final = 30.0


def refresh_pipelines(
    config: Config,
    names: Collection[str] = (),
    *,
    rebuild: bool = False,
    wait: float = 60.0,
    on_progress: ShowProgress = lambda *_: None,
) -> list[Result]:
    """Bring results to the newest boundary of the source: of the named pipelines and those that they read, or of all.

    Args:
        rebuild: compute the results of the named ones as a whole.
        wait: how long to wait, in seconds, until the mirrors have all changes from before the boundary.

    Raises:
        UsageError: there is no pipeline of a name, or no boundary can be known with this configuration.
        PipelineError: the file of a named one cannot be used.
        LogError, ConnectError, LakeError: what all pipelines need is unavailable.
    """
    files = known_pipelines(config, names)
    read = _reader(config, files)
    with opened_pipelines(config, files) as pipelines:
        again = list(names) if rebuild else []
        return refresh_when_reached(pipelines, read, names, rebuild=again, wait=wait, on_pipeline=on_progress)


def follow_pipelines(
    config: Config,
    names: Collection[str],
    stopping: threading.Event,
    on_results: Callable[[Sequence[Result]], None],
) -> None:
    """Refresh pipelines at the interval of `[pipelines]`, until `stopping` is set.

    Raises:
        UsageError, PipelineError, LogError, ConnectError, LakeError: as `refresh_pipelines`.
    """
    files = known_pipelines(config, names)
    read, every = _reader(config, files), config.pipelines.every
    with opened_pipelines(config, files) as pipelines:
        retry = True
        while not stopping.is_set():
            began = time.monotonic()
            on_results(
                refresh_when_reached(pipelines, read, names, wait=every, retry=retry, stopping=stopping)
            )
            retry = False
            stopping.wait(max(0.0, began + every - time.monotonic()))


def _reader(config: Config, files: PipelineFiles) -> ReadEnds:
    return ends_reader(config, required=not of_log_tables(files, config))


def check_pipelines(
    config: Config,
    names: Collection[str],
    *,
    repair: bool = False,
    on_progress: ShowProgress = lambda *_: None,
) -> list[Checked]:
    """Compute results as a whole, at the boundaries where they are, and compare them row for row.

    With `repair`, results get the rows that they should have.

    Raises:
        UsageError: there is no pipeline of a name, or it has no result.
        PipelineError: it does not fit the tables of the lake.
        Unsettled: an input cannot be read at the boundary.
        MissingRows: others have changed the table, so that it cannot be corrected row by row.
        FencedError, CommitConflict: another process wrote a result meanwhile.
        LakeError: the lake is unavailable.
    """
    files = known_pipelines(config, names)
    wanted = chosen(files, names, config)
    found = []
    with opened_pipelines(config, files) as pipelines:
        for number, pipeline in enumerate(wanted):
            on_progress(f"computing {pipeline.name} as a whole", number, len(wanted))
            found.append(check_when_settled(pipelines, pipeline, repair=repair, wait=_SETTLE_S))
    return found


def drop_result(config: Config, name: str) -> str | None:
    """Drop the result of a pipeline, with its files, and return the name of its table; None if there is none.

    Raises:
        UsageError: there is no pipeline of the name.
        ForeignTable: the table is not one of this mirror.
        LakeUnavailable: the catalog failed.
    """
    files = read_pipelines(config)
    (pipeline,) = chosen(files, [name], config)
    with opened_pipelines(config, files) as pipelines:
        return pipelines.drop(pipeline)
