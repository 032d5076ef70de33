"""Iceberg: what is written to the lake, and what is read there. This package and `maintenance` alone write it.

`catalog` has tables and commits to known metadata, `files` writes files that no reader sees yet, `rows` knows where
rows are, `strategies` combines them to a change of a mirror (`registry`), and `reading` needs neither Spark nor Java.
`commit` makes files visible together with the commit marker, in one atomic commit; `ledger` reads the markers.
"""
