"""Run the preflight: check that everything the configuration names exists and is suitable for a mirror.

Readers (`*_facts`) query the servers and change nothing; the checks are pure functions from these facts to
results, so they are tested without a server.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from replicator.config import Config, KafkaLog
from replicator.errors import (
    ArchiveError,
    CheckFailed,
    ConnectError,
    LoginRefused,
    LogUnavailable,
    ReplicatorError,
)
from replicator.model.common import counted
from replicator.operations.check.connector import check_connector, check_selection, check_topics, losses
from replicator.operations.check.log_facts import (
    TopicFacts,
    read_connector,
    read_live_topics,
    read_named_topics,
    read_topics,
)
from replicator.operations.check.machine import check_machine
from replicator.operations.check.result import CheckResult, Status, fail, ok, warn, worst
from replicator.operations.check.topics import check_archive, check_log_tables, check_schema_topic
from replicator.pipelines.results import has_pipelines
from replicator.sources.archive.reader import ArchiveReader, find_manifest
from replicator.sources.archive.storage import open_storage
from replicator.sources.connector.connect import without_login
from replicator.sources.kafka.schema_registry import Registry
from replicator.sources.mysql.connection import MySqlServer, connect_to

__all__ = ["CheckResult", "Status", "check_pipelines", "refuse_losses", "refuse_start", "run_checks", "worst"]


_QUICK_S: Final = 3.0


def run_checks(config: Config) -> list[CheckResult]:
    """Run every check, in the order of the report. A server that cannot be reached is a failed check, not an error."""
    areas: tuple[tuple[str, Callable[[Config], Iterable[CheckResult]]], ...] = (
        ("source: reachable", _source),
        ("replicas: reachable", _replicas),
        ("log: reachable", _log),
        ("connector: reachable", _connector),
        ("registry: reachable", _registry),
        ("log tables: topics", _log_tables),
        ("lake: reachable", _lake),
        ("pipelines: files", check_pipelines),
        ("machine", check_machine),
    )
    # Each area may wait for a server that does not respond; none needs another area's result.
    with ThreadPoolExecutor(len(areas)) as pool:
        answers = pool.map(lambda area: _area(area[0], area[1], config), areas)
        return [result for results in answers for result in results]


def refuse_losses(config: Config) -> None:
    """Check the connector, if Kafka Connect is configured, before a mirror relies on its events.

    Raises:
        CheckFailed: it loses data in a way that log.allow_lossy does not permit.
        ConnectError: Kafka Connect cannot be reached.
    """
    if not isinstance(config.log, KafkaLog) or config.log.connect_url is None:
        return
    connector = read_connector(config.log)
    found = {} if connector is None else losses(connector.options, config.log.allow_lossy)
    if found:
        losing = "; ".join(f"{option} = {text}" for option, text in found.items())
        names = ", ".join(f'"{option}"' for option in found)
        raise CheckFailed(
            f"the connector loses data: {losing}",
            f"run: replicator connect, which corrects it; or permit it: allow_lossy = [{names}] in [log]",
        )


def refuse_start(config: Config) -> None:
    """Check what a mirror needs, within a moment, before Spark is used.

    If a server does not answer, the mirror starts, and waits for it.

    Raises:
        ConfigError: the password is missing.
        SourceUnavailable: MySQL refuses the login.
        CheckFailed: the lake's folder cannot be written, or nothing writes events for this mirror.
    """
    from replicator.operations.check.lake import write_problem  # noqa: PLC0415 - heavy

    if (found := write_problem(config.lake)) is not None:
        raise CheckFailed(f"{found.name}: {found.found}", found.next_step)
    if config.source.url is not None:
        _refuse_login(config)
    if isinstance(config.log, KafkaLog) and config.log.connect_url is not None:
        _refuse_silence(config.log)


def _refuse_login(config: Config) -> None:
    if config.source.password is not None:
        config.source.password.reveal()
    try:
        with connect_to(MySqlServer.of(config.source), connect_timeout=_QUICK_S, read_timeout=_QUICK_S):
            pass
    except LoginRefused:
        raise
    except ReplicatorError:
        # It is away; the events of Kafka can be applied nevertheless.
        return


def _refuse_silence(log: KafkaLog) -> None:
    """Refuse to wait for events that nothing writes: there is no connector, and Kafka has no topic of this mirror."""
    try:
        if read_connector(log) is not None or any(
            topic.name.startswith(f"{log.topic_prefix}.") for topic in read_topics(log)
        ):
            return
    except (ConnectError, LogUnavailable):
        return
    if log.archive is None:
        raise CheckFailed(
            f'no connector has the topic prefix "{log.topic_prefix}", and Kafka has no topic of it',
            "run: replicator connect",
        )


def _area(name: str, checks: Callable[[Config], Iterable[CheckResult]], config: Config) -> list[CheckResult]:
    try:
        return list(checks(config))
    except ReplicatorError as error:
        return [fail(name, error.message, error.hint or "check the configuration")]


def _source(config: Config) -> list[CheckResult]:
    if config.source.url is None:
        return []
    from replicator.operations.check.source import check_partitions, check_source, keyless_tables  # noqa: PLC0415
    from replicator.operations.check.source_facts import read_source_facts  # noqa: PLC0415
    from replicator.operations.check.tables import check_columns  # noqa: PLC0415 - heavy, and `run` needs none of it

    facts = read_source_facts(config)
    reached = ok("source: reachable", f"{config.source.url} as {facts.user}")
    keyless = keyless_tables(facts, config)
    topics = _topics(config.log) if keyless and isinstance(config.log, KafkaLog) else ()
    return [
        reached,
        *check_source(facts, config),
        *check_partitions(facts, topics, config),
        *check_columns(facts, config),
    ]


def _replicas(config: Config) -> Iterable[CheckResult]:
    if (limit := config.bootstrap.max_replica_lag) is None:
        return []
    from replicator.operations.check.tables import check_replicas  # noqa: PLC0415 - heavy

    return check_replicas(config, limit)


def _topics(log: KafkaLog) -> tuple[TopicFacts, ...]:
    """Return the existing topics; empty if Kafka does not respond, which the check of the log reports."""
    try:
        return read_topics(log)
    except LogUnavailable:
        return ()


def _lake(config: Config) -> Iterable[CheckResult]:
    from replicator.operations.check.lake import check_lake  # noqa: PLC0415 - heavy, and `run` needs none of it

    return check_lake(config)


def _log(config: Config) -> list[CheckResult]:
    if isinstance(config.log, KafkaLog):
        topics = read_topics(config.log)
        return [
            ok("log: reachable", f"Kafka at {config.log.bootstrap_servers}"),
            *check_topics(topics, config, is_registered=_is_registered(config.log)),
            *check_schema_topic(topics, config.log),
            *_archive(config, config.log),
        ]
    manifest = ArchiveReader(open_storage(config.log.path, config.lake.catalog_options)).manifest
    return [ok("log: reachable", f"{counted(manifest.events, 'event')} in {config.log.path}")]


def _is_registered(log: KafkaLog) -> bool:
    """Return whether a connector has the topic prefix; False if that is unknown, which another check reports."""
    try:
        return log.connect_url is not None and read_connector(log) is not None
    except ReplicatorError:
        return False


def _archive(config: Config, log: KafkaLog) -> list[CheckResult]:
    """Check the archive that Kafka continues, if there is one."""
    if log.archive is None:
        return []
    try:
        manifest = find_manifest(open_storage(log.archive, config.lake.catalog_options))
    except ArchiveError as error:
        return [fail("log: archive", error.message, error.hint or "check log.archive")]
    return check_archive(log.archive, manifest, read_live_topics(log), config)


def _connector(config: Config) -> list[CheckResult]:
    if not isinstance(config.log, KafkaLog):
        return []
    if config.log.connect_url is None:
        return [
            warn(
                "connector: reachable",
                "log.connect_url is not set",
                "set it so that the connector can be checked",
            )
        ]
    connector = read_connector(config.log)
    reached = ok("connector: reachable", f"Kafka Connect at {without_login(config.log.connect_url)}")
    return [reached, *check_connector(connector, config), *check_selection(connector, config)]


def _log_tables(config: Config) -> Iterable[CheckResult]:
    if not config.log_tables or not isinstance(config.log, KafkaLog):
        return []
    return check_log_tables(config.log_tables, read_named_topics(config.log, config.log_tables))


def _registry(config: Config) -> list[CheckResult]:
    if not isinstance(config.log, KafkaLog) or config.log.format != "avro":
        return []
    registry = Registry.of(config.log)
    prefix = config.log.topic_prefix
    own = [name for name in registry.subjects() if name.startswith(f"{prefix}.") and name.endswith("-value")]
    reached = ok("registry: reachable", registry.url)
    if own:
        return [reached, ok("registry: schemas", f"{len(own)} of {prefix}.DATABASE.TABLE-value")]
    reason = f"no subject is named {prefix}.DATABASE.TABLE-value"
    hint = "run: replicator connect; if the connector is already running, check that it uses this registry"
    return [reached, warn("registry: schemas", reason, hint)]


def check_pipelines(config: Config) -> Iterator[CheckResult]:
    """Yield a result for each pipeline whose file cannot be used, or one if all can be. No code is run.

    Raises:
        LakeUnavailable: the catalog cannot be read.
    """
    if not has_pipelines(config):
        return
    # It loads a parser of SQL.
    from replicator.pipelines.status import INVALID, list_pipelines  # noqa: PLC0415

    found = list_pipelines(config)
    broken = [status for status in found if status.state == INVALID]
    for status in broken:
        yield warn(f"pipelines: {status.name}", status.problem or "", status.hint or f"edit {status.file}")
    if not broken:
        yield ok("pipelines: files", counted(len(found), "pipeline"))
