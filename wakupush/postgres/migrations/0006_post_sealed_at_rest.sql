-- No code runs any more that reads secrets in the clear. The workers look for this migration: from here on they write
-- them sealed alone, and seal what is left.
COMMENT ON COLUMN registrations.device_token IS 'Only in rows that are not sealed yet.';
COMMENT ON COLUMN deliveries.message IS 'Only in rows that are not sealed yet.';
