"""Compare a mirror with its source while both change: canonical forms, checksums on both sides, rows, reports."""
