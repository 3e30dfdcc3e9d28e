"""Stoker: training data from object stores, cached on local disks, mounted as files."""

__version__ = "0.1.0"
