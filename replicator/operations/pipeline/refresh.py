"""Refresh the results of pipelines, compute them again, compare them with a computation as a whole, and drop them."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from replicator.config import Config
from replicator.errors import Unsettled, UsageError
from replicator.jvm.spark import own_session, running_session
from replicator.pipelines.checking import Checked, check_result
from replicator.pipelines.files import chosen, definitions_in
from replicator.pipelines.inputs.log_ends import LogEnds, ReadEnds, ends_reader
from replicator.pipelines.query.definition import Definition
from replicator.pipelines.service import NotRefreshed, Pipelines, Result

ShowProgress = Callable[[str, int, int], None]
_POLL_S: Final = 1.0


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
        PipelineError: a file cannot be used, or pipelines read each other in a circle.
        LogError, ConnectError, LakeError: what all pipelines need is unavailable.
    """
    definitions = _checked(config, names)
    read = ends_reader(config)
    with _opened(config, definitions) as pipelines:
        again = [d.name for d in chosen(definitions, names, config)] if rebuild else []
        return _refreshed(pipelines, read, names, again, wait, on_progress)


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
    definitions = _checked(config, names)
    read, every = ends_reader(config), config.pipelines.every
    with _opened(config, definitions) as pipelines:
        retry = True
        while not stopping.is_set():
            began = time.monotonic()
            on_results(_refreshed(pipelines, read, names, (), every, retry=retry))
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
    definitions = _checked(config, names)
    wanted = chosen(definitions, names, config)
    found = []
    with _opened(config, definitions) as pipelines:
        for number, definition in enumerate(wanted):
            on_progress(f"computing {definition.name} as a whole", number, len(wanted))
            found.append(check_result(pipelines, definition))
    return found


def drop_result(config: Config, name: str) -> str | None:
    """Drop the result of a pipeline, with its files, and return the name of its table; None if there is none.

    Raises:
        UsageError: there is no pipeline of the name.
        ForeignTable: the table is not one of this mirror.
        LakeUnavailable: the catalog failed.
    """
    definitions = definitions_in(config)
    (definition,) = chosen(definitions, [name], config)
    with _opened(config, definitions) as pipelines:
        return pipelines.drop(definition)


def _checked(config: Config, names: Collection[str]) -> Sequence[Definition]:
    definitions = definitions_in(config)
    if not definitions:
        folder = config.pipelines.folder
        raise UsageError(
            f"there are no pipelines: {folder} has no files NAME.sql",
            f"write a SELECT to {folder / (min(names, default='revenue'))}.sql",
        )
    chosen(definitions, names, config)
    return definitions


@contextmanager
def _opened(config: Config, definitions: Sequence[Definition]) -> Iterator[Pipelines]:
    file = config.lake.catalog_file
    if file is not None and not file.exists():
        raise UsageError("there is no lake yet", "start the mirror: replicator run")
    with running_session(config) as spark:
        yield Pipelines.open(config, own_session(spark), definitions)


def _refreshed(
    pipelines: Pipelines,
    read: ReadEnds,
    names: Collection[str],
    rebuild: Collection[str],
    wait: float,
    on_progress: ShowProgress = lambda *_: None,
    *,
    retry: bool = True,
) -> list[Result]:
    """Refresh pipelines; try those again that wait.

    The mirrors reach a boundary in time only if it stays. After half of the time another one is taken: changes that
    cannot be undone may be after the first one.
    """
    deadline, half = time.monotonic() + wait, time.monotonic() + wait / 2
    ends = _ends(read, deadline)
    results = pipelines.refresh(ends, names, rebuild=rebuild, retry=retry, on_pipeline=on_progress)
    while _waiting(results) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        if time.monotonic() > half:
            ends, half = _ends(read, deadline), deadline
        built = {result.pipeline for result in results if not isinstance(result, NotRefreshed)}
        again = [name for name in rebuild if name not in built]
        before = {result.pipeline: result for result in results}
        results = pipelines.refresh(ends, names, rebuild=again, retry=retry, on_pipeline=on_progress)
        results = [_more(before[result.pipeline], result) for result in results]
    return results


def _more(before: Result, now: Result) -> Result:
    """Return what to report of two refreshes, the second of which may have found nothing to do."""
    if isinstance(before, NotRefreshed) or isinstance(now, NotRefreshed):
        return now
    return before if now.outcome == "same" else now


def _waiting(results: Sequence[Result]) -> bool:
    return any(isinstance(result, NotRefreshed) and result.waits for result in results)


def _ends(read: ReadEnds, deadline: float) -> LogEnds:
    while True:
        try:
            return read()
        except Unsettled:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)
