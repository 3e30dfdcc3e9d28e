"""Pages of objects on local disks: which bytes are here, who may write them, and how much room they may take.

Invariants, lock table and crash cases: docs/design/cache.md. Not for: talking to stores (`fetch`), sockets (`node`).
"""
