"""A mirror that runs Spark jobs until it must stop, and then checks that Spark still runs."""

from typing import Any

from replicator.cli import main
from replicator.runner import process
from replicator.runner.scheduler import Scheduler


def work(scheduler: Scheduler, _on_progress: Any) -> None:
    """Run in place of `apply_archive`."""
    spark = scheduler.context.spark
    print("ready", spark.range(3).count(), flush=True)
    while not scheduler.stopping.is_set():
        spark.range(10**8).selectExpr("max(hash(id))").collect()
    print("counted", spark.range(3).count(), flush=True)


if __name__ == "__main__":
    setattr(process, "apply_archive", work)  # noqa: B010 - a type checker does not accept an assignment
    main(["replay", "-c", "replicator.toml", "--from", "archive"])
