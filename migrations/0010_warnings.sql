-- What an article went without although it was published: an image that is broken, where its account's settings say so.
ALTER TABLE publications ADD COLUMN warnings jsonb;
COMMENT ON COLUMN publications.warnings IS 'a list of code and detail: what was left out in this round; null: nothing';
ALTER TABLE attempts ADD COLUMN warnings jsonb;
COMMENT ON COLUMN attempts.warnings IS 'what was left out by this try, as in publications';
