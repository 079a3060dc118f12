//! Writing a batch: part by part, until each article has an answer or the time is up.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use uuid::Uuid;

use super::quota::{More, Quotas, Share};
use super::{Answer, NotAccepted, Stored};
use crate::account::AccountKey;
use crate::clock::SharedClock;
use crate::fault;
use crate::store::{Admitted, ExistingTask, NewTask, PublicationRow, QuotaStanding, Store, StoreError};
use crate::task::state::Status;
use crate::turns::Wake;

/// How long a batch is tried while the database cannot be reached; then nobody waits for it any more.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// How long a statement waits for a lock. Then its part of the batch is halved, and the halves, until who needs the lock is alone:
/// seven times for the largest batch, which [`PATIENCE`] has room for.
const LOCK_WAIT: Duration = Duration::from_millis(100);

/// The pause before a batch is sent again to a database that could not be reached.
const AGAIN: Duration = Duration::from_millis(50);

/// How often somebody else's row, seen by the index but not by the statement, is asked for again.
const UNSEEN_MAX: usize = 8;

/// A part of a batch that goes into one statement: the places of its articles.
struct Part {
    places: Vec<usize>,
    /// How often something of it was not to be seen.
    unseen: usize,
}

impl Part {
    fn halves(mut self) -> [Self; 2] {
        let rest = self.places.split_off(self.places.len() / 2);
        let unseen = self.unseen;
        [self, Self { places: rest, unseen }]
    }

    /// The places by article, sorted by (tenant, `external_id`): one of each goes into the statement, the others of the
    /// same article learn from its answer.
    fn by_article(&self, batch: &[NewTask]) -> Vec<Vec<usize>> {
        let key = |at: &usize| (batch[*at].tenant_id, &batch[*at].external_id);
        let mut places = self.places.clone();
        places.sort_by_key(key);
        places.chunk_by(|a, b| key(a) == key(b)).map(<[usize]>::to_vec).collect()
    }
}

/// Writes batches.
#[derive(Clone)]
pub(super) struct Writer {
    pub store: Store,
    /// Woken when something new is there.
    pub wake: Wake,
    pub quotas: Quotas,
    pub clock: SharedClock,
}

/// A batch that is being written.
struct Batch {
    tasks: Vec<NewTask>,
    answers: Vec<Option<Answer>>,
    /// The tenants whose day was used up before the next statement begins: what that does not see is new, and comes too late.
    used_up: HashMap<Uuid, QuotaStanding>,
}

impl Writer {
    /// Writes a batch; what has no answer in the end was not to be had in time.
    pub(super) async fn write(&self, tasks: Vec<NewTask>) -> Vec<Answer> {
        let share = self.quotas.share();
        let begun = self.clock.instant();
        let mut parts = VecDeque::from([Part { places: (0..tasks.len()).collect(), unseen: 0 }]);
        let used_up = self.quotas.used_up(tasks.iter().filter(|one| one.limited).map(|one| one.tenant_id));
        let mut batch = Batch { answers: vec![None; tasks.len()], tasks, used_up };
        // In turn: what is tried again waits for all the others.
        while let Some(part) = parts.pop_front() {
            if part.places.is_empty() || part.unseen > UNSEEN_MAX || self.clock.instant() - begun > PATIENCE {
                continue;
            }
            let articles = part.by_article(&batch.tasks);
            let tasks = articles.iter().map(|places| &batch.tasks[places[0]]).collect::<Vec<_>>();
            match self.store.accept(&tasks, share.id, LOCK_WAIT).await {
                Ok(admitted) => {
                    fault::point("accept.committed", "");
                    let unseen = admitted.iter().any(|one| matches!(one, Admitted::Unseen));
                    let unmet = self.note_all(&articles, admitted, &mut batch);
                    self.meet(&share, unmet, &mut batch).await;
                    let places = part.places.into_iter().filter(|at| batch.answers[*at].is_none()).collect();
                    parts.push_back(Part { places, unseen: part.unseen + usize::from(unseen) });
                }
                Err(StoreError::Unavailable(error)) => {
                    tracing::warn!(%error, articles = articles.len(), "cannot accept yet");
                    tokio::time::sleep(AGAIN).await;
                    parts.push_back(part);
                }
                Err(StoreError::HeldUp(error)) if part.places.len() == 1 => {
                    tracing::warn!(%error, "cannot accept yet");
                    parts.push_back(part);
                }
                Err(error) if part.places.len() == 1 => {
                    tracing::error!(%error, external_id = %tasks[0].external_id, "the database refused an article");
                    batch.answers[part.places[0]] = Some(Err(NotAccepted::Refused));
                }
                // A bad article then fails alone, and a lock that somebody holds stops only those who need it.
                Err(_) => parts.extend(part.halves()),
            }
        }
        let unavailable = || Err(NotAccepted::Unavailable);
        batch.answers.into_iter().map(|answer| answer.unwrap_or_else(unavailable)).collect()
    }

