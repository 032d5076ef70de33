"""Pack a local lake and its archive into one file, and unpack it to any folder.

Iceberg's metadata has absolute paths. In the file they begin with `ANYWHERE`; `unpack` replaces that by the folder in
the catalog, metadata files, manifest lists, manifests and position-delete files.
"""

import io
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ANYWHERE: Final = "/folder-of-the-fixture"
CATALOG: Final = "lake/catalog.db"
_POSITION_DELETES: Final = {"file_path", "pos"}


def pack(folder: Path, file: Path) -> None:
    """Write the files of `folder` to `file`. The folder's lake cannot be used afterwards."""
    relocate(folder, str(folder), ANYWHERE)
    with tarfile.open(file, "w:xz", preset=9) as archive:
        for path in sorted(folder.rglob("*"), key=lambda p: (p.suffix, str(p))):
            # Hadoop's checksum files do not match the changed files.
            if path.is_file() and path.name != ".lock" and path.suffix != ".crc":
                content = path.read_bytes()
                entry = tarfile.TarInfo(str(path.relative_to(folder)))
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def unpack(file: Path, folder: Path) -> None:
    """Read what `pack` wrote into `folder`."""
    with tarfile.open(file, "r:xz") as archive:
        # The filters of tarfile do not exist before Python 3.11.4, and Debian 12 has 3.11.2.
        archive.extractall(folder)
    relocate(folder, ANYWHERE, str(folder))


def relocate(folder: Path, old: str, new: str) -> None:
    """Replace `old` by `new` at the beginning of every path in the lake in `folder`."""
    # A file contains the sizes of the files that it refers to, so those are written first.
    files = sorted((folder / "lake").rglob("*"))
    deletes = [file for file in files if file.suffix == ".parquet" and _is_position_deletes(file)]
    for file in deletes:
        _relocate_deletes(file, old, new)
    avro = [file for file in files if file.suffix == ".avro"]
    manifests = [file for file in avro if not file.name.startswith("snap-")]
    resized = {f"{new}/{file.relative_to(folder)}": file.stat().st_size for file in deletes}
    for file in manifests:
        _relocate_avro(file, old, new, resized)
    resized = {f"{new}/{file.relative_to(folder)}": file.stat().st_size for file in manifests}
    for file in set(avro).difference(manifests):
        _relocate_avro(file, old, new, resized)
    for file in files:
        if file.name.endswith(".metadata.json"):
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace(old, new), encoding="utf-8")
    _relocate_catalog(folder / CATALOG, old, new)


def _is_position_deletes(file: Path) -> bool:
    return set(pq.read_schema(file).names) == _POSITION_DELETES


def _relocate_deletes(file: Path, old: str, new: str) -> None:
    table = pq.ParquetFile(file).read()
    column = table.schema.get_field_index("file_path")
    paths = pc.replace_substring(table.column("file_path").cast(pa.string()), old, new)
    table = table.set_column(column, table.schema.field(column), paths)
    pq.write_table(table, file, compression="zstd", store_schema=False)


def _relocate_avro(file: Path, old: str, new: str, sizes: dict[str, int]) -> None:
    with file.open("rb") as stream:
        reader = fastavro.reader(stream)
        schema = reader.writer_schema
        metadata = {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
        records = [_resized(_renamed(record, old, new), sizes) for record in reader]
    with file.open("wb") as stream:
        # Many small uncompressed files are smaller in one compressed archive.
        fastavro.writer(stream, schema, records, codec="null", metadata=metadata)


def _renamed(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return value.replace(old, new)
        case bytes():
            return value.replace(old.encode(), new.encode())
        case dict():
            return {name: _renamed(inner, old, new) for name, inner in value.items()}
        case list():
            return [_renamed(inner, old, new) for inner in value]
        case _:
            return value


def _resized(record: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    if "manifest_path" in record:
        return record | {"manifest_length": _size(record["manifest_path"], sizes, record["manifest_length"])}
    data = record["data_file"]
    size = _size(data["file_path"], sizes, data["file_size_in_bytes"])
    return record | {"data_file": data | {"file_size_in_bytes": size}}


def _size(path: str, sizes: dict[str, int], known: int) -> int:
    return sizes.get(path.removeprefix("file:"), known)


def _relocate_catalog(file: Path, old: str, new: str) -> None:
    columns = {
        "iceberg_tables": ("metadata_location", "previous_metadata_location"),
        "iceberg_namespace_properties": ("property_value",),
    }
    with closing(sqlite3.connect(file)) as connection:
        for table, names in columns.items():
            for name in names:
                connection.execute(f"UPDATE {table} SET {name} = replace({name}, ?, ?)", (old, new))
        connection.commit()
        connection.execute("VACUUM")
