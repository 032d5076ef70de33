"""Implement each command except `run`. One module or package per command; commands do not import each other."""
