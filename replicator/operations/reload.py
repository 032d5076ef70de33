"""Let the mirror that runs on this machine reload its configuration file, and wait until it has done so."""

import os
import signal
import time
from pathlib import Path
from typing import Final

from replicator.config import Config, KafkaLog
from replicator.errors import CheckFailed, UsageError
from replicator.runner.run_record import ReloadOutcome, RunRecord, read_record
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.settings import differing_selection

_POLL_S: Final = 0.2


def reload(config: Config, file: Path, seconds: float) -> ReloadOutcome:
    """Let the running mirror read `file`, which has `config`, again. Return how that ended, after `seconds` at most.

    Raises:
        UsageError: no mirror of this configuration runs on this machine, or it runs with another file.
        CheckFailed: the connector does not read the tables of the configuration, the mirror refused the
            configuration, or it has not answered in time.
        ConnectError: Kafka Connect cannot be reached.
    """
    if not isinstance(config.log, KafkaLog):
        raise UsageError(
            "a mirror of an archive ends by itself, so there is nothing to reload",
            "run: replicator run, which reads the configuration",
        )
    running = _running(config, file)
    check_connector(config, running.pid)
    began = time.monotonic()
    _signal(running.pid)
    outcome = _await(config, running, began, seconds)
    if outcome.refused is not None:
        raise CheckFailed(f"the mirror continues as before: {outcome.refused}", outcome.hint)
    return outcome


def check_connector(config: Config, pid: int) -> None:
    """Check that the connector reads the tables of the configuration, if `replicator connect` registered it.

    A table that the mirror reads before the connector does would lack the changes in between.

    Raises:
        CheckFailed: it reads other tables, or with other keys.
        ConnectError: Kafka Connect cannot be reached.
    """
    log = config.log
    if not isinstance(log, KafkaLog) or log.connect_url is None:
        return
    connector = KafkaConnect(log.connect_url).find(log.topic_prefix)
    if connector is None or connector.name != config.mirror.name:
        return
    if differing := differing_selection(config, connector.options):
        raise CheckFailed(
            f"the connector has not the tables of this configuration: {', '.join(differing)} differ",
            "run: replicator connect, and then reload; or send SIGHUP to process "
            f"{pid}, which reloads without this check",
        )


def _running(config: Config, file: Path) -> RunRecord:
    record = read_record(config)
    if record is None or not record.is_alive:
        raise UsageError(
            f"`replicator run` does not run mirror {config.mirror.name!r} on this machine: {config.mirror.state_dir}"
            " has no record of it",
            "start it, which reads the configuration; if you changed mirror.name or mirror.state_dir, restart it",
        )
    if not _is_same(file, Path(record.file)):
        raise UsageError(
            f"the mirror runs with another configuration file: {record.file}", f"reload -c {record.file}"
        )
    return record


def _is_same(file: Path, other: Path) -> bool:
    try:
        return file.samefile(other)
    except OSError:
        return False


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGHUP)
    except ProcessLookupError:
        raise _ended(pid) from None
    except PermissionError as error:
        raise UsageError(
            f"process {pid} belongs to another user", "reload as the user that runs the mirror"
        ) from error


def _await(config: Config, running: RunRecord, began: float, seconds: float) -> ReloadOutcome:
    """Wait for the outcome of a reload that read the file at `began` or later."""
    deadline = began + seconds
    while True:
        # In this order: a process that ends now may have answered before.
        alive, record = running.is_alive, read_record(config)
        if record is not None and record.pid == running.pid:
            for outcome in record.reloads:
                if outcome.began >= began:
                    return outcome
        if not alive:
            raise _ended(running.pid)
        if time.monotonic() >= deadline:
            raise CheckFailed(
                f"the mirror has not answered in {seconds:g} s; it may still reload",
                "see its log; a reload waits for the batch under way",
            )
        time.sleep(_POLL_S)


def _ended(pid: int) -> CheckFailed:
    return CheckFailed(
        f"process {pid} ended before it had reloaded", "see its log, and start the mirror again"
    )
