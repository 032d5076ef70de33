"""A real MySQL server, Kafka broker and Kafka Connect worker for development and tests.

`LocalStack(folder)` runs them as child processes of this machine, `DockerStack(folder)` as containers.
"""

from replicator.stack.docker import DockerStack
from replicator.stack.local import LocalStack, Options
from replicator.stack.state import PARTS, Endpoints, Part, PartStatus, load_state

__all__ = ["PARTS", "DockerStack", "Endpoints", "LocalStack", "Options", "Part", "PartStatus", "load_state"]
