"""Decode raw records of the log to typed change events, as Arrow tables.

`event_format` is the protocol of formats, `json` and `avro` implement it, and `schemas` finds the version of the
table's schema to which each event belongs. All formats decode to one frame (`event_frame`).
"""
