-- The role as which the service works: it owns nothing, and `migrate --grant publish_serve` gives it what it needs. For psql,
-- with its password in SERVE_PASSWORD; may be run again.
\getenv password SERVE_PASSWORD
SELECT 'CREATE ROLE publish_serve' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'publish_serve') \gexec
ALTER ROLE publish_serve LOGIN PASSWORD :'password';
