"""The engine's vocabulary: small frozen values, standard library only.

Everything that crosses a stage boundary, is written into a commit or is planned
before it is executed has its type here.
"""
