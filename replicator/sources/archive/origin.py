"""Where the events of an archive that was not recorded from Kafka come from: `origin.json` in its folder.

Offsets of such an archive are those of no Kafka topic. So its topics have an id of their own, which keeps a lake from
taking them for Kafka's.
"""

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Final

from replicator.errors import ArchiveError
from replicator.sources.archive.reader import find_manifest
from replicator.sources.archive.storage import Storage, locked

ORIGIN_NAME: Final = "origin.json"
ID_PREFIX: Final = "binlog:"
_FORMAT: Final = "replicator-binlog-import"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """The binary log that an archive was imported from.

    Attributes:
        first_file: name of the first file.
        created: when the server began that file, Unix seconds.
        server_id: the server's id.
        settings: hash of what else decides which events there are: definitions, tables and options of the connector.
    """

    first_file: str
    created: int
    server_id: int
    settings: str

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic: it is the same in every import that has the same events at the same offsets."""
        content = f"{topic}\n{self.first_file}\n{self.created}\n{self.server_id}"
        return ID_PREFIX + sha256(content.encode()).hexdigest()[:32]

    def to_json(self) -> str:
        """Serialize as origin.json (schemas/archive-origin-v1.json)."""
        return json.dumps({"format": _FORMAT, "version": _VERSION, **asdict(self)}, indent=1) + "\n"


def is_import(topic_id: str | None) -> bool:
    """Return whether a topic's id is that of an imported archive."""
    return topic_id is not None and topic_id.startswith(ID_PREFIX)


def load_origin(archive: Storage) -> Origin | None:
    """Return the origin of an archive; None if it was recorded from Kafka. Raises ArchiveError."""
    file = f"{archive.location}/{ORIGIN_NAME}"
    try:
        document = json.loads(archive.read(ORIGIN_NAME))
        if (document["format"], document["version"]) != (_FORMAT, _VERSION):
            raise ArchiveError(f"{file} was written by another version", "use the release that wrote it")
        return Origin(
            str(document["first_file"]),
            int(document["created"]),
            int(document["server_id"]),
            str(document["settings"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise ArchiveError(f"{file} is damaged: {error}", "restore the file from a copy") from error


def save_origin(archive: Storage, origin: Origin) -> None:
    """Write the origin of a new archive, or verify that an existing one has the same.

    Raises:
        ArchiveError: the archive has events of another origin, or cannot be written.
    """
    known = load_origin(archive)
    if known == origin:
        return
    if known is not None or find_manifest(archive) is not None:
        what = "Kafka's topics" if known is None else f"{known.first_file} with its definitions and tables"
        raise ArchiveError(
            f"{archive.location} contains events of {what}",
            "import into another folder; an import continues only with the same first file and definitions",
        )
    with locked(archive):
        try:
            archive.write(ORIGIN_NAME, origin.to_json().encode())
        except OSError as error:
            raise ArchiveError(f"cannot write to {archive.location}: {error}") from error
