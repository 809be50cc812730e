"""The service levels that alerts watch and reports judge: how fast, and how much may miss that."""

from typing import Final

#: Seconds from ingest seeing a message to its answer; a client waits no longer.
ANSWER_SECONDS: Final = 3
#: Seconds from ingest seeing a push request to gorush taking the notification.
DELIVERY_SECONDS: Final = 10
#: The share of answers that may be late, of deliveries that may be late, and of notifications that may be lost.
BUDGET: Final = 0.01
