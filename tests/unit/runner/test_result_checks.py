"""When results are compared."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from replicator.runner import result_checks, side_thread
from replicator.runner.result_checks import ResultChecks


def test_results_are_compared_although_earlier_comparisons_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = threading.Event()

    def unreadable(*_: Any) -> Any:
        raise FileNotFoundError("00001.metadata.json")

    def read(_: Any) -> SimpleNamespace:
        looked.set()
        return SimpleNamespace(pipelines=())

    monkeypatch.setattr(side_thread, "RETRY_S", 0.01)
    monkeypatch.setattr(result_checks, "open_catalog", nullcontext)
    monkeypatch.setattr(result_checks, "last_recomputed", unreadable)
    monkeypatch.setattr(result_checks, "read_pipelines", read)
    config: Any = SimpleNamespace(lake=SimpleNamespace(ops_namespace="ops"))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(cancelJobGroup=lambda _: None))
    checks = ResultChecks(config, spark, 60.0)
    checks.start()
    try:
        assert looked.wait(30)
    finally:
        checks.close()
