"""Frozen values shared by all packages; standard library only.

The types of everything that crosses a package boundary, is written with a commit, or is planned before it is executed.
"""
