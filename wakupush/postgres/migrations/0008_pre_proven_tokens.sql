-- Whether a push to this version of the registration was ever taken by its platform. What is registered by now is trusted
-- as it was; what comes anew has to prove itself.
ALTER TABLE registrations ADD COLUMN proven boolean DEFAULT true;
ALTER TABLE registrations ALTER COLUMN proven SET DEFAULT false;

-- When an operator last put the message into its queue again; the row goes when the message is handled.
ALTER TABLE quarantine ADD COLUMN retried_at timestamptz;
