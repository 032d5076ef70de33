"""Run `replicator` in this process, and record the CPU time of its Python threads by name.

As a program: `python -m benchmarks.threads FILE ARGUMENTS...`. FILE gets a line of JSON each second.
"""

import json
import os
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from replicator.cli.main import main

_SAMPLE_S = 1.0
_USER_TIME = 11
"""Place of the user time in `/proc/self/task/ID/stat`, behind the name; the system time follows."""
CHECKS = ("verify", "ThreadPoolExecutor")
"""Names of the threads that compare rows: the mirror's own one, and those in which PyIceberg reads for it."""


def cpu_of_checks(file: Path, begun_ms: int, ended_ms: int) -> float:
    """Return the CPU seconds of the threads that compare rows, between two times."""
    samples = [json.loads(line) for line in file.read_text().splitlines()]
    within = [sample["cpu"] for sample in samples if begun_ms <= sample["at_ms"] <= ended_ms]
    totals = [sum(seconds for name, seconds in cpu.items() if name.startswith(CHECKS)) for cpu in within]
    return float(totals[-1] - totals[0])


def _sample(file: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    with file.open("w") as output:
        while True:
            cpu = defaultdict[str, float](float)
            for thread in threading.enumerate():
                with suppress(OSError):
                    stat = (
                        Path(f"/proc/self/task/{thread.native_id}/stat")
                        .read_text()
                        .rpartition(")")[2]
                        .split()
                    )
                    cpu[thread.name] += (int(stat[_USER_TIME]) + int(stat[_USER_TIME + 1])) / ticks
            print(json.dumps({"at_ms": time.time_ns() // 1_000_000, "cpu": cpu}), file=output, flush=True)
            time.sleep(_SAMPLE_S)


if __name__ == "__main__":
    threading.Thread(target=_sample, args=(Path(sys.argv[1]),), name="sampler", daemon=True).start()
    sys.argv[:2] = ["replicator"]
    main()
