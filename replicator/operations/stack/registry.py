"""Define the command line of a schema registry (Apicurio), and its Confluent-compatible API."""

from pathlib import Path

import requests

PATH = "/apis/ccompat/v7"


def api(port: int) -> str:
    """Return the URL of the Confluent-compatible API."""
    return f"http://127.0.0.1:{port}{PATH}"


def server_command(folder: Path, port: int, java: Path, jar: Path) -> list[str]:
    """Return the command line of the registry, whose program is `jar`, with its database in `folder`."""
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.datasource.jdbc.url": f"jdbc:h2:file:{folder / 'data' / 'registry'}",
        # By default, twenty connections are opened at once.
        "quarkus.datasource.jdbc.initial-size": "1",
        "quarkus.datasource.jdbc.min-size": "1",
    }
    return [
        str(java),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *(f"-D{name}={value}" for name, value in settings.items()),
        "-jar",
        str(jar),
    ]


def answers(port: int) -> bool:
    """Return whether the registry lists its subjects."""
    try:
        return requests.get(f"{api(port)}/subjects", timeout=5).status_code == 200
    except requests.RequestException:
        return False
