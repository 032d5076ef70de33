"""Whether the parts of a stack respond."""

from replicator.operations.stack import kafka, mysql, registry
from replicator.operations.stack.process import accepts
from replicator.operations.stack.state import Part, StackState


def responds(part: Part, state: StackState) -> bool:
    """Return whether a part responds on its port, as its clients need it to."""
    port = state.ports[part]
    if not accepts(port):
        return False
    match part:
        case "mysql":
            return mysql.answers(port, state.root_password)
        case "kafka":
            return kafka.broker_answers(f"127.0.0.1:{port}")
        case "connect":
            return kafka.worker_answers(f"http://127.0.0.1:{port}")
        case "registry":
            return registry.answers(port)
