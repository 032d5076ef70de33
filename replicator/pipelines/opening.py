"""Open the pipelines of a configuration for a command, with a Spark session of its own."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from replicator.config import Config
from replicator.errors import UsageError
from replicator.jvm.spark import own_session, running_session
from replicator.pipelines.files import PipelineFiles, chosen, read_pipelines
from replicator.pipelines.service import Pipelines


def known_pipelines(config: Config, names: Collection[str]) -> PipelineFiles:
    """Return the pipelines of a configuration, among which are the named ones.

    Raises:
        UsageError: there is no pipeline, or no pipeline with that name.
        PipelineError: the file of a named one cannot be used.
    """
    files = read_pipelines(config)
    if not files:
        folder = config.pipelines.folder
        raise UsageError(
            f"there are no pipelines: {folder} has no files NAME.sql or NAME.py",
            f"write a SELECT to {folder / (min(names, default='revenue'))}.sql",
        )
    chosen(files, names, config)
    return files


@contextmanager
def opened_pipelines(config: Config, files: PipelineFiles) -> Iterator[Pipelines]:
    """Start Spark while the block runs.

    Raises:
        UsageError: there is no lake.
    """
    file = config.lake.catalog_file
    if file is not None and not file.exists():
        raise UsageError("there is no lake yet", "start the mirror: replicator run")
    with running_session(config) as spark:
        yield Pipelines.open(config, own_session(spark), files)
