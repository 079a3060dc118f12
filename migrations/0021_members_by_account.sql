-- Whose groups an account is in is asked whenever it changes; by the key, all members of all groups of its tenant were read.
CREATE INDEX group_members_by_account ON group_members (tenant_id, platform, account_id);
