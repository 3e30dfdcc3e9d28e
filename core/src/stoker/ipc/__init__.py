"""How Stoker's processes on one machine speak: JSON messages and file descriptors over unix sockets."""
