//! Requests to accounts of the sandbox at which nothing goes wrong: served together, each as it would be alone.
//!
//! A round of requests is one statement. It sees its accounts as they are when it begins, decides by that, and leaves out those
//! whose row has another version when it is its turn to write it: whoever changes anything of an account changes that row. What was
//! left out is served while the row is held.

use std::collections::{HashMap, HashSet};

use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::SANDBOX_REQUESTS_MAX;
use super::articles::body;
use crate::article::Content;
use crate::store::{Store, StoreError, rows};

mod changes;
mod searches;

/// How often requests are forgotten that are too old: at so many of an account, so that there are never many more of it than
/// [`SANDBOX_REQUESTS_MAX`].
const FORGET_EVERY: i64 = 100;

/// A request of that kind.
#[derive(Debug, Clone)]
pub struct SandboxAsk {
    /// Whose.
    pub tenant_id: Uuid,
    /// The account.
    pub account_id: String,
    /// The article's mark.
    pub marker: String,
    /// The caller's id of it.
    pub external_id: String,
    /// The id that the request bears.
    pub request_id: String,
    /// What is asked.
    pub what: SandboxAsks,
}

/// What is asked of an account of the sandbox.
#[derive(Debug, Clone)]
pub enum SandboxAsks {
    /// Which articles carry the mark.
    Find,
    /// A draft of that title, and what it holds beside, as JSON.
    Draft(String, String),
    /// The draft of that id, public.
    Publish(Option<i64>),
}

impl SandboxAsks {
    /// A draft of that content.
    #[must_use]
    pub fn draft(content: &Content) -> Self {
        Self::Draft(content.title.clone(), body(content))
    }

    /// Of a draft, its title and what it holds beside.
    fn text(&self) -> Option<(&str, &str)> {
        match self {
            Self::Draft(title, content) => Some((title, content)),
            _ => None,
        }
    }

    /// What is to be published.
    fn article_id(&self) -> Option<i64> {
        match self {
            Self::Publish(id) => *id,
            _ => None,
        }
    }
}

/// What came of such a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxServed {
    /// The account is not let in.
    LoggedOut,
    /// The articles that carry the mark, the oldest first, and whether each is public.
    Found(Vec<(i64, bool)>),
    /// The draft; none: the account holds as many articles as it may.
    Drafted(Option<i64>),
    /// The article is public; none: it is not there.
    Published(Option<i64>),
}

/// What came of a request of a round: its place in it, its number, and the answer.
struct Answer {
    at: usize,
    number: i64,
    served: SandboxServed,
}

/// Requests of one kind: either all search, or none does. No two of them are about one mark or one article.
#[derive(Default)]
struct Round<'a> {
    searches: bool,
    asks: Vec<&'a SandboxAsk>,
    /// Their places in the batch.
    places: Vec<usize>,
    marks: HashSet<(&'a str, &'a str)>,
    articles: HashSet<(&'a str, i64)>,
}

impl<'a> Round<'a> {
    /// The searches first, then all others.
    fn all(batch: &'a [SandboxAsk]) -> Vec<Self> {
        let mut rounds = Vec::<Self>::new();
        for searches in [true, false] {
            let first = rounds.len();
            for (place, ask) in batch.iter().enumerate() {
                if matches!(ask.what, SandboxAsks::Find) != searches {
                    continue;
                }
                if !rounds[first..].iter_mut().any(|round| round.takes(place, ask)) {
                    let mut round = Self { searches, ..Self::default() };
                    round.takes(place, ask);
                    rounds.push(round);
                }
            }
        }
        rounds
    }

    fn takes(&mut self, place: usize, ask: &'a SandboxAsk) -> bool {
        let mark = (ask.account_id.as_str(), ask.marker.as_str());
        let article = ask.what.article_id().map(|id| (ask.account_id.as_str(), id));
        if self.marks.contains(&mark) || article.is_some_and(|one| self.articles.contains(&one)) {
            return false;
        }
        self.marks.insert(mark);
        self.articles.extend(article);
        self.asks.push(ask);
        self.places.push(place);
        true
    }
}

/// Each as a column for `unnest`.
fn column<'a, T>(asks: &[&'a SandboxAsk], of: impl Fn(&'a SandboxAsk) -> T) -> Vec<T> {
    asks.iter().map(|ask| of(ask)).collect()
}

/// Whether each is the last one about its account.
fn last(asks: &[&SandboxAsk]) -> Vec<bool> {
    let mut later = HashSet::new();
    let mut last = asks.iter().rev().map(|ask| later.insert(ask.account_id.as_str())).collect::<Vec<_>>();
    last.reverse();
    last
}

/// The place in a round that a row is about, which counts from 1.
fn place(at: i64) -> usize {
    usize::try_from(at - 1).unwrap_or_default()
}

