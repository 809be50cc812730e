"""Deliveries: one attempt through gorush, and its outcome.

First attempts come from the engine, next ones from beat (`next_attempts`), late failures from gorush's `webhook`. All
attempts go the same way: `posts` → `attempt` → `outcome`.
"""
