"""Define settings and command lines of a Kafka broker (KRaft, one node) and a Kafka Connect worker."""

import base64
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from replicator.errors import StackError
from replicator.jvm.jars import find_java, kafka_jars
from replicator.operations.stack.process import tail

MAX_MESSAGE = 32 * 1024 * 1024
"""In bytes. A row with large text or binary columns is one message."""

LOG4J = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %c{1}: %m%n
logger.quiet.name = org.apache.kafka.clients
logger.quiet.level = warn
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = warn
# Debezium's CloudEvents converter lacks its Avro library and is not used; if a required plugin is missing, the
# response to the request for it names it.
logger.plugins.name = org.apache.kafka.connect.runtime.isolation.PluginScanner
logger.plugins.level = fatal
"""


def broker_settings(folder: Path, port: int, controller_port: int) -> dict[str, str]:
    """Return the settings of a broker that keeps all events, creates topics on demand and supports transactions."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        # A killed broker can register again only when its session has expired.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "log.dirs": str(folder / "data"),
        "auto.create.topics.enable": "true",
        "num.partitions": "1",
        "log.retention.ms": "-1",
        "log.retention.bytes": "-1",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "message.max.bytes": str(MAX_MESSAGE),
        "replica.fetch.max.bytes": str(MAX_MESSAGE),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def worker_settings(port: int, bootstrap_servers: str, plugins: Iterable[Path]) -> dict[str, str]:
    """Return the settings of a distributed worker. Each connector sets its own converters."""
    converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "replicator-connect",
        "key.converter": converter,
        "value.converter": converter,
        "config.storage.topic": "_connect_configs",
        "config.storage.replication.factor": "1",
        "offset.storage.topic": "_connect_offsets",
        "offset.storage.replication.factor": "1",
        "offset.storage.partitions": "1",
        "status.storage.topic": "_connect_status",
        "status.storage.replication.factor": "1",
        "status.storage.partitions": "1",
        "offset.flush.interval.ms": "500",
        # A killed worker gets its tasks back as soon as it restarts, not five minutes later.
        "scheduled.rebalance.max.delay.ms": "0",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "2000",
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "plugin.path": ",".join(map(str, plugins)),
        "plugin.discovery": "service_load",
        "producer.max.request.size": str(MAX_MESSAGE),
    }


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """Write a Java properties file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items())
    )


def _java(folder: Path, heap: str, main: str, *arguments: str, cache: Path | None) -> list[str]:
    """Return the command of a Java program of the Kafka distribution, with a small heap and a quick start."""
    log4j = folder / "log4j2.properties"
    log4j.parent.mkdir(parents=True, exist_ok=True)
    log4j.write_text(LOG4J)
    return [
        str(find_java()),
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-Xshare:auto",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dlog4j2.configurationFile={log4j}",
        "-cp",
        ":".join(map(str, kafka_jars(cache))),
        main,
        *arguments,
    ]


def format_storage(folder: Path, properties: Path, log: Path, cache: Path | None) -> None:
    """Create the broker's data folder, once. Raises StackError with the end of the log if Kafka fails."""
    if (folder / "data" / "meta.properties").exists():
        return
    cluster = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
    # The tool would parse a value with a leading dash as an option.
    cluster = "r" + cluster[1:]
    command = _java(
        folder, "128m", "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties), cache=cache
    )
    with log.open("a") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise StackError("Kafka could not create its data folder", f"its log {log} ends with:\n{tail(log)}")


def broker_command(folder: Path, properties: Path, cache: Path | None) -> list[str]:
    """Return the command line of the broker."""
    return _java(folder, "512m", "kafka.Kafka", str(properties), cache=cache)


def worker_command(folder: Path, properties: Path, cache: Path | None) -> list[str]:
    """Return the command line of the Connect worker."""
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    return _java(folder, "768m", main, str(properties), cache=cache)


def broker_answers(bootstrap_servers: str) -> bool:
    """Return whether the broker can list its topics."""
    client = AdminClient(
        {"bootstrap.servers": bootstrap_servers, "log_level": 0, "socket.timeout.ms": 2000}, logger=None
    )
    try:
        client.list_topics(timeout=2)
    except KafkaException:
        return False
    return True
