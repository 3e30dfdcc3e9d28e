"""The read-only FUSE server: kernel protocol, worker processes, shared open table, resume after a crash."""
