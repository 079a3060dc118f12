-- What a run of several steps needs: a draft that is found again before anything is public, an account that its platform
-- slows down, and what came back of each step.

ALTER TABLE attempts DROP CONSTRAINT attempts_kind_check;
ALTER TABLE attempts ADD CONSTRAINT attempts_kind_check CHECK (kind IN ('probe', 'prepare', 'draft', 'publish', 'remove'));
ALTER TABLE attempts ADD COLUMN remote_id text;
ALTER TABLE attempts ADD COLUMN over_at timestamptz;
ALTER TABLE attempts ADD COLUMN http_status int;
ALTER TABLE attempts ADD COLUMN answer_head text;
COMMENT ON COLUMN attempts.remote_id IS 'what on the platform it was about, or made';
COMMENT ON COLUMN attempts.over_at IS 'while the outcome is not known: nothing of it was begun later, so what the platform shows a settle time after that is true';
COMMENT ON COLUMN attempts.answer_head IS 'the first characters of the platform''s last answer, without secrets';

ALTER TABLE publications ADD COLUMN draft_id text;
ALTER TABLE publications ADD COLUMN drafts int NOT NULL DEFAULT 0 CHECK (drafts >= 0);
ALTER TABLE publications ADD COLUMN sweep_at timestamptz;
COMMENT ON COLUMN publications.draft_id IS 'the draft on the platform that is to be published, or was';
COMMENT ON COLUMN publications.drafts IS 'how often a draft was asked for, over all rounds';
COMMENT ON COLUMN publications.sweep_at IS 'while set: the platform is looked at once more then, and drafts that nobody needs are removed';
ALTER TABLE publications ADD CONSTRAINT swept_when_it_has_ended
    CHECK (sweep_at IS NULL OR status IN ('success', 'failed'));
CREATE INDEX publications_to_sweep ON publications (tenant_id, sweep_at) WHERE sweep_at IS NOT NULL;

-- What holds an account up stands where the claim looks.
ALTER TABLE lanes ADD COLUMN parked_until timestamptz;
COMMENT ON COLUMN lanes.parked_until IS 'the platform asked for a pause until then; free_at is not earlier';
