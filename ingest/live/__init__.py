"""`wakupush ingest live`: poll the relays of all Waku nodes, and enqueue what is for us.

It polls several nodes side by side; the poller that reads a message first claims it. It compares the messages that the
nodes heard, so that senders leave out a deaf or mute node.
"""
