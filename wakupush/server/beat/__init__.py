"""Beat: it finishes what was cut off, enqueues what is due, and deletes what is old.

It runs in a process of its own, so that no backlog of messages and no hanging gorush holds it up. Any number of these
processes may run at the same time.
"""
