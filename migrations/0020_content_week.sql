-- The look-up behind the warning `same_content_as` met a page of its index for each article, in no order, and so had each
-- written whole once after every checkpoint. What is of one week stands together now, by the beginning of its fingerprint; and by
-- its group, or where many groups hold the same, each article of another would read them all.
CREATE FUNCTION content_week(at timestamptz) RETURNS timestamp LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN date_trunc('week', at AT TIME ZONE 'UTC');

-- Where it is looked for: in this week and in the last.
CREATE FUNCTION recent_weeks(at timestamptz) RETURNS timestamp[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY[content_week(at), content_week(at) - interval '7 days'];

DROP INDEX tasks_by_content;
CREATE INDEX tasks_by_content ON tasks (tenant_id, content_week(created_at), substring(fingerprint FROM 1 FOR 8), group_code);

COMMENT ON COLUMN retentions.contents_kept IS 'the first that this lap met and left, since it had not ended long enough ago';
