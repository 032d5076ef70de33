"""A real MySQL server, Kafka broker, Kafka Connect worker and schema registry for development and tests.

`LocalStack(folder)` runs them as child processes of this machine, `DockerStack(folder)` as containers.
"""

from replicator.operations.stack.docker import DockerStack
from replicator.operations.stack.local import LocalStack, Options
from replicator.operations.stack.state import PARTS, USUAL_PARTS, Endpoints, Part, PartStatus, load_state

__all__ = [
    "PARTS",
    "USUAL_PARTS",
    "DockerStack",
    "Endpoints",
    "LocalStack",
    "Options",
    "Part",
    "PartStatus",
    "load_state",
]
