//! What the built-in platform `sandbox` holds: written as any platform writes, in transactions of its own, and never in one
//! with the state of the service.
//!
//! Each request locks the account's row, then what it is about; between two requests nothing is held, so two who publish
//! the same article race here as they would anywhere.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::locks::lock_whole;
use super::{Store, StoreError, Unfinished};
use crate::account::AccountKey;

mod articles;
mod events;
mod serve;

pub use articles::{SANDBOX_ARTICLES_MAX, SandboxArticle};
pub use serve::{SandboxAsk, SandboxAsks, SandboxServed};

/// How many requests of an account are shown, the newest: what a rehearsal looks back on.
pub const SANDBOX_REQUESTS_MAX: i64 = 10_000;

/// An account of the sandbox.
#[derive(Debug, Clone, Copy)]
pub struct SandboxPlace<'a> {
    /// Whose.
    pub tenant_id: Uuid,
    /// The account.
    pub account_id: &'a str,
}

/// The article that a request is about.
#[derive(Debug, Clone, Copy)]
pub struct SandboxAbout<'a> {
    /// Its mark.
    pub marker: &'a str,
    /// The caller's id of it.
    pub external_id: &'a str,
    /// The id that the request bears.
    pub request_id: &'a str,
}

/// How things stand when a request arrives, with the request counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SandboxStanding {
    /// The article's place among those of the account, from 1; zero where the request is about none.
    pub ordinal: i32,
    /// How often this article was looked for.
    pub finds: i32,
    /// How often a draft of it was asked for.
    pub drafts: i32,
    /// How often it was to be published.
    pub publishes: i32,
    /// How many articles of the account became public under its present login.
    pub published: i32,
    /// Whether that login has expired.
    pub logged_out: bool,
}

/// What is to be noted of a request when it is decided what becomes of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SandboxNote {
    /// What the platform does instead of what it should.
    pub behaviour: Option<&'static str>,
    /// The how manieth of its kind about its article it is.
    pub nth: Option<u32>,
    /// Whether the login expires with it.
    pub logs_out: bool,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct SandboxDone {
    /// What was answered; none: no answer was given.
    pub http_status: Option<u16>,
    /// `made`, `published` or `removed`.
    pub effect: Option<&'static str>,
    /// The article that it was about, or made.
    pub article_id: Option<i64>,
}

/// A request that reached the sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxRequest {
    /// Its number among those of the account.
    pub number: i64,
    /// `find`, `draft`, `publish`, `remove`, `login` or `list`.
    pub kind: String,
    /// The mark of the article.
    pub marker: Option<String>,
    /// The caller's id of the article.
    pub external_id: Option<String>,
    /// The id that it bore.
    pub request_id: Option<String>,
    /// The how manieth of its kind about its article it was.
    pub nth: Option<i32>,
    /// What the platform did instead of what it should.
    pub behaviour: Option<String>,
    /// The article on the platform.
    pub article_id: Option<i64>,
    /// `made`, `published` or `removed`.
    pub effect: Option<String>,
    /// What was answered.
    pub http_status: Option<i32>,
    /// When it came.
    pub at: DateTime<Utc>,
    /// When the platform was done with it.
    pub answered_at: Option<DateTime<Utc>>,
}

/// Which part of a list is asked for: the newest first.
#[derive(Debug, Clone, Copy)]
pub struct SandboxPage<'a> {
    /// Only of this article.
    pub external_id: Option<&'a str>,
    /// Only what came before this one.
    pub before: i64,
    /// How many at most.
    pub limit: i64,
}

/// What became of a sandbox that was to be emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxEmptied {
    /// It holds nothing, and remembers nothing.
    Done,
    /// There is no such account.
    Absent,
    /// This much of it is unfinished, and would be looked for.
    Unfinished(Unfinished),
}

impl Store {
    /// Takes in a request: counts it, has it decided what becomes of it, and notes both. Returns its number and what was
    /// decided.
    pub async fn sandbox_request<T: Send>(
        &self,
        place: SandboxPlace<'_>,
        kind: &'static str,
        about: Option<SandboxAbout<'_>>,
        decide: impl FnOnce(&SandboxStanding) -> (SandboxNote, T) + Send,
    ) -> Result<(i64, T), StoreError> {
        let SandboxPlace { tenant_id, account_id } = place;
        let mut transaction = self.pool.begin().await?;
        // A login that was made since begins anew.
        let account = sqlx::query!(
            "INSERT INTO sandbox_accounts AS s (tenant_id, account_id, last_request, login_version)
            SELECT tenant_id, account_id, 1, credentials_version FROM accounts
            WHERE tenant_id = $1 AND platform = 'sandbox' AND account_id = $2
            ON CONFLICT (tenant_id, account_id) DO UPDATE SET last_request = s.last_request + 1,
                published = CASE WHEN excluded.login_version > s.login_version THEN 0 ELSE s.published END,
                logged_out = s.logged_out AND excluded.login_version <= s.login_version,
                login_version = greatest(s.login_version, excluded.login_version)
            RETURNING last_request, seen, published, logged_out",
            tenant_id,
            account_id,
        )
        .fetch_one(&mut *transaction)
        .await?;
        let mut standing = SandboxStanding {
            published: account.published,
            logged_out: account.logged_out,
            ..SandboxStanding::default()
        };
        if let Some(about) = about {
            let mark = sqlx::query!(
                "INSERT INTO sandbox_marks AS m (tenant_id, account_id, marker, ordinal, finds, drafts, publishes)
                VALUES ($1, $2, $3, $4, ($5::text = 'find')::int, ($5 = 'draft')::int, ($5 = 'publish')::int)
                ON CONFLICT (tenant_id, account_id, marker) DO UPDATE SET finds = m.finds + excluded.finds,
                    drafts = m.drafts + excluded.drafts, publishes = m.publishes + excluded.publishes
                RETURNING ordinal, finds, drafts, publishes",
                tenant_id,
                account_id,
                about.marker,
                account.seen + 1,
                kind,
            )
            .fetch_one(&mut *transaction)
            .await?;
            standing = SandboxStanding {
                ordinal: mark.ordinal,
                finds: mark.finds,
                drafts: mark.drafts,
                publishes: mark.publishes,
                ..standing
            };
        }
        let (note, decided) = decide(&standing);
        sqlx::query!(
            "WITH account AS (
                UPDATE sandbox_accounts SET seen = greatest(seen, $4), logged_out = logged_out OR $5
                WHERE tenant_id = $1 AND account_id = $2
            ), forgotten AS (
                DELETE FROM sandbox_requests WHERE tenant_id = $1 AND account_id = $2 AND number <= $3 - $12::bigint
            )
            INSERT INTO sandbox_requests (tenant_id, account_id, number, kind, marker, external_id, request_id, nth,
                behaviour, at)
            VALUES ($1, $2, $3, $6, $7, $8, $9, $10, $11, now() + $13::interval)",
            tenant_id,
            account_id,
            account.last_request,
            standing.ordinal,
            note.logs_out,
            kind,
            about.map(|about| about.marker),
            about.map(|about| about.external_id),
            about.map(|about| about.request_id),
            note.nth.and_then(|nth| i32::try_from(nth).ok()),
            note.behaviour,
            SANDBOX_REQUESTS_MAX,
            self.clock.skew() as _,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok((account.last_request, decided))
    }

