"""Delete a tag from all lake tables: the running mirror does so, or this process if the mirror does not run."""

import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

from replicator.config import Config
from replicator.errors import CommitConflict, UsageError
from replicator.lake.reading.reader import open_catalog
from replicator.lake.reading.tags import read_tag_records
from replicator.model.common import ShowProgress, retried
from replicator.model.tags import TagRecord, TagState
from replicator.pipelines.results import result_tables
from replicator.runner.lock import only_one

_POLL_S: Final = 0.5
_ATTEMPTS: Final = 4


def delete_tag(
    config: Config, name: str, seconds: float, on_progress: ShowProgress = lambda *_: None
) -> bool:
    """Delete a tag. Return whether it is gone; otherwise the running mirror still deletes it after `seconds`.

    Raises:
        UsageError: the mirror has no such tag.
        LakeError: the catalog failed; the same command continues.
    """
    with open_catalog(config.lake) as catalog:
        record = next((tag for tag in read_tag_records(catalog, config.lake) if tag.name == name), None)
        if record is None:
            raise UsageError(f"there is no tag {name}", "list the tags: replicator tag")
        record = replace(record, state=TagState.DELETING)
        catalog.update_namespace_properties(config.lake.ops_namespace, updates={record.key: record.to_json()})
    with ExitStack() as stack:
        try:
            stack.enter_context(only_one(config))
        except UsageError:
            # The mirror runs on this machine.
            return _is_forgotten(config, name, seconds, on_progress)
        _remove(config, record, on_progress)
    return True


def _is_forgotten(config: Config, name: str, seconds: float, on_progress: ShowProgress) -> bool:
    """Wait for the mirror; return whether it has deleted the tag."""
    deadline = time.monotonic() + seconds
    with open_catalog(config.lake) as catalog:
        while any(tag.name == name for tag in read_tag_records(catalog, config.lake)):
            if time.monotonic() >= deadline:
                return False
            on_progress("waiting for the mirror", 0, 1)
            time.sleep(_POLL_S)
    return True


def _remove(config: Config, record: TagRecord, on_progress: ShowProgress) -> None:
    # Importing Spark takes a second, which a command that only waits for the mirror does not need.
    from replicator.jvm.spark import running_session  # noqa: PLC0415
    from replicator.lake.catalog.tables import Lake  # noqa: PLC0415
    from replicator.lake.tags import TagStore  # noqa: PLC0415

    on_progress("starting Spark", 0, 1)
    with running_session(config) as spark:
        store = TagStore(Lake(spark), config.lake)
        tables = [*store.tables(), *result_tables(config, changelogs=False)]
        for done, table in enumerate(tables):
            on_progress(f"{table[0]}.{table[1]}", done, len(tables))
            # Another program may commit to the table meanwhile.
            remove = partial(store.remove, record.name, [table], float("inf"))
            retried(remove, CommitConflict, attempts=_ATTEMPTS)
        store.forget(record)
