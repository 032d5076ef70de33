"""Refresh the results of pipelines, compute them again, compare them with a computation as a whole, and drop them."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from replicator.config import Config
from replicator.errors import UsageError
from replicator.jvm.spark import own_session, running_session
from replicator.pipelines.checking import Checked, check_history, check_result
from replicator.pipelines.files import PipelineFiles, chosen, read_pipelines
from replicator.pipelines.history.definition import History
from replicator.pipelines.inputs.log_ends import ends_reader
from replicator.pipelines.rounds import refresh_when_reached
from replicator.pipelines.service import Pipelines, Result

ShowProgress = Callable[[str, int, int], None]


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
    files = _checked(config, names)
    read = ends_reader(config)
    with _opened(config, files) as pipelines:
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
    files = _checked(config, names)
    read, every = ends_reader(config), config.pipelines.every
    with _opened(config, files) as pipelines:
        retry = True
        while not stopping.is_set():
            began = time.monotonic()
            on_results(
                refresh_when_reached(pipelines, read, names, wait=every, retry=retry, stopping=stopping)
            )
            retry = False
            stopping.wait(max(0.0, began + every - time.monotonic()))


def check_pipelines(
    config: Config, names: Collection[str], on_progress: ShowProgress = lambda *_: None
) -> list[Checked]:
    """Compute results as a whole, at the boundaries where they are, and compare them row for row.

    Raises:
        UsageError: there is no pipeline of a name, or it has no result.
        PipelineError: it does not fit the tables of the lake.
        Unsettled: an input cannot be read at the boundary.
        LakeError: the lake is unavailable.
    """
    files = _checked(config, names)
    wanted = files.chosen(names)
    found = []
    with _opened(config, files) as pipelines:
        for number, pipeline in enumerate(wanted):
            on_progress(f"computing {pipeline.name} as a whole", number, len(wanted))
            if isinstance(pipeline, History):
                found.append(check_history(pipelines, pipeline))
            else:
                found.append(check_result(pipelines, pipeline))
    return found


def drop_result(config: Config, name: str) -> str | None:
    """Drop the result of a pipeline, with its files, and return the name of its table; None if there is none.

    Raises:
        UsageError: there is no pipeline of the name.
        ForeignTable: the table is not one of this mirror.
        LakeUnavailable: the catalog failed.
    """
    files = read_pipelines(config)
    chosen(files, [name], config)
    with _opened(config, files) as pipelines:
        return pipelines.drop(files.chosen([name])[0])


def _checked(config: Config, names: Collection[str]) -> PipelineFiles:
    files = read_pipelines(config)
    if not files:
        folder = config.pipelines.folder
        raise UsageError(
            f"there are no pipelines: {folder} has no files NAME.sql",
            f"write a SELECT to {folder / (min(names, default='revenue'))}.sql",
        )
    chosen(files, names, config)
    return files


@contextmanager
def _opened(config: Config, files: PipelineFiles) -> Iterator[Pipelines]:
    file = config.lake.catalog_file
    if file is not None and not file.exists():
        raise UsageError("there is no lake yet", "start the mirror: replicator run")
    with running_session(config) as spark:
        yield Pipelines.open(config, own_session(spark), files)
