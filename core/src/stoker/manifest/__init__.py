"""Generations: building, opening, checking and comparing the immutable file that holds one listing of all sources.

Not for reading objects: a manifest says which version of which key a file is, `stoker.fetch` gets its bytes.
"""
