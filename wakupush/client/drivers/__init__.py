"""The input and output for the rules: the network, storage, and tasks of an event loop."""
