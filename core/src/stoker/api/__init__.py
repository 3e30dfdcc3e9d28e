"""The API of Stoker: the three kinds, parsed once at the edge and frozen after; reasons and errors."""
