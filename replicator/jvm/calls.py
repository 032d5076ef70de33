"""Make Py4J's calls of Java cheaper: a small batch makes hundreds of them, which are half of its work in Python."""

import threading
import time
from collections import deque
from typing import Any, Final

from py4j.protocol import Py4JError

_EVERY_S: Final = 1.0
_OBJECT: Final = "o"
"""Begins the ids of objects that Java keeps for Python."""
_PLAIN: Final = frozenset((str, int, float, bool, bytes, bytearray, type(None)))
"""Types that no converter of Py4J or PySpark converts."""


class Conversions:
    """Takes the place of all converters of arguments: they inspect each one, which takes longer than most calls."""

    def __init__(self, gateway: Any) -> None:
        """Convert the arguments of a gateway's calls."""
        client: Any = gateway._gateway_client  # noqa: SLF001 no public way
        self._converters = client.converters
        client.converters = [self]

    def can_convert(self, value: Any) -> bool:
        """Return whether any converter converts the value."""
        return type(value) not in _PLAIN and self._of(value) is not None

    def convert(self, value: Any, client: Any) -> Any:
        """Return the Java object of a value."""
        converter: Any = self._of(value)
        return converter.convert(value, client)

    def _of(self, value: Any) -> Any:
        return next((found for found in self._converters if found.can_convert(value)), None)


class ReleasedObjects:
    """Tells Java in bulk which of its objects Python no longer refers to.

    Py4J makes a call of its own for each object, in a thread that takes the lock of Python from the others. It takes
    the place of the queue of Py4J's `FinalizerWorker`.
    """

    def __init__(self, gateway: Any) -> None:
        """Release objects of a gateway's Java process in a thread of its own."""
        client: Any = gateway._gateway_client  # noqa: SLF001 no public way
        self._client, self._of_py4j = client, client.finalizer_deque
        self._ids: deque[str] = deque()
        self._lock = threading.Lock()
        self._known = gateway.java_gateway_server.getGateway().getBindings().keySet()
        self._comma = gateway.jvm.java.util.regex.Pattern.compile(",")
        client.finalizer_deque = self
        threading.Thread(target=self._run, name="released objects", daemon=True).start()

    def appendleft(self, task: Any) -> None:
        """Note an object that is released, as Py4J does; it also ends its worker so."""
        if isinstance(task, tuple):
            self._ids.append(task[1])
        else:
            self._of_py4j.appendleft(task)

    def release(self) -> None:
        """Release the objects that were noted.

        Raises:
            Py4JError: Java has ended.
        """
        with self._lock:
            ids = [self._ids.popleft() for _ in range(len(self._ids))]
            if found := [each for each in ids if each.startswith(_OBJECT)]:
                self._known.removeAll(self._comma.splitAsStream(",".join(found)).toList())

    def _run(self) -> None:
        while self._client.is_connected:
            time.sleep(_EVERY_S)
            try:
                self.release()
            except (Py4JError, OSError):
                # Java has ended, or it keeps these objects until it does.
                continue