    /// Notes what became of each article, whose places are given; returns those that a share did not reach for, by tenant.
    fn note_all(
        &self,
        articles: &[Vec<usize>],
        admitted: Vec<Admitted>,
        batch: &mut Batch,
    ) -> HashMap<Uuid, Vec<Vec<usize>>> {
        let mut unmet = HashMap::<_, Vec<_>>::new();
        for (places, admitted) in articles.iter().zip(admitted) {
            let first = &batch.tasks[places[0]];
            match admitted {
                Admitted::NothingLeft => unmet.entry(first.tenant_id).or_default().push(places.clone()),
                Admitted::Created { .. } if first.limited => self.quotas.took_one(first.tenant_id),
                _ => {}
            }
            if let Some(answer) = answer(first, admitted) {
                if answer.as_ref().is_ok_and(|stored| stored.task.task_id == first.task_id) {
                    self.wake.wake(first.tenant_id);
                }
                batch.answer(places, &answer);
            }
        }
        unmet
    }

    /// Answers what comes too late, and asks for more of the other quotas; what comes of that, the next statement shows: what
    /// took the last of a day may be the very article that waits for it.
    async fn meet(&self, share: &Share, unmet: HashMap<Uuid, Vec<Vec<usize>>>, batch: &mut Batch) {
        for (tenant_id, articles) in unmet {
            if let Some(standing) = batch.used_up.get(&tenant_id) {
                let refused = Err(NotAccepted::QuotaExceeded(*standing));
                articles.into_iter().flatten().for_each(|at| batch.answers[at] = Some(refused.clone()));
                continue;
            }
            let wanted = u32::try_from(articles.len()).unwrap_or(u32::MAX);
            match self.quotas.more(&self.store, share, tenant_id, wanted).await {
                Ok(More::Some) => {}
                Ok(More::None(standing)) => {
                    batch.used_up.insert(tenant_id, standing);
                }
                Ok(More::Unlimited) => {
                    articles.into_iter().flatten().for_each(|at| batch.tasks[at].limited = false);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot have more of a quota yet");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
}

impl Batch {
    /// Answers one article, whose places are given, the one that was in the statement first.
    fn answer(&mut self, places: &[usize], answer: &Answer) {
        for at in places {
            // What is wrong with one group says nothing of another.
            if answer.is_ok() || self.tasks[*at].group_code == self.tasks[places[0]].group_code {
                self.answers[*at] = Some(answer.clone());
            }
        }
    }
}

/// The answer to one article; none if it has to be asked again.
fn answer(one: &NewTask, admitted: Admitted) -> Option<Answer> {
    match admitted {
        Admitted::Existing(task) => Some(Ok(Stored { task: *task, same_content_as: None })),
        Admitted::UnknownGroup => Some(Err(NotAccepted::UnknownGroup)),
        Admitted::EmptyGroup => Some(Err(NotAccepted::EmptyGroup)),
        Admitted::Unseen | Admitted::NothingLeft => None,
        Admitted::Created { members, at, same_content_as } => {
            let status = if one.draft { Status::Draft } else { Status::Submitted };
            let members = members.into_iter().map(AccountKey::into_names);
            let publications = members.map(|(platform, account_id)| PublicationRow {
                platform,
                account_id,
                status,
                confirming: false,
                round: 1,
                claimed: false,
                attempts: 0,
                url: None,
                remote_id: None,
                error_code: None,
                error_message: None,
                error_retryable: None,
                warnings: None,
                due_at: one.publish_at.map_or(at, |publish_at| publish_at.max(at)),
                updated_at: at,
            });
            let task = ExistingTask {
                task_id: one.task_id,
                group_code: one.group_code.clone(),
                digests: one.digests.fields.to_vec(),
                idempotency_key: one.idempotency_key.clone(),
                callback_url: one.callback_url.clone(),
                publish_at: one.publish_at,
                draft: one.draft,
                submitted_at: (!one.draft).then_some(at),
                publications: publications.collect(),
            };
            Some(Ok(Stored { task, same_content_as }))
        }
    }
}
