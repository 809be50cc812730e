-- Its rows are few and large: a thousand dead ones can hold 300 MB.
ALTER TABLE message_segments SET (autovacuum_vacuum_threshold = 100);
