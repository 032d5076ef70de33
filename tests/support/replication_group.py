"""A group of MySQL servers that all accept writes (Group Replication in multi-primary mode)."""

import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from replicator.operations.stack import Endpoints
from tests.support.mirror import until
from tests.support.replica import execute, mysql_server

_ONLINE_S: Final = 120
_STATES: Final = (
    "SELECT MEMBER_STATE, COUNT(*) FROM performance_schema.replication_group_members GROUP BY MEMBER_STATE"
)


@contextmanager
def replication_group(folder: Path, members: int = 2) -> Iterator[Sequence[Endpoints]]:
    """Run a group whose members accept the same passwords. MySQL 8.0.22 or newer."""
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(members)]
    group = str(uuid.uuid4())
    with ExitStack() as cleanup:
        servers = []
        for number, address in enumerate(addresses):
            server = mysql_server(
                folder / f"member{number}",
                f"--server-id={number + 11}",
                "--performance-schema=ON",
                "--report-host=127.0.0.1",
                "--plugin-load-add=group_replication.so",
                f"--loose-group-replication-group-name={group}",
                f"--loose-group-replication-local-address={address}",
                f"--loose-group-replication-group-seeds={','.join(addresses)}",
                "--loose-group-replication-start-on-boot=OFF",
                "--loose-group-replication-single-primary-mode=OFF",
                "--loose-group-replication-enforce-update-everywhere-checks=ON",
                "--loose-group-replication-recovery-get-public-key=ON",
            )
            servers.append(cleanup.enter_context(server).endpoints)
        yield _joined(servers)


def _joined(servers: Sequence[Endpoints]) -> list[Endpoints]:
    """Form the group, and return the members with the passwords that all of them accept."""
    first = servers[0]
    for server in servers:
        execute(
            server,
            # Each server has created its accounts itself; a member must not have transactions of its own.
            f"ALTER USER 'root'@'%' IDENTIFIED BY '{first.mysql_root_password}'",
            f"ALTER USER 'replicator'@'%' IDENTIFIED BY '{first.mysql_password}'",
        )
    members = [
        replace(server, mysql_root_password=first.mysql_root_password, mysql_password=first.mysql_password)
        for server in servers
    ]
    for member in members:
        start = ["START GROUP_REPLICATION"]
        if member is members[0]:
            bootstrap = "SET GLOBAL group_replication_bootstrap_group ="
            start = [f"{bootstrap} ON", *start, f"{bootstrap} OFF"]
        execute(
            member,
            # MySQL 8.4 has only the new name.
            f"RESET {'MASTER' if member.mysql_version.startswith('8.0.') else 'BINARY LOGS AND GTIDS'}",
            f"CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root', SOURCE_PASSWORD = '{member.mysql_root_password}' "
            "FOR CHANNEL 'group_replication_recovery'",
            *start,
        )
    wanted = [("ONLINE", len(members))]
    until(lambda: execute(members[0], _STATES) == wanted, seconds=_ONLINE_S, doing="the group forms")
    return members


def _free_ports(count: int) -> list[int]:
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
