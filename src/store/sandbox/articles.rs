//! The articles that the sandbox holds.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{SandboxAbout, SandboxPage, SandboxPlace};
use crate::article::Content;
use crate::retry::interval;
use crate::store::{Store, StoreError};

/// How many articles an account holds at most: a rehearsal has fewer, and all go at once when it is emptied.
pub const SANDBOX_ARTICLES_MAX: i32 = 100_000;

/// An article that the sandbox holds.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxArticle {
    /// The platform's id of it.
    pub article_id: i64,
    /// Its mark.
    pub marker: String,
    /// The caller's id of it.
    pub external_id: String,
    /// Its title.
    pub title: String,
    /// Since when it is there.
    pub made_at: DateTime<Utc>,
    /// Since when it is public.
    pub public_at: Option<DateTime<Utc>>,
}

/// What an article holds beside its title, as JSON.
pub(super) fn body(content: &Content) -> String {
    let body = json!({
        "content_html": content.content_html, "summary": content.summary, "cover_url": content.cover_url,
        "canonical_url": content.canonical_url, "author": content.author, "tags": content.tags,
    });
    body.to_string()
}

impl Store {
    /// Makes a draft that is there after `delay`, and returns its id; none if the account holds as many articles as it may.
    pub async fn sandbox_draft(
        &self,
        place: SandboxPlace<'_>,
        about: SandboxAbout<'_>,
        content: &Content,
        delay: Duration,
    ) -> Result<Option<i64>, StoreError> {
        let made = sqlx::query_scalar!(
            "WITH account AS (
                UPDATE sandbox_accounts SET last_article = last_article + 1, held = held + 1
                WHERE tenant_id = $1 AND account_id = $2 AND held < $9
                RETURNING last_article
            )
            INSERT INTO sandbox_articles (tenant_id, account_id, article_id, marker, external_id, title, content, made_at)
            SELECT $1, $2, last_article, $3, $4, $5, $6, now() + $7::interval + $8::interval FROM account
            RETURNING article_id",
            place.tenant_id,
            place.account_id,
            about.marker,
            about.external_id,
            content.title,
            body(content),
            self.clock.skew() as _,
            interval(delay) as _,
            SANDBOX_ARTICLES_MAX,
        );
        Ok(made.fetch_optional(&self.pool).await?)
    }

    /// Publishes an article after `delay`, unless it is public already; false if it is not there.
    pub async fn sandbox_publish(
        &self,
        place: SandboxPlace<'_>,
        article_id: i64,
        delay: Duration,
    ) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar!(
            "WITH account AS MATERIALIZED (
                SELECT account_id FROM sandbox_accounts WHERE tenant_id = $1 AND account_id = $2 FOR NO KEY UPDATE
            ), before AS MATERIALIZED (
                SELECT article_id, public_at FROM sandbox_articles
                WHERE tenant_id = $1 AND account_id = $2 AND article_id = $3 AND made_at <= now() + $4::interval
                    AND (SELECT count(*) FROM account) >= 0
                FOR NO KEY UPDATE
            ), published AS (
                UPDATE sandbox_articles a SET public_at = least(a.public_at, now() + $4::interval + $5::interval)
                FROM before b WHERE a.tenant_id = $1 AND a.account_id = $2 AND a.article_id = b.article_id
            ), counted AS (
                UPDATE sandbox_accounts SET published = published + 1
                WHERE tenant_id = $1 AND account_id = $2 AND EXISTS (SELECT FROM before WHERE public_at IS NULL)
            )
            SELECT article_id FROM before",
            place.tenant_id,
            place.account_id,
            article_id,
            self.clock.skew() as _,
            interval(delay) as _,
        );
        Ok(found.fetch_optional(&self.pool).await?.is_some())
    }

    /// Removes a draft; true if it is public and was left, none if it is not there.
    pub async fn sandbox_remove(
        &self,
        place: SandboxPlace<'_>,
        article_id: i64,
    ) -> Result<Option<bool>, StoreError> {
        let public = sqlx::query_scalar!(
            r#"WITH account AS MATERIALIZED (
                SELECT account_id FROM sandbox_accounts WHERE tenant_id = $1 AND account_id = $2 FOR NO KEY UPDATE
            ), before AS MATERIALIZED (
                SELECT article_id, coalesce(public_at <= now() + $4::interval, false) AS public FROM sandbox_articles
                WHERE tenant_id = $1 AND account_id = $2 AND article_id = $3 AND (SELECT count(*) FROM account) >= 0
                FOR UPDATE
            ), gone AS (
                DELETE FROM sandbox_articles a USING before b
                WHERE a.tenant_id = $1 AND a.account_id = $2 AND a.article_id = b.article_id AND NOT b.public
            ), counted AS (
                UPDATE sandbox_accounts SET held = held - 1
                WHERE tenant_id = $1 AND account_id = $2 AND EXISTS (SELECT FROM before WHERE NOT public)
            )
            SELECT public AS "public!" FROM before"#,
            place.tenant_id,
            place.account_id,
            article_id,
            self.clock.skew() as _,
        );
        Ok(public.fetch_optional(&self.pool).await?)
    }

    /// The articles that carry a mark, the oldest first, and whether each is public.
    pub async fn sandbox_find(
        &self,
        place: SandboxPlace<'_>,
        about: SandboxAbout<'_>,
    ) -> Result<Vec<(i64, bool)>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT article_id, coalesce(public_at <= now() + $4::interval, false) AS "public!" FROM sandbox_articles
            WHERE tenant_id = $1 AND account_id = $2 AND external_id = $5 AND marker = $3 AND made_at <= now() + $4::interval
            ORDER BY tenant_id, account_id, external_id, article_id"#,
            place.tenant_id,
            place.account_id,
            about.marker,
            self.clock.skew() as _,
            about.external_id,
        );
        let rows = rows.fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|row| (row.article_id, row.public)).collect())
    }

    /// The articles of an account, page by page.
    pub async fn sandbox_articles(
        &self,
        place: SandboxPlace<'_>,
        page: SandboxPage<'_>,
    ) -> Result<Vec<SandboxArticle>, StoreError> {
        let skew = self.clock.skew();
        // Two statements, so that each has an index that it follows.
        let articles = match page.external_id {
            None => {
                sqlx::query_as!(
                    SandboxArticle,
                    "SELECT article_id, marker, external_id, title, made_at,
                        CASE WHEN public_at <= now() + $5::interval THEN public_at END AS public_at
                    FROM sandbox_articles
                    WHERE tenant_id = $1 AND account_id = $2 AND article_id < $3 AND made_at <= now() + $5::interval
                    ORDER BY tenant_id DESC, account_id DESC, article_id DESC LIMIT $4",
                    place.tenant_id,
                    place.account_id,
                    page.before,
                    page.limit,
                    skew as _,
                )
                .fetch_all(&self.pool)
                .await?
            }
            Some(external_id) => {
                sqlx::query_as!(
                    SandboxArticle,
                    "SELECT article_id, marker, external_id, title, made_at,
                        CASE WHEN public_at <= now() + $5::interval THEN public_at END AS public_at
                    FROM sandbox_articles
                    WHERE tenant_id = $1 AND account_id = $2 AND article_id < $3 AND made_at <= now() + $5::interval
                        AND external_id = $6
                    ORDER BY tenant_id DESC, account_id DESC, external_id DESC, article_id DESC LIMIT $4",
                    place.tenant_id,
                    place.account_id,
                    page.before,
                    page.limit,
                    skew as _,
                    external_id,
                )
                .fetch_all(&self.pool)
                .await?
            }
        };
        Ok(articles)
    }

    /// One article, with what it holds beside the title.
    pub async fn sandbox_article(
        &self,
        place: SandboxPlace<'_>,
        article_id: i64,
    ) -> Result<Option<(SandboxArticle, Value)>, StoreError> {
        let row = sqlx::query!(
            r#"SELECT article_id, marker, external_id, title, content::json AS "content!", made_at,
                CASE WHEN public_at <= now() + $4::interval THEN public_at END AS public_at
            FROM sandbox_articles
            WHERE tenant_id = $1 AND account_id = $2 AND article_id = $3 AND made_at <= now() + $4::interval"#,
            place.tenant_id,
            place.account_id,
            article_id,
            self.clock.skew() as _,
        );
        Ok(row.fetch_optional(&self.pool).await?.map(|row| {
            let (article_id, public_at) = (row.article_id, row.public_at);
            let (marker, external_id, title) = (row.marker, row.external_id, row.title);
            let made_at = row.made_at;
            (SandboxArticle { article_id, marker, external_id, title, made_at, public_at }, row.content)
        }))
    }
}
