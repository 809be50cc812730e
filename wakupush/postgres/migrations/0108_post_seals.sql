-- From here on contents of deliveries, and segments, are sealed for their rows, and contents with the key of a month: code
-- that does not know this migration cannot open them.
COMMENT ON COLUMN deliveries.sealed_content IS 'sealed for its row, with the key of a month';
COMMENT ON COLUMN message_segments.payload IS 'sealed for its row';
