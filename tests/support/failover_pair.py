"""Two MySQL servers behind one address: one replicates the other, and takes its place when that is killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from replicator.operations.stack import Endpoints, LocalStack
from tests.support.replica import catch_up, execute, replica_of, replicate
from tests.support.tcp_proxy import LosingProxy, losing_proxy


@dataclass
class FailoverPair:
    """A primary and its replica. `address` leads to the primary, as a virtual address or a name in the DNS would."""

    primary: LocalStack
    replica: LocalStack
    address: LosingProxy

    @property
    def endpoints(self) -> Endpoints:
        """What all clients use; the same after a fail-over."""
        return replace(self.primary.endpoints, mysql_port=self.address.port)

    def fail_over(self) -> None:
        """Kill the primary, once the replica has all of it, and promote that; the killed one then replicates it.

        The source must have no writers meanwhile.
        """
        catch_up(self.replica.endpoints, self.primary.endpoints)
        self.primary.kill("mysql")
        promote(self.replica.endpoints)
        self.primary, self.replica = self.replica, self.primary
        self.address.server = self.primary.endpoints.mysql_port
        self.replica.restart("mysql")
        demote(self.replica.endpoints, self.primary.endpoints)


def promote(server: Endpoints) -> None:
    """Let a replica accept changes, and replicate no more."""
    execute(server, "STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL read_only = OFF")


def demote(server: Endpoints, primary: Endpoints) -> None:
    """Let a server accept no changes but those of the primary, which it replicates from where it is."""
    execute(server, "SET GLOBAL super_read_only = ON")
    replicate(server, primary)


@contextmanager
def failover_pair(stack: LocalStack, folder: Path) -> Iterator[FailoverPair]:
    """Run a replica of the stack's server. Both have the databases that are created from now on."""
    with (
        replica_of(stack.endpoints, folder) as replica,
        losing_proxy(stack.endpoints.mysql_port) as address,
    ):
        pair = FailoverPair(stack, replica.stack, address)
        replica.execute("SET GLOBAL super_read_only = ON")
        try:
            yield pair
        finally:
            if pair.primary is not stack:
                promote(stack.endpoints)
