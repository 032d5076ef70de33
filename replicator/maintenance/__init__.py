"""Keep lake tables small: merge files, remove deleted rows from data files, and delete old snapshots.

A mirror adds a data file and a delete file to a table with every commit. `small_merge` merges the newest ones on the
driver, which knows their rows. `plan` decides from loaded facts which other steps are due, without I/O; `history`
knows when each was last done, and `table_reader` reads all of it without Java. `steps` carries each one out with
Iceberg's own actions; `upkeep` runs them between the batches of a mirror, within limits.

Data files are merged as in a log-structured merge tree: ten files of about the same size become one, ten of those
become a larger one. So a row is rewritten only a few times, and a table has only a few small files, however often it
is committed to.
"""
