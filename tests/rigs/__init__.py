"""Parts of Stoker put together in one process, for tests of several packages."""