impl Store {
    /// Serves requests of one tenant, as if each had come alone: the searches first, then all others. For each, in order; none
    /// where there is no such account, or where nobody knows what came of it. An error says that none of them was carried out,
    /// as far as that is known: asked again as a whole, a draft would be made twice.
    pub async fn sandbox_serve(
        &self,
        tenant_id: Uuid,
        batch: &[SandboxAsk],
    ) -> Result<Vec<Option<SandboxServed>>, StoreError> {
        let mut connection = self.pool.acquire().await?;
        let mut served = vec![None; batch.len()];
        let mut ripe = HashMap::new();
        for round in Round::all(batch) {
            let mut answers = Vec::new();
            let done = self.sandbox_round(tenant_id, &round, &mut connection, &mut answers).await;
            for answer in answers {
                let place = round.places[answer.at];
                if answer.number % FORGET_EVERY == 0 && answer.number > SANDBOX_REQUESTS_MAX {
                    ripe.insert(batch[place].account_id.as_str(), answer.number);
                }
                served[place] = Some(answer.served);
            }
            match done {
                Ok(()) => {}
                Err(error) if served.iter().any(Option::is_some) => {
                    tracing::warn!(%error, "some requests to the sandbox were carried out, others may not have been");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if !ripe.is_empty() {
            // They were answered; what could not be forgotten now is forgotten with the next ones.
            forget(tenant_id, &ripe, &mut connection).await.ok();
        }
        Ok(served)
    }

    async fn sandbox_round(
        &self,
        tenant_id: Uuid,
        round: &Round<'_>,
        connection: &mut PgConnection,
        answers: &mut Vec<Answer>,
    ) -> Result<(), StoreError> {
        *answers = self.sandbox_at_once(tenant_id, round.searches, &round.asks, connection).await?;
        let answered = answers.iter().map(|answer| answer.at).collect::<HashSet<_>>();
        let left = (0..round.asks.len()).filter(|at| !answered.contains(at)).collect::<Vec<_>>();
        if left.is_empty() {
            return Ok(());
        }
        let asks = left.iter().map(|at| round.asks[*at]).collect::<Vec<_>>();
        let mut transaction = connection.begin().await?;
        hold(tenant_id, &asks, &mut transaction).await?;
        let late = self.sandbox_at_once(tenant_id, round.searches, &asks, &mut transaction).await?;
        transaction.commit().await?;
        answers.extend(late.into_iter().map(|answer| Answer { at: left[answer.at], ..answer }));
        Ok(())
    }

    async fn sandbox_at_once(
        &self,
        tenant_id: Uuid,
        searches: bool,
        asks: &[&SandboxAsk],
        connection: &mut PgConnection,
    ) -> Result<Vec<Answer>, StoreError> {
        if searches {
            searches::serve(tenant_id, asks, &self.clock, connection).await
        } else {
            changes::serve(tenant_id, asks, &self.clock, connection).await
        }
    }
}

/// Holds the rows of accounts until the transaction ends, makes those that are not there yet, and has a login that was made since
/// begin anew.
async fn hold(
    tenant_id: Uuid,
    asks: &[&SandboxAsk],
    connection: &mut PgConnection,
) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO sandbox_accounts AS s (tenant_id, account_id, login_version)
        SELECT a.tenant_id, a.account_id, a.credentials_version
        FROM (SELECT DISTINCT account_id FROM unnest($2::text[]) AS u(account_id)) i
        -- By the key: joined, a young table would be read whole, and a grown one by the same plan.
        CROSS JOIN LATERAL (
            SELECT * FROM accounts WHERE tenant_id = $1 AND platform = 'sandbox' AND account_id = i.account_id LIMIT 1) a
        ORDER BY a.account_id
        ON CONFLICT (tenant_id, account_id) DO UPDATE SET
            published = CASE WHEN excluded.login_version > s.login_version THEN 0 ELSE s.published END,
            logged_out = s.logged_out AND excluded.login_version <= s.login_version,
            login_version = greatest(s.login_version, excluded.login_version)",
        tenant_id,
        &column(asks, |ask| ask.account_id.as_str()) as &[&str],
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Forgets the requests of accounts that are too old, by the newest number of each.
async fn forget(
    tenant_id: Uuid,
    newest: &HashMap<&str, i64>,
    connection: &mut PgConnection,
) -> Result<(), StoreError> {
    let (accounts, newest) = newest.iter().unzip::<_, _, Vec<&str>, Vec<i64>>();
    sqlx::query!(
        "DELETE FROM sandbox_requests r
        USING (SELECT * FROM unnest($2::text[], $3::bigint[]) AS u(account_id, newest) LIMIT $5) l
        WHERE r.tenant_id = $1 AND r.account_id = l.account_id AND r.number <= l.newest - $4::bigint",
        tenant_id,
        &accounts as &[&str],
        &newest,
        SANDBOX_REQUESTS_MAX,
        rows(&accounts),
    )
    .execute(connection)
    .await?;
    Ok(())
}
