"""A run of the configuration file given, whose sessions do nothing. It reloads the file on SIGHUP, as a mirror does."""

import sys
import threading
from pathlib import Path

from replicator.config import load
from replicator.runner.reloads import ConfigFile, NextSession, Reloads, SessionControl
from replicator.runner.run_recorder import RunRecorder
from replicator.runner.signals import reload_on_hangup, stop_on_signals


def main(file: Path) -> None:
    config, control = load(file), SessionControl()
    record = RunRecorder(config, file)
    reloads = Reloads(config, ConfigFile(file, lambda: load(file)), control, record)
    with (
        reload_on_hangup(reloads.request, control),
        stop_on_signals(control),
        record.recording(),
        reloads.answering(),
    ):
        print("ready", flush=True)
        session: NextSession | None = None
        while True:
            stopping = threading.Event()
            control.begin(stopping)
            if session is not None and session.reload is not None:
                reloads.applied(session.reload)
            stopping.wait()
            if (session := control.take()) is None:
                return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
