"""Every command as a user calls it: help, exit codes, and errors in one line."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replicator.cli import main
from replicator.config import Config, KafkaLog, load
from replicator.errors import (
    ConfigError,
    FencedError,
    JavaMissing,
    LogUnavailable,
    ReplicatorError,
    UsageError,
)
from replicator.model.moments import ReplayRange
from replicator.operations.demo.compare import ComparedTable, DemoResult
from replicator.operations.stack.process import Child
from replicator.operations.stack.state import Part, PartState, StackState, save_state
from tests.support.command_line import replace_module

COMMANDS = (
    *(
        "demo",
        "init",
        "check",
        "connect",
        "run",
        "status",
        "maintain",
        "record",
        "replay",
        "quarantine",
        "stack",
    ),
)


def summary(paused: dict[str, str] | None = None) -> Any:
    return SimpleNamespace(
        batches=2,
        events=12,
        rows={"INSERT": 9},
        tables=("shop.orders",),
        paused=paused or {},
        quarantined=0,
        reread={},
        seconds=3.0,
    )


def test_help_lists_every_command_and_the_first_steps(cli: Any) -> None:
    shown = cli("--help")
    assert shown.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in shown.out
    assert "  replicator check -c shop.toml " in shown.out
    assert "Exit codes: 0 success" in shown.out
    assert "..." not in shown.out.partition("Commands:")[2]


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("quarantine", "stack")])
def test_command_help_has_an_example(cli: Any, command: str) -> None:
    shown = cli(command, "--help")
    assert shown.code == 0
    assert f"\n    replicator {command} " in shown.out


@pytest.mark.parametrize("arguments", [("rnu",), ("run", "--fast"), ("record",), ("replay", "-c", "x")])
def test_cli_exits_with_2_when_arguments_are_wrong(cli: Any, arguments: tuple[str, ...]) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "command",
    ["check", "connect", "run", "status", "maintain", "record --to x", "replay --from x", "quarantine list"],
)
def test_command_suggests_init_when_the_configuration_is_missing(cli: Any, command: str) -> None:
    ran = cli(*command.split(), "-c", "missing.toml")
    assert ran.code == 2
    assert ran.err.splitlines() == [
        "error: missing.toml: no such file",
        "next:  create one with: replicator init",
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FencedError("another process writes this mirror", "stop it first"), 3),
        (LogUnavailable("no broker", "start it"), 3),
        (JavaMissing("no Java", "install it"), 2),
        (ConfigError("wrong", "mend it"), 2),
        (UsageError("wrong", "mend it"), 2),
    ],
)
def test_cli_reports_an_error_as_message_next_step_and_exit_code(
    cli: Any, config: Path, monkeypatch: pytest.MonkeyPatch, error: ReplicatorError, code: int
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise error

    replace_module(monkeypatch, "replicator.runner.process", run=run)
    ran = cli("run")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.splitlines() == [f"error: {error.message}", f"next:  {error.hint}"]


def test_cli_reports_an_unexpected_error_in_one_line(
    cli: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("division by zero\nand more")

    replace_module(monkeypatch, "replicator.runner.process", run=run)
    ran = cli("run")
    assert ran.code == 3
    assert ran.err.splitlines()[0] == "error: ZeroDivisionError: division by zero"
    monkeypatch.setenv("REPLICATOR_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["run"])


def test_cli_exits_with_130_when_it_is_interrupted(
    cli: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    replace_module(monkeypatch, "replicator.runner.process", run=run)
    ran = cli("run")
    assert ran.code == 130
    assert "Traceback" not in ran.err


def test_run_passes_the_configuration_to_the_runner(
    cli: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Config, dict[str, Any]]] = []

    def run(settings: Config, **options: Any) -> Any:
        calls.append((settings, options))
        return summary()

    replace_module(monkeypatch, "replicator.runner.process", run=run)
    ran = cli("run", "--until-caught-up")
    assert (ran.code, ran.out) == (0, "12 events in 2 batches, 9 row changes, 1 table, 3.0 s\n")
    [(settings, options)] = calls
    assert settings == load(config)
    assert options["until_caught_up"] is True


def test_run_until_caught_up_exits_with_1_when_a_table_is_paused(
    cli: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_module(
        monkeypatch, "replicator.runner.process", run=lambda *_, **__: summary({"shop.log": "no key"})
    )
    ran = cli("run", "--until-caught-up")
    assert (ran.code, ran.err) == (1, "shop.log is paused: no key\n")
    assert cli("run").code == 0


def test_replay_and_demo_pass_their_folders(cli: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def replay(_: Config, archive: str, wanted: ReplayRange, *, on_progress: Any) -> Any:
        on_progress(0, 2)
        on_progress(1, 2)
        calls.append((archive, wanted))
        return summary()

    replace_module(monkeypatch, "replicator.runner.process", replay=replay)
    table = ComparedTable(
        "shop.orders", "shop.orders", 2, 3, "0", "1", {}, None, "DIFFERENT", "2 rows instead of 3"
    )

    def run_demo(folder: Path, _: Any) -> Any:
        calls.append(folder)
        return DemoResult(folder, "shop", "", 5, 1.0, (table,)), None

    replace_module(monkeypatch, "replicator.operations.demo", run_demo=run_demo, LOG_NAME="demo.log")
    assert cli("replay", "--from", "recorded").code == 0
    ran = cli("demo", "--dir", "there", "--json")
    assert (ran.code, json.loads(ran.out)["match"]) == (1, False)
    assert "the lake differs from the source in shop.orders" in ran.err
    assert calls == [("recorded", ReplayRange()), Path("there")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--until", "yesterday"), "--until: 'yesterday' is no position"),
        (("--after", "offset:1"), "--after: 'offset:1' is no position"),
    ],
)
def test_replay_refuses_a_wrong_range(cli: Any, config: Path, options: tuple[str, ...], message: str) -> None:
    ran = cli("replay", "--from", "recorded", *options)
    assert ran.code == 2
    assert message in ran.err


def test_record_reports_events_and_bytes(cli: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(
        _: Config, to: str, *, until_caught_up: bool, on_progress: Any, stop: Any, **sizes: Any
    ) -> Any:
        assert until_caught_up
        assert not stop.is_set()
        assert sizes == {"times": 90.0, "segment_bytes": 1_000_000, "with_rows": True}
        state = SimpleNamespace(events=1200, bytes=3_400_000, remaining=0)
        on_progress(state)
        return state

    replace_module(
        monkeypatch, "replicator.operations.record", record=record, RecordTimes=lambda *, segment: segment
    )
    sizes = ("--segment-size", "1 MB", "--segment-time", "90 seconds", "--with-rows")
    ran = cli("record", "--to", "archive", "--until-caught-up", *sizes)
    assert (ran.code, ran.out) == (0, "Recorded 1,200 events (3.4 MB) into archive.\n")
    wrong = cli("record", "--to", "archive", "--segment-time", "soon")
    assert (wrong.code, "not a duration" in wrong.err) == (2, True)
    wrong = cli("record", "--to", "archive", "--with-rows", "--from-server")
    assert (wrong.code, "binary logs have no rows from before them" in wrong.err) == (2, True)


def test_init_writes_a_file_that_loads(cli: Any, tmp_path: Path) -> None:
    ran = cli("init", "crm.toml", "--url", "mysql://u@db/crm", "--name", "my-crm")
    assert ran.code == 0
    assert "export MY_CRM_PASSWORD=" in ran.out
    config = load(tmp_path / "crm.toml")
    assert (config.mirror.name, config.lake.namespace, config.source.tables) == (
        "my-crm",
        "my_crm",
        ("crm.*",),
    )
    again = cli("init", "crm.toml")
    assert (again.code, again.err.splitlines()[0]) == (2, "error: crm.toml already exists")
    assert cli("init", "crm.toml", "--force").code == 0


def started(ports: dict[Part, int]) -> dict[Part, PartState]:
    return {part: PartState(part, Child(1, 0.0), {part: port}) for part, port in ports.items()}


def test_init_writes_the_addresses_of_a_local_stack(cli: Any, tmp_path: Path) -> None:
    absent = cli("init", "--stack", "stack")
    assert (absent.code, absent.err.splitlines()[0]) == (2, "error: no local stack is running in stack")
    folder = tmp_path / "stack"
    folder.mkdir()
    ports: dict[Part, int] = {"mysql": 1001, "kafka": 1002, "connect": 1003}
    save_state(folder, StackState(parts=started(ports)))
    ran = cli("init", "--stack", "stack")
    assert ran.code == 0, ran.err
    assert "export SHOP_PASSWORD=$(replicator stack password --dir stack)" in ran.out
    config = load(tmp_path / "replicator.toml")
    assert isinstance(config.log, KafkaLog)
    assert config.source.url is not None
    found = (config.source.url.port, config.log.bootstrap_servers, config.log.connect_url)
    assert found == (1001, "127.0.0.1:1002", "http://127.0.0.1:1003")


@pytest.mark.parametrize(
    ("arguments", "database", "tables"),
    [
        (["--table", "ghost.*"], "ghost", ("ghost.*",)),
        (["--table", "ghost.a", "--table", "ghost.b_?"], "ghost", ("ghost.a", "ghost.b_?")),
        (["--table", "a b/c.*"], "a b/c", ("a b/c.*",)),
        (["--table", "crm.*", "--table", "shop.*"], None, ("crm.*", "shop.*")),
        (["--table", "_x.*"], "_x", ("_x.*",)),
        (["--table", "*.orders"], None, ("*.orders",)),
        (["--table", "ghost.*", "--url", "mysql://u@db/crm"], "crm", ("ghost.*",)),
        ([], "shop", ("shop.*",)),
    ],
)
@pytest.mark.parametrize("with_stack", [False, True])
def test_init_names_the_database_of_the_tables_when_no_url_is_given(
    cli: Any,
    tmp_path: Path,
    arguments: list[str],
    database: str | None,
    tables: tuple[str, ...],
    with_stack: bool,
) -> None:
    if with_stack:
        (tmp_path / "stack").mkdir()
        ports: dict[Part, int] = {"mysql": 1001, "kafka": 1002, "connect": 1003}
        save_state(tmp_path / "stack", StackState(parts=started(ports)))
    ran = cli("init", *(["--stack", "stack"] if with_stack else []), *arguments)
    assert ran.code == 0, ran.err
    config = load(tmp_path / "replicator.toml")
    assert config.source.server().database == database
    assert config.source.tables == tables
    names = {"a b/c": "a_b_c", "_x": "x", None: "replicator"}
    assert config.mirror.name == names.get(database, database)


def test_init_refuses_a_password(cli: Any, tmp_path: Path) -> None:
    ran = cli("init", "--url", "mysql://u:hunter2@db/crm")
    assert ran.code == 2
    assert "hunter2" not in ran.out + ran.err
    assert list(tmp_path.iterdir()) == []


def test_check_exits_with_0_when_no_check_fails_and_with_1_otherwise(
    cli: Any, config: Path, tmp_path: Path
) -> None:
    fit = cli("check", "--json")
    report = json.loads(fit.out)
    assert (fit.code, report["version"], report["status"] in ("ok", "warn")) == (0, 1, True)
    assert {result["name"] for result in report["results"]} >= {
        "log: reachable",
        "lake: catalog",
        "machine: Java",
    }
    (tmp_path / "lake").write_text("in the way")
    unfit = cli("check")
    assert unfit.code == 1
    assert "Some checks failed" in unfit.out


def test_help_imports_no_large_library() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, replicator.cli; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    heavy = {"pyspark", "pyiceberg", "pyarrow", "sqlalchemy", "confluent_kafka", "pydantic", "requests"}
    assert not heavy.intersection(loaded)


def test_run_imports_no_library_that_only_inspection_requires() -> None:
    """SQLAlchemy and PyIceberg take more than a second to import."""
    program = (
        "import sys; from replicator.operations.check import refuse_losses; import replicator.runner.process; "
        "print(sorted({'sqlalchemy', 'pyiceberg', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
