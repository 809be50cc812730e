-- `wakupush why` looks for minutes of a day, which can have hundreds of millions of events. Rows come in the order of their
-- time, or nearly, so a summary of each range of pages is enough. Partitions that are there already stay as they are: to
-- index them would read them; days made from now on have it.
CREATE INDEX delivery_events_time ON ONLY delivery_events USING brin (time)
    WITH (pages_per_range = 32, autosummarize = on);
