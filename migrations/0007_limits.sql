-- How much an account may publish in a day stands where the claim looks, beside what it has published.
--
-- A slot of the day is taken when a publication is claimed, and given back when its run has ended and nothing was
-- published. What is counted is counted whether there is a limit or not, so that one that is set holds at once.

ALTER TABLE lanes ADD COLUMN daily_limit int CHECK (daily_limit >= 1);
ALTER TABLE lanes ADD COLUMN time_zone text NOT NULL DEFAULT 'UTC';
ALTER TABLE lanes ADD COLUMN day date;
ALTER TABLE lanes ADD COLUMN day_count int NOT NULL DEFAULT 0 CHECK (day_count >= 0);
COMMENT ON COLUMN lanes.day IS 'the day that day_count counts, in the account''s time zone';
COMMENT ON COLUMN lanes.day_count IS 'how many slots of that day are taken';

UPDATE lanes l SET daily_limit = a.daily_limit, time_zone = a.time_zone
FROM accounts a WHERE a.tenant_id = l.tenant_id AND a.platform = l.platform AND a.account_id = l.account_id;

ALTER TABLE accounts DROP COLUMN daily_limit;
ALTER TABLE accounts DROP COLUMN time_zone;

ALTER TABLE publications ADD COLUMN counted_on date;
COMMENT ON COLUMN publications.counted_on IS 'the day of its account of which it has a slot';

-- The day that it is for an account. One that has begun does not come back: neither where the clock is put back over
-- midnight, nor where the account moves to a zone further west, which may be two days behind. One that lies further
-- ahead was begun by a clock that was wrong, and counts for nothing.
CREATE FUNCTION account_day(begun date, time_zone text, at timestamptz) RETURNS date LANGUAGE sql IMMUTABLE
RETURN CASE WHEN begun - (at AT TIME ZONE time_zone)::date BETWEEN 0 AND 2 THEN begun
    ELSE (at AT TIME ZONE time_zone)::date END;

-- When a day is over. Where the hour after midnight comes twice, the database names the second midnight, and it is the
-- first that ends the day.
CREATE FUNCTION day_end(day date, time_zone text) RETURNS timestamptz LANGUAGE sql STABLE
RETURN CASE WHEN (((day + 1)::timestamp AT TIME ZONE time_zone - interval '1 hour') AT TIME ZONE time_zone)::date > day
    THEN (day + 1)::timestamp AT TIME ZONE time_zone - interval '1 hour'
    ELSE (day + 1)::timestamp AT TIME ZONE time_zone END;

-- Until when an account is held up because its day is full; NULL where it is not.
CREATE FUNCTION full_until(daily_limit int, day date, day_count int, time_zone text, at timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE
RETURN CASE WHEN day_count >= daily_limit AND day = account_day(day, time_zone, at) THEN day_end(day, time_zone) END;
