"""What gorush tells its webhook."""

import json

DEAD, BUSY = "Unregistered", "ServiceUnavailable"


def body(delivery_key, error=DEAD, attempt=1, **fields) -> bytes:
    notif_id = f"{delivery_key.hex()}-{attempt}" if isinstance(delivery_key, bytes) else delivery_key
    entry = {"notif_id": notif_id, "type": "failed-push", "platform": "ios", "token": "t", "message": "m"}
    return json.dumps(entry | {"error": error} | fields).encode()