    /// Notes what came of a request.
    pub async fn sandbox_answer(
        &self,
        place: SandboxPlace<'_>,
        number: i64,
        done: SandboxDone,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE sandbox_requests SET http_status = $4, effect = $5, article_id = $6, answered_at = now() + $7::interval
            WHERE tenant_id = $1 AND account_id = $2 AND number = $3",
            place.tenant_id,
            place.account_id,
            number,
            done.http_status.map(i32::from),
            done.effect,
            done.article_id,
            self.clock.skew() as _,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The requests that reached an account, page by page.
    pub async fn sandbox_requests(
        &self,
        place: SandboxPlace<'_>,
        page: SandboxPage<'_>,
    ) -> Result<Vec<SandboxRequest>, StoreError> {
        let requests = match page.external_id {
            None => {
                sqlx::query_as!(
                    SandboxRequest,
                    "SELECT number, kind, marker, external_id, request_id, nth, behaviour, article_id, effect, http_status, at,
                        answered_at
                    FROM sandbox_requests WHERE tenant_id = $1 AND account_id = $2 AND number < $3
                        AND number > (SELECT last_request FROM sandbox_accounts WHERE tenant_id = $1 AND account_id = $2) - $5::bigint
                    ORDER BY tenant_id DESC, account_id DESC, number DESC LIMIT $4",
                    place.tenant_id,
                    place.account_id,
                    page.before,
                    page.limit,
                    SANDBOX_REQUESTS_MAX,
                )
                .fetch_all(&self.pool)
                .await?
            }
            Some(external_id) => {
                sqlx::query_as!(
                    SandboxRequest,
                    "SELECT number, kind, marker, external_id, request_id, nth, behaviour, article_id, effect, http_status, at,
                        answered_at
                    FROM sandbox_requests WHERE tenant_id = $1 AND account_id = $2 AND number < $3 AND external_id = $6
                        AND number > (SELECT last_request FROM sandbox_accounts WHERE tenant_id = $1 AND account_id = $2) - $5::bigint
                    ORDER BY tenant_id DESC, account_id DESC, number DESC LIMIT $4",
                    place.tenant_id,
                    place.account_id,
                    page.before,
                    page.limit,
                    SANDBOX_REQUESTS_MAX,
                    external_id,
                )
                .fetch_all(&self.pool)
                .await?
            }
        };
        Ok(requests)
    }

    /// Empties an account of the sandbox, and has it forget what it was asked. Only while nothing of it is unfinished, or an
    /// article that is public would be looked for and made again. Ids are not used again.
    pub async fn empty_sandbox(
        &self,
        tenant_id: Uuid,
        key: &AccountKey,
    ) -> Result<SandboxEmptied, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let Some((_, unfinished)) = lock_whole(tenant_id, key, &mut transaction).await? else {
            return Ok(SandboxEmptied::Absent);
        };
        // A draft has not been anywhere yet.
        let unfinished = Unfinished { draft: 0, ..unfinished };
        if unfinished != Unfinished::default() {
            return Ok(SandboxEmptied::Unfinished(unfinished));
        }
        // The account first, as every request does.
        sqlx::query!(
            "UPDATE sandbox_accounts SET held = 0, seen = 0, published = 0 WHERE tenant_id = $1 AND account_id = $2",
            tenant_id,
            key.account_id(),
        )
        .execute(&mut *transaction)
        .await?;
        sqlx::query!(
            "WITH articles AS (
                DELETE FROM sandbox_articles WHERE tenant_id = $1 AND account_id = $2
            ), marks AS (
                DELETE FROM sandbox_marks WHERE tenant_id = $1 AND account_id = $2
            )
            DELETE FROM sandbox_requests WHERE tenant_id = $1 AND account_id = $2",
            tenant_id,
            key.account_id(),
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(SandboxEmptied::Done)
    }
}
