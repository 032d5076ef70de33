"""Commands that prepare a mirror: `init` and `connect`."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

from pathlib import Path
from typing import Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, ConfigFile
from replicator.errors import UsageError

_URL = "mysql://replicator@127.0.0.1:3306/shop"
_BROKER = "127.0.0.1:9092"
_CONNECT = "http://127.0.0.1:8083"


def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="Where to write it.")] = DEFAULT_CONFIG,
    *,
    name: Annotated[
        str | None, typer.Option(help="The mirror's name; by default the database, else the file's name.")
    ] = None,
    url: Annotated[str, typer.Option(help="The MySQL server, without a password.")] = _URL,
    stack: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Take the addresses of the local stack of this folder."),
    ] = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", help="A pattern of tables to mirror; may be repeated.")
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="The lake's namespace for the tables.")] = None,
    password_env: Annotated[
        str | None, typer.Option(help="The environment variable that will hold the password.")
    ] = None,
    bootstrap_servers: Annotated[str, typer.Option(help="The Kafka broker.")] = _BROKER,
    connect_url: Annotated[str, typer.Option(help="Kafka Connect's REST address.")] = _CONNECT,
    topic_prefix: Annotated[str | None, typer.Option(help="First part of every topic's name.")] = None,
    warehouse: Annotated[
        str, typer.Option(help="Where the lake's files go: a folder or an s3:// URL.")
    ] = "lake",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write an annotated configuration to start from.

    Every key is explained in the file. Nothing is contacted, and no password is asked for: the file only
    says which environment variable holds it.

    \b
    Examples:
      replicator init shop.toml --url mysql://replicator@db:3306/shop --table 'shop.*'
      replicator init --stack .replicator/stack
    """
    from replicator.config.template import Answers, write_config
    from replicator.config.values import parse_source_url

    if stack is not None:
        url, bootstrap_servers, connect_url = _addresses(stack, url)
    try:
        database = parse_source_url(url).database
    except ValueError as error:
        raise UsageError(f"--url: {error}") from error
    chosen = name or database or file.stem
    answers = Answers(
        name=chosen,
        url=url,
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
    for step, meaning in (
        (f"export {answers.password_env}={password}", "the password of the MySQL user"),
        (f"replicator check -c {file}", "what is missing, and how to get it"),
    ):
        typer.echo(f"  {step:<36}  {meaning}")


def _addresses(stack: Path, url: str) -> tuple[str, str, str]:
    """The local stack's MySQL, with the database of `url`, its broker and its Connect worker."""
    from replicator.config.values import parse_source_url
    from replicator.stack import load_state

    state = load_state(stack.absolute())
    found = None if state is None else state.endpoints()
    if found is None or not (found.mysql_port and found.bootstrap_servers and found.connect_url):
        raise UsageError(
            f"no local stack runs in {stack}", "start one: replicator stack up, or leave --stack out"
        )
    database = parse_source_url(url).database or ""
    mysql = f"mysql://{found.mysql_user}@{found.mysql_host}:{found.mysql_port}/{database}"
    return mysql, found.bootstrap_servers, found.connect_url


def _word(name: str) -> str:
    word = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    return word if word[:1].isalpha() else f"_{word}"


def connect(config: ConfigFile = DEFAULT_CONFIG) -> None:
    """Register or update the Debezium connector of this source.

    Needs log.connect_url, the address of a Kafka Connect worker that has the Debezium MySQL connector. It is
    safe to repeat: an existing connector is updated in place and goes on from where it was.

    \b
    Example:
      replicator connect -c shop.toml
    """
    from replicator.config import load

    settings = load(config)
    from replicator.connect import register

    done = register(settings)
    tasks = ", ".join(f"task {number} {state}" for number, state in sorted(done.tasks.items()))
    typer.echo(f"{'Updated' if done.existed else 'Created'} the connector {done.name}: {tasks}.")
