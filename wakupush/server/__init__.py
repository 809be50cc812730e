"""The server. A kind of message has one room: `registration`, `query`, `push`. The `engine` runs them.

Notifications leave by `delivery`, and `beat` makes up for what was cut off.
"""
