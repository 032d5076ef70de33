"""`stack up` while a server is stopping, on a separate real MySQL."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from replicator.errors import StackError
from replicator.operations.stack import Endpoints, LocalStack, Options, load_state
from replicator.operations.stack.client import run_sql
from tests.support.mirror import COMMAND, until

pytestmark = pytest.mark.stack

Maker = Callable[..., LocalStack]


@pytest.fixture
def stack_maker(local_stack: LocalStack, tmp_path: Path) -> Iterator[Maker]:
    """Provide a function that creates another stack object for the same folder, as another process would."""
    folder = tmp_path / "own"

    def make(**options: object) -> LocalStack:
        return LocalStack(folder, Options(mysql=local_stack.options.mysql, **options))  # type: ignore[arg-type]

    yield make
    make().remove()


def answer(endpoints: Endpoints) -> int:
    ((_, rows),) = run_sql(endpoints, "SELECT 1")
    return int(str(rows[0][0]))


def mysql_pid(stack: LocalStack) -> int:
    (pid,) = [part.pid for part in stack.status() if part.part == "mysql"]
    assert pid is not None
    return pid


@pytest.mark.long
def test_up_starts_mysql_again_when_it_is_still_shutting_down(stack_maker: Maker) -> None:
    stack = stack_maker()
    stack.up({"mysql"})
    pid = mysql_pid(stack)
    # It received SIGTERM and ends when it is resumed; until then it accepts connections and does not respond.
    stack.pause("mysql")
    os.kill(pid, signal.SIGTERM)
    waits = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(
            stack_maker(report=lambda line: "does not respond" in line and waits.set()).up, {"mysql"}
        )
        try:
            until(lambda: waits.is_set() or again.done(), seconds=30, doing="up looks at MySQL")
        finally:
            stack.resume("mysql")
        assert answer(again.result(120)) == 1
    assert mysql_pid(stack) != pid


def test_up_fails_when_a_running_server_does_not_respond(stack_maker: Maker) -> None:
    stack = stack_maker()
    stack.up({"mysql"})
    stack.pause("mysql")
    with pytest.raises(
        StackError, match=rf"MySQL is running \(process {mysql_pid(stack)}\) but does not respond"
    ) as caught:
        stack_maker(start_seconds=1).up({"mysql"})
    assert "stack down" in (caught.value.hint or "")


def test_up_waits_until_a_running_down_has_ended(stack_maker: Maker) -> None:
    stack = stack_maker()
    stack.up({"mysql"})
    stops = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        down = pool.submit(stack_maker(report=lambda line: line.startswith("stopping") and stops.set()).down)
        assert stops.wait(30)
        assert answer(stack.up({"mysql"})) == 1
        assert down.result(0) == ["mysql"]


@pytest.mark.long
def test_up_starts_mysql_again_when_a_down_was_killed(stack_maker: Maker) -> None:
    stack = stack_maker()
    stack.up({"mysql"})
    pid = mysql_pid(stack)
    down = subprocess.Popen([COMMAND, "stack", "down", "--dir", str(stack.folder)], stdout=subprocess.DEVNULL)

    def told() -> bool:
        state = load_state(stack.folder)
        return state is not None and ("mysql" not in state.parts or state.parts["mysql"].stopping)

    until(told, seconds=60, doing="down tells MySQL to end")
    down.kill()
    down.wait()
    assert answer(stack.up({"mysql"})) == 1
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
