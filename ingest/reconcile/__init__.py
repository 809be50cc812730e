"""`wakupush ingest reconcile`: what the Stores have and the ledger has not is enqueued.

One mechanism heals whatever loses messages: downtime of ingest, a cache of the node that ran over, a wiped Redis, a
killed worker. Several of these processes do each other no harm: they claim messages as ingest live does.
"""
