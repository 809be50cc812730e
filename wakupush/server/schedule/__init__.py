"""The schedule: what was cut off is made up for, what is due is enqueued, what is old is deleted.

It runs in a process of its own, so that no backlog of messages and no hanging gorush holds it up, and any number of
those processes do each other no harm.
"""
