"""How the messages of a task are handled, whatever kind they are of.

`run` has the steps in their order, `kind` says what a kind of message brings, and `isolation` stands around both.
"""
