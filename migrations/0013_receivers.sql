-- What a receiver did lately decides how much it is given: one that has not answered well yet, or fails, gets one call at a
-- time; one that fails again and again is left alone (its `free_at` lies ahead), and tried by one call when that has passed.

ALTER TABLE receivers ADD COLUMN proven boolean NOT NULL DEFAULT false;
ALTER TABLE receivers ADD COLUMN failures int NOT NULL DEFAULT 0 CHECK (failures >= 0);
ALTER TABLE receivers ADD COLUMN recovering boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN receivers.proven IS 'the last that was heard of it is a 2xx answer';
COMMENT ON COLUMN receivers.failures IS 'how often in a row it gave no answer or 502, 503 or 504; from 5 on its breaker is open';
COMMENT ON COLUMN receivers.recovering IS 'it has come back: what waited meanwhile goes out at a pace';
ALTER TABLE receivers ADD CONSTRAINT proven_has_not_failed_since CHECK (NOT proven OR failures = 0);

-- For the count of open breakers; `free_at` and `in_flight` stand in no index.
CREATE INDEX receivers_open ON receivers (tenant_id) WHERE failures >= 5;
