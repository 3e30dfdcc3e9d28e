"""The node daemon: composes cache, fetch and FUSE into processes, with an admin API."""
