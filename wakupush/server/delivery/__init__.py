"""Deliveries: one attempt through gorush, and what it comes to.

First attempts come from the inbox, next ones from the schedule (`next_attempts`), late news from gorush's webhook
(`feedback`). All go the same way: `lanes` → `attempt` → `settlement`.
"""
