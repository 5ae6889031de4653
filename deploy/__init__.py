"""Starting, supervising and observing the process group."""
