"""Read a table again from the source while everything else continues: for a new table, and to heal one.

The rows are read into a staging table, without locks and in parts, while the source changes. The changes since the
start of reading are then applied to the staging table by the code that applies all changes, until it is past everything
that reading may have seen. Its state is then that of the source at one position of the log, and it becomes the mirror,
or the mirror gets the differences.
"""
