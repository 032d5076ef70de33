"""Commands that prepare a mirror: `init` and `connect`."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import re
import shlex
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from replicator.cli.next_steps import pasted
from replicator.cli.options import DEFAULT_CONFIG, ConfigFile
from replicator.errors import UsageError

_SERVER = "mysql://replicator@127.0.0.1:3306/"
_DATABASE = "shop"
_BROKER = "127.0.0.1:9092"
_CONNECT = "http://127.0.0.1:8083"


def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="File to write.")] = DEFAULT_CONFIG,
    *,
    name: Annotated[
        str | None, typer.Option(help="Name of the mirror; default: the database, otherwise the file's name.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="Address of the MySQL server, without a password.", show_default=_SERVER + _DATABASE
        ),
    ] = None,
    stack: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Use the addresses of the local stack in this folder."),
    ] = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", help="Pattern of tables to mirror. Repeatable.")
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Namespace of the tables in the lake.")] = None,
    password_env: Annotated[str | None, typer.Option(help="Environment variable with the password.")] = None,
    bootstrap_servers: Annotated[str, typer.Option(help="Address of the Kafka broker.")] = _BROKER,
    connect_url: Annotated[str, typer.Option(help="REST address of Kafka Connect.")] = _CONNECT,
    topic_prefix: Annotated[str | None, typer.Option(help="First part of all topic names.")] = None,
    warehouse: Annotated[
        str, typer.Option(help="Location of the lake's files: a folder or an s3:// URL.")
    ] = "lake",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a configuration with a comment for each key.

    No server is contacted, and no password is needed: the file only names the environment variable with the
    password.

    \b
    Examples:
      replicator init shop.toml --url mysql://replicator@db:3306/shop --table 'shop.*'
      replicator init --stack .replicator/stack --table 'crm.*'
    """
    from replicator.config.template import Answers, write_config
    from replicator.config.values import parse_source_url

    try:
        database = _database(tables) if url is None else parse_source_url(url).database
    except ValueError as error:
        raise UsageError(f"--url: {error}") from error
    address = url or _SERVER + quote(database or "", safe="")
    if stack is not None:
        address, bootstrap_servers, connect_url = _addresses(stack, database)
    chosen = name or _mirror_name(database) or file.stem
    answers = Answers(
        name=chosen,
        url=address,
        tables=tuple(tables or [f"{database or '*'}.*"]),
        namespace=namespace or _word(chosen),
        password_env=password_env or f"{_word(chosen).upper()}_PASSWORD",
        bootstrap_servers=bootstrap_servers,
        connect_url=connect_url,
        topic_prefix=topic_prefix or chosen,
        warehouse=warehouse,
    )
    write_config(file, answers, replace=force)
    typer.echo(f"Wrote {file}.\n")
    typer.echo("Next:")
    password = "…" if stack is None else f"$(replicator stack password --dir {stack})"
    # One command on each line, to be pasted.
    typer.echo(f"  export {answers.password_env}={password}")
    for command in ("check", "connect", "run"):
        typer.echo(f"  replicator {command} -c {shlex.quote(str(file))}")


def _database(tables: list[str] | None) -> str | None:
    """Return the database that all table patterns name; None if they do not name exactly one."""
    from replicator.model.common import has_wildcard

    databases = {pattern.partition(".")[0] for pattern in tables or [f"{_DATABASE}.*"]}
    return None if len(databases) > 1 or has_wildcard(name := databases.pop()) else name


def _mirror_name(database: str | None) -> str:
    """Return a name for the mirror of a database; characters that are not allowed become underscores."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", database or "").lstrip("_.-")


def _addresses(stack: Path, database: str | None) -> tuple[str, str, str]:
    """Return the local stack's MySQL with `database`, its broker and its Connect worker."""
    from replicator.operations.stack import load_state

    state = load_state(stack.absolute())
    found = None if state is None else state.endpoints()
    if found is None or not (found.mysql_port and found.bootstrap_servers and found.connect_url):
        raise UsageError(
            f"no local stack is running in {stack}", "start one: replicator stack up, or omit --stack"
        )
    path = quote(database or "", safe="")
    mysql = f"mysql://{found.mysql_user}@{found.mysql_host}:{found.mysql_port}/{path}"
    return mysql, found.bootstrap_servers, found.connect_url


def _word(name: str) -> str:
    word = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    return word if word[:1].isalpha() else f"_{word}"


def connect(config: ConfigFile = DEFAULT_CONFIG) -> None:
    """Register or update the Debezium connector of this source.

    Needs log.connect_url, the address of a Kafka Connect worker with the Debezium MySQL connector. It can be
    repeated: an existing connector is updated in place and continues from its position, also if it is stopped. A
    paused connector is not changed: the command fails, and says how to resume it.

    \b
    Example:
      replicator connect -c shop.toml
    """
    from replicator.config import load

    settings = load(config)
    from replicator.operations.connector import register

    done = register(settings)
    tasks = ", ".join(f"task {number} {state}" for number, state in sorted(done.tasks.items()))
    verb = "Updated and resumed" if done.resumed else "Updated" if done.existed else "Created"
    typer.echo(f"{verb} the connector {done.name}: {tasks}.")
    if not done.existed:
        typer.echo(f"Next:\n  {pasted('replicator run')}")
