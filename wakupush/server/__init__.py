"""The server: messages come to the `inbox`, notifications leave by `delivery`, answers by the `outbox`.

The `schedule` makes up for what was cut off.
"""
