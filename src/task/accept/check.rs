//! What would become of an article, without storing anything.

use super::{Acceptance, Acceptor, NotAccepted, Sender, Stored, Warning};
use crate::article::Submission;
use crate::store::{AccountStanding, ExistingTask, Store, StoreError};

/// What a request to publish would come to.
#[derive(Debug, Clone)]
pub enum Would {
    /// It would create a task on these accounts.
    Create {
        /// The accounts of the group, in order.
        accounts: Vec<AccountStanding>,
        /// Remarks.
        warnings: Vec<Warning>,
    },
    /// It would return the task that exists.
    ReturnExisting(Box<Acceptance>),
    /// It would be refused, since that task exists.
    Reject(Box<Acceptance>),
    /// It would not be accepted.
    Refuse(NotAccepted),
}

impl Acceptor {
    /// What [`Acceptor::accept`] would do now.
    pub async fn check(
        &self,
        store: &Store,
        sender: &Sender,
        submission: Submission,
        idempotency_key: Option<String>,
    ) -> Result<Would, StoreError> {
        let publish_at = submission.publish_at;
        let tenant_id = sender.tenant_id;
        let asked = self.ask(sender, submission, idempotency_key);
        if let Some(task) = store.existing(tenant_id, &asked.task.external_id).await? {
            let stored = Stored { task, same_content_as: None };
            return Ok(match asked.question.answer(Ok(Ok(stored))) {
                Ok(acceptance) => Would::ReturnExisting(Box::new(acceptance)),
                Err(NotAccepted::Duplicate(acceptance)) => Would::Reject(acceptance),
                Err(other) => Would::Refuse(other),
            });
        }
        if sender.limited
            && let Some(standing) = Box::pin(store.quota_standing(tenant_id)).await?
            && standing.left == 0
        {
            return Ok(Would::Refuse(NotAccepted::QuotaExceeded(standing)));
        }
        let Some(accounts) = store.group_standing(tenant_id, &asked.task.group_code, publish_at).await?
        else {
            return Ok(Would::Refuse(NotAccepted::UnknownGroup));
        };
        if accounts.is_empty() {
            return Ok(Would::Refuse(NotAccepted::EmptyGroup));
        }
        let (group_code, fingerprint) = (&asked.task.group_code, &asked.task.digests.fingerprint);
        let same_content_as = store.same_content(tenant_id, group_code, fingerprint).await?;
        // As if this request had just created it.
        let task = ExistingTask {
            task_id: asked.task.task_id,
            group_code: asked.task.group_code.clone(),
            digests: asked.task.digests.fields.to_vec(),
            idempotency_key: None,
            callback_url: None,
            publish_at,
            draft: asked.task.draft,
            submitted_at: None,
            publications: Vec::new(),
        };
        Ok(match asked.question.answer(Ok(Ok(Stored { task, same_content_as }))) {
            Ok(created) => Would::Create { accounts, warnings: created.warnings },
            Err(other) => Would::Refuse(other),
        })
    }
}
