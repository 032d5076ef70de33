"""Event archives: a change log kept as a folder of Parquet files, on a disk or in an object store.

`manifest.json` and the pages of its index list the contents of the folder. The manifest is always written last, so that
readers see only complete files. `format` has the types and `documents` their JSON formats, `containers` the files with
events, `storage` the folder, and `ArchiveReader` and `ArchiveWriter` the two directions. `pending` has the events that
are not written yet, and `spans` their positions. `moments` finds the part of an archive up to a moment of the source.
"""
