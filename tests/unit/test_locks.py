"""Lock files."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from replicator.locks import FileLock, LockHeld

HOLD = """
import sys
from pathlib import Path
from replicator.locks import FileLock
FileLock(Path(sys.argv[1]), wait=False)
"""


def test_lock_names_its_holder_at_every_attempt(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with FileLock(path, wait=False):
        for _ in range(2):
            with pytest.raises(LockHeld) as caught:
                FileLock(path, wait=False)
            assert caught.value.holder == os.getpid()
    FileLock(path, wait=False).release()


def test_lock_is_released_when_the_process_of_its_holder_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    subprocess.run([sys.executable, "-c", HOLD, str(path)], check=True)
    assert path.read_text().isdecimal()
    with FileLock(path, wait=False):
        assert path.read_text() == str(os.getpid())


def test_lock_waits_until_the_holder_releases_it(tmp_path: Path) -> None:
    path, entered = tmp_path / "lock", threading.Event()

    def wait() -> None:
        with FileLock(path, wait=True):
            entered.set()

    with FileLock(path, wait=False):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not entered.wait(0.2)
    assert entered.wait(10)
    waiting.join()
