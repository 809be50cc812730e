"""The protocol, sans-IO: bytes and values in, bytes and decisions out.

From the outside in: a message (14/WAKU2-MESSAGE, `wakupush.model.waku_message`) carries a `payload`
(26/WAKU2-PAYLOAD). That carries a segment or an `application` message (62/STATUS-PAYLOADS), which carries one of the
messages of 71/STATUS-PUSH-NOTIFICATION-SERVER: `registration`, `query`, `request`.
No module here uses a socket, a clock, a database or a setting.
"""
