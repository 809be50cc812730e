"""`wakupush ingest reconcile`: enqueue messages that the Stores have and the ledger lacks.

One mechanism heals every loss of messages: downtime of ingest, an overflow of a node's cache, a wiped Redis, a killed
worker. Several of these processes may run at once: they claim messages as ingest live does.
"""
