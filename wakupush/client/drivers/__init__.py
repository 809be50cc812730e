"""What carries the rules out: the network, storage, and tasks of an event loop."""
