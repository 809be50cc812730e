"""Deliveries: one attempt through gorush, and its outcome.

First attempts come from the inbox, next ones from the schedule (`next_attempts`), late failures from gorush's webhook
(`feedback`). All attempts go the same way: `lanes` → `attempt` → `settlement`.
"""
