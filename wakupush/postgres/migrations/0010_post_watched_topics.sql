-- Nothing changes here. That this was applied says that no code of 0.1.0 runs any more: the schedule takes in the set
-- of watched topics in Redis that only this code reads (wakupush/server/schedule/fill_watched_topics.py).
SELECT 1;
