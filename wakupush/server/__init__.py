"""The server: messages come to the `inbox`, notifications leave by `delivery`, answers by the `outbox`.

`beat` makes up for what was cut off.
"""
