-- What signs callbacks: secrets that sender and receiver share (v1) and, where a tenant wants them, key pairs (v1a). Each is
-- replaced while the one before it still signs.

ALTER TABLE tenants ADD COLUMN signatures text[] NOT NULL DEFAULT '{v1}'
    CHECK (signatures IN ('{v1}', '{v1a}', '{v1,v1a}'));
COMMENT ON COLUMN tenants.signatures IS 'the schemes that its callbacks are signed by';

ALTER TABLE signing_secrets ADD COLUMN scheme text NOT NULL DEFAULT 'v1' CHECK (scheme IN ('v1', 'v1a'));
COMMENT ON COLUMN signing_secrets.sealed IS 'of v1 the secret, of v1a the seed of the private key';

-- Of each scheme one is the present one, and only that has no end.
CREATE UNIQUE INDEX signing_secrets_present ON signing_secrets (tenant_id, scheme) WHERE expires_at IS NULL;

-- Receivers were told how long the old one signs: another rotation does not shorten that.
CREATE TRIGGER refuse_other_end BEFORE UPDATE OF expires_at ON signing_secrets FOR EACH ROW
WHEN (OLD.expires_at IS NOT NULL AND NEW.expires_at IS DISTINCT FROM OLD.expires_at)
EXECUTE FUNCTION refuse('a secret signs until the time that was promised');
