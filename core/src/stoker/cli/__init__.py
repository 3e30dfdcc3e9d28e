"""The `stoker` command. Each module is one command; none keeps state, all of it is with the node."""
