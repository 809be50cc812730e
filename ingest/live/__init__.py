"""`wakupush ingest live`: poll the relays of all Waku nodes, and enqueue what is for us.

Several nodes are polled side by side; the poller that reads a message first claims it. What they heard is compared, so
that a node which is deaf or mute is left out for sending.
"""
