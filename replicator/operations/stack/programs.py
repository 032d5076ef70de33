"""The programs of a stack on this machine: where they come from, how they are run, and whether they respond."""

from collections.abc import Collection
from pathlib import Path

import requests

from replicator.jvm.jars import converter_plugin_dir, debezium_plugin_dir, find_java, kafka_jars, registry_jar
from replicator.operations.stack import kafka, mysql
from replicator.operations.stack.mysql_program import MySqlProgram, find_mysqld
from replicator.operations.stack.process import Report, accepts
from replicator.operations.stack.state import Part, StackState, registry_api


def responds(part: Part, state: StackState) -> bool:
    """Return whether a part responds on its port, as its clients need it to."""
    port = state.ports[part]
    if not accepts(port):
        return False
    match part:
        case "mysql":
            return mysql.answers(port, state.root_password)
        case "kafka":
            return kafka.broker_answers(f"127.0.0.1:{port}")
        case "connect":
            # A worker lists its connectors once it has joined its group.
            return _lists(f"http://127.0.0.1:{port}/connectors")
        case "registry":
            return _lists(f"{registry_api(port)}/subjects")


def _lists(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.RequestException:
        return False


class Programs:
    """The programs of the parts, whose settings and data are below `folder`.

    Methods raise StackError, JavaMissing if no usable Java is found, or ReplicatorError if a download fails.
    """

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self._folder = folder
        self._cache = cache

    def fetch(self, parts: Collection[Part], report: Report) -> None:
        """Download the Java programs of `parts` that are not yet in the cache."""
        if set(parts) != {"mysql"}:
            find_java()
            report("fetching what is not yet in the cache")
        if {"kafka", "connect"} & set(parts):
            kafka_jars(self._cache)
            self._plugins()
        if "registry" in parts:
            registry_jar(self._cache)

    def find_mysql(self, choice: str, last: str, report: Report) -> MySqlProgram:
        """Return the MySQL server to run; see `find_mysqld`."""
        return find_mysqld(choice, last=last, cache=self._cache, report=report)

    def java_command(self, part: Part, state: StackState, log: Path) -> list[str]:
        """Write the settings of a part other than MySQL, and return its command line."""
        match part:
            case "kafka":
                return self._kafka(state, log)
            case "connect":
                return self._connect(state)
            case "registry":
                return self._registry(state.ports["registry"])
        raise ValueError(part)

    def responds(self, part: Part, state: StackState) -> bool:
        """Return whether a part responds on its port, as its clients need it to."""
        return responds(part, state)

    def _kafka(self, state: StackState, log: Path) -> list[str]:
        folder = self._folder / "kafka"
        properties = folder / "broker.properties"
        settings = kafka.broker_settings(folder, state.ports["kafka"], state.ports["kafka_controller"])
        kafka.write_properties(properties, settings)
        kafka.format_storage(folder, properties, log, self._cache)
        return kafka.broker_command(folder, properties, self._cache)

    def _connect(self, state: StackState) -> list[str]:
        folder = self._folder / "connect"
        properties = folder / "worker.properties"
        broker = f"127.0.0.1:{state.ports['kafka']}"
        settings = kafka.worker_settings(state.ports["connect"], broker, self._plugins())
        kafka.write_properties(properties, settings)
        return kafka.worker_command(folder, properties, self._cache)

    def _registry(self, port: int) -> list[str]:
        """Return the command line of the schema registry (Apicurio), with its database in its folder."""
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(port),
            "quarkus.datasource.jdbc.url": f"jdbc:h2:file:{self._folder / 'registry' / 'data' / 'registry'}",
            # By default, twenty connections are opened at once.
            "quarkus.datasource.jdbc.initial-size": "1",
            "quarkus.datasource.jdbc.min-size": "1",
        }
        return [
            str(find_java()),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *(f"-D{name}={value}" for name, value in settings.items()),
            "-jar",
            str(registry_jar(self._cache)),
        ]

    def _plugins(self) -> list[Path]:
        return [debezium_plugin_dir(self._cache), converter_plugin_dir(self._cache)]
