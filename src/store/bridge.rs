//! What a bridge reports by a call of its own.

use sqlx::PgTransaction;
use uuid::Uuid;

use super::{Move, Published, Store, StoreError, Telling};
use crate::task::state::Status;

/// A publication, as a report is held against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its state.
    pub status: Status,
    /// Its present round.
    pub round: i32,
    /// Whether it may have been published, and nobody knows.
    pub outcome_unknown: bool,
    /// Whether it was ever sent.
    pub sent: bool,
    /// Whether it is being sent just now.
    pub held: bool,
    /// How many handings out there were of which nobody has said what came of them, where a robot fetches what is due on its
    /// account; none: it is sent.
    pub handed: Option<i64>,
}

/// What a report does.
#[derive(Debug, Clone)]
pub enum ReportDoes {
    /// It ends what runs.
    Ends(Box<Move>),
    /// It states that the article was published.
    Confirms(Published),
    /// It comes too late, or never was asked for; why.
    Nothing(String),
    /// The article is being sent again just now, and the answer to that will say more: the report may come again.
    NotNow,
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportTaken {
    /// It counts.
    Done,
    /// It does nothing; why.
    Refused(String),
    /// It may come again in a moment.
    NotNow,
}

impl Store {
    /// Takes the report on a publication of that platform; `decide` says, under its lock, what it does. None if there is no
    /// such publication.
    pub async fn report(
        &self,
        tenant_id: Uuid,
        publication_id: Uuid,
        platform: &str,
        telling: Telling,
        decide: impl FnOnce(Standing, (Uuid, i32)) -> ReportDoes,
    ) -> Result<Option<ReportTaken>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let standing = lock_standing(tenant_id, publication_id, platform, &mut transaction).await?;
        let Some((standing, fence)) = standing else { return Ok(None) };
        match decide(standing, (publication_id, fence)) {
            ReportDoes::Ends(end) => {
                self.apply(tenant_id, &[*end], telling, &mut transaction).await?;
            }
            ReportDoes::Confirms(published) => {
                let held = ((publication_id, fence), standing.status);
                self.confirm_published(tenant_id, held, published, telling, &mut transaction).await?;
            }
            ReportDoes::Nothing(why) => return Ok(Some(ReportTaken::Refused(why))),
            ReportDoes::NotNow => return Ok(Some(ReportTaken::NotNow)),
        }
        transaction.commit().await?;
        Ok(Some(ReportTaken::Done))
    }
}

/// Locks a publication of that platform; how it stands, and its fence.
pub(super) async fn lock_standing(
    tenant_id: Uuid,
    publication_id: Uuid,
    platform: &str,
    transaction: &mut PgTransaction<'_>,
) -> Result<Option<(Standing, i32)>, StoreError> {
    let row = sqlx::query!(
        r#"SELECT fence, round, status AS "status: Status", account_id, attempts > 0 AS "sent!",
            coalesce(error_code, '') = 'outcome_unknown' AS "unknown!", lease_until IS NOT NULL AS "held!"
        FROM publications WHERE tenant_id = $1 AND publication_id = $2 AND platform = $3 FOR UPDATE"#,
        tenant_id,
        publication_id,
        platform,
    )
    .fetch_optional(&mut **transaction)
    .await?;
    let Some(row) = row else { return Ok(None) };
    // In a statement of its own: one that has waited for the lock does not see what was written meanwhile.
    let around = sqlx::query!(
        r#"SELECT coalesce((SELECT pull FROM lanes WHERE tenant_id = $1 AND platform = $3 AND account_id = $4), false) AS "pulled!",
            (SELECT count(*) FROM attempts WHERE tenant_id = $1 AND publication_id = $2 AND kind IN ('draft', 'publish')
                AND ended_at IS NULL) AS "open_tries!""#,
        tenant_id,
        publication_id,
        platform,
        row.account_id,
    )
    .fetch_one(&mut **transaction)
    .await?;
    let standing = Standing {
        status: row.status,
        round: row.round,
        outcome_unknown: row.status == Status::Failed && row.unknown,
        sent: row.sent,
        held: row.held,
        handed: around.pulled.then_some(around.open_tries),
    };
    Ok(Some((standing, row.fence)))
}
