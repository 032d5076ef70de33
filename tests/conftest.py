"""Fixtures for all tests. The real stack is started once for a whole run."""

import os
import re
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from hypothesis import settings

from replicator.cli.next_steps import remember_config
from replicator.errors import JavaMissing, StackError
from replicator.operations.stack import PARTS, LocalStack, Options
from tests.support.conformance import PAGE, ConformancePage
from tests.support.mirror import JAVA_OPTIONS
from tests.support.replica import Replica, replica_of
from tests.support.reports import MYSQL, NEEDS_STACK
from tests.support.sample import one_case
from tests.support.source import SourceDatabase

# The time of an example depends more on the machine than on the code.
settings.register_profile("project", deadline=None, max_examples=40)
settings.load_profile("project")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-conformance",
        action="store_true",
        help="write what the tests see into docs/conformance.md instead of comparing it",
    )
    parser.addoption(
        "--one-case",
        action="store_true",
        help="run one case of each parametrized test that starts Spark or needs the real stack",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Record in the report which tests need the real stack, so that CI can check that they ran; apply `--one-case`."""
    for item in items:
        if item.get_closest_marker("stack"):
            item.user_properties.append(NEEDS_STACK)
        if "conformance" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.conformance)
    if config.getoption("--one-case"):
        left_out = _other_cases(items)
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def _other_cases(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the cases that `--one-case` leaves out."""
    tests = defaultdict(list)
    # Plug-ins may have shuffled the tests.
    for item in sorted(items, key=lambda item: item.nodeid):
        marks = {mark.name for mark in item.iter_markers()}
        if marks & {"spark", "stack"} and not marks & {"long", "every_case"}:
            tests[item.nodeid.partition("[")[0]].append(item)
    return {item for test, cases in tests.items() for item in cases if item is not one_case(test, cases)}


@pytest.fixture(autouse=True)
def _forgotten_config() -> Iterator[None]:
    """Forget the configuration file of a command that a test ran in this process; next steps would name it."""
    yield
    remember_config(None)


@pytest.fixture
def conformance(request: pytest.FixtureRequest) -> ConformancePage:
    """Return the conformance page; see `tests.support.conformance`."""
    return ConformancePage(PAGE, write=request.config.getoption("--write-conformance"))


@pytest.fixture(scope="session")
def _short_lived_servers() -> Iterator[None]:
    """Let the Java programs of stacks be compiled once and quickly: they live for minutes."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(JAVA_OPTIONS, "-XX:TieredStopAtLevel=1")
        yield


@pytest.fixture(scope="session")
def local_stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _short_lived_servers: None
) -> Iterator[LocalStack]:
    """Start the real MySQL, Kafka, Connect and schema registry once; with `pytest -n`, once for each worker.

    REPLICATOR_MYSQL selects the MySQL server, as `replicator stack up --mysql` does. REPLICATOR_STACK_DIR is a folder
    whose stacks are used, and keep running for the next run. If the stack cannot run: skip, or fail if CI requires it.
    If any test of the run failed, the logs are kept in reports/stack.
    """
    options = Options(mysql=os.environ.get("REPLICATOR_MYSQL", ""))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    kept_folder = os.environ.get("REPLICATOR_STACK_DIR")
    folder = Path(kept_folder) / worker if kept_folder else tmp_path_factory.mktemp("stack")
    stack = LocalStack(folder, options)
    try:
        version = stack.up(PARTS).mysql_version
    except (StackError, JavaMissing) as error:
        reason = f"the real stack cannot run here: {error.message}; {error.hint}"
        if os.environ.get("REPLICATOR_REQUIRE_STACK"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    for item in request.session.items:
        item.user_properties.append((MYSQL, version))
    try:
        yield stack
    finally:
        if kept_folder is None:
            stack.down()
        if request.session.testsfailed:
            kept = request.config.rootpath / "reports" / "stack" / worker
            kept.mkdir(parents=True, exist_ok=True)
            for part in PARTS:
                shutil.copy(stack.log(part), kept)
        if kept_folder is None:
            stack.remove()


@pytest.fixture
def running_stack(local_stack: LocalStack) -> LocalStack:
    """Provide the stack with all parts running, whatever the preceding test did to them."""
    for status in local_stack.status():
        if not status.healthy:
            local_stack.restart(status.part)
    return local_stack


@pytest.fixture
def source_database(
    running_stack: LocalStack, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SourceDatabase]:
    """Provide an empty database and a separate topic prefix for one test. Its connector is deleted afterwards."""
    monkeypatch.setenv("REPLICATOR_TEST_PASSWORD", running_stack.endpoints.mysql_password)
    word = re.sub(r"\W", "_", request.node.name.removeprefix("test_"))[:24].strip("_").lower()
    name = f"{word}_{uuid.uuid4().hex[:6]}"
    database = SourceDatabase(running_stack, name, name)
    with SourceDatabase(running_stack, "mysql", "").connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    yield database
    _remove(database)


@pytest.fixture(scope="module")
def replica_server(local_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """Start a replica of the stack's MySQL server, for the tests of one module."""
    with replica_of(local_stack.endpoints, tmp_path_factory.mktemp("replica")) as replica:
        yield replica


@pytest.fixture
def replica(running_stack: LocalStack, replica_server: Replica) -> Iterator[Replica]:
    """Provide a replica of the stack's MySQL server that replicates without a delay."""
    assert running_stack.endpoints == replica_server.source
    yield replica_server
    replica_server.restore()


def _remove(database: SourceDatabase) -> None:
    if not all(s.healthy for s in database.stack.status() if s.part != "registry"):
        return  # the next test starts the part again; a leftover with this name affects no test
    url = database.endpoints.connect_url
    requests.delete(f"{url}/connectors/{database.prefix}", timeout=30)
    database.execute(f"DROP DATABASE `{database.name}`")
