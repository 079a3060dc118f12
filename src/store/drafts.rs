//! Drafts: changing one, and submitting it.

use sqlx::PgTransaction;
use sqlx::types::Json;
use uuid::Uuid;

use super::actions::ActedOr;
use super::hold::{Before, Held, moving};
use super::{Store, StoreError, Telling, columns};
use crate::account::AccountKey;
use crate::article::{ArticlePatch, Content, Digests, Draft, ExternalId};
use crate::json;
use crate::task::act::{self, HeldPublication, HeldTask, Refusal, Taken};
use crate::task::state::Status;

impl Store {
    /// Submits a draft to the accounts of its group as they are now. Submitted before: nothing is done.
    pub async fn submit(
        &self,
        tenant_id: Uuid,
        external_id: &ExternalId,
        telling: Telling,
    ) -> Result<ActedOr<()>, StoreError> {
        let Some(mut held) = self.hold(tenant_id, external_id, Before::OwnGroup).await? else {
            return Ok(Err(Refusal::NoTask));
        };
        match held.task.submits() {
            Ok(true) => {}
            Ok(false) => {
                return self.acted(tenant_id, external_id, held.transaction, (), false, false).await;
            }
            Err(refusal) => return Ok(Err(refusal)),
        }
        if let Err(refusal) = self.take_accounts(tenant_id, &mut held).await? {
            return Ok(Err(refusal));
        }
        sqlx::query!(
            "UPDATE tasks SET submitted_at = now() + $3::interval WHERE tenant_id = $1 AND task_id = $2",
            tenant_id,
            held.task.task_id,
            self.clock.skew() as _,
        )
        .execute(&mut *held.transaction)
        .await?;
        let moves = held.task.publications.iter().map(|one| super::Move {
            reason: "submitted_by_caller",
            ..moving(tenant_id, one, Status::Submitted)
        });
        let moves = moves.collect::<Vec<_>>();
        self.apply(tenant_id, &moves, telling, &mut held.transaction).await?;
        self.acted(tenant_id, external_id, held.transaction, (), true, false).await
    }

    /// Changes a draft. A later repeat of its article is compared with what is stored then.
    pub async fn patch(
        &self,
        tenant_id: Uuid,
        external_id: &ExternalId,
        patch: &ArticlePatch,
    ) -> Result<ActedOr<()>, StoreError> {
        let before = patch.group_code().map_or(Before::Nothing, |code| Before::Group(code.as_str()));
        let Some(mut held) = self.hold(tenant_id, external_id, before).await? else {
            return Ok(Err(Refusal::NoTask));
        };
        if let Err(refusal) = held.task.must_be_draft() {
            return Ok(Err(refusal));
        }
        let mut draft = read_draft(tenant_id, &held.task, &mut held.transaction).await?;
        patch.apply(&mut draft);
        write_draft(tenant_id, held.task.task_id, &draft, &mut held.transaction).await?;
        held.task.group_code.clone_from(&draft.group_code);
        held.task.publish_at = draft.publish_at;
        if patch.group_code().is_some() {
            if let Err(refusal) = self.take_accounts(tenant_id, &mut held).await? {
                return Ok(Err(refusal));
            }
        } else if patch.moves_time() {
            let publications = &held.task.publications;
            let kept = publications.iter().map(|one| (one.publication_id, one.position)).collect();
            let as_they_are = Taken { kept, ..Taken::default() };
            self.write_taken(tenant_id, &held.task, &as_they_are, &mut held.transaction).await?;
        }
        self.acted(tenant_id, external_id, held.transaction, (), false, false).await
    }

    /// Takes a draft's accounts again from its group, and its due times from `publish_at`.
    async fn take_accounts(
        &self,
        tenant_id: Uuid,
        held: &mut Held,
    ) -> Result<Result<(), Refusal>, StoreError> {
        let group_code = held.task.group_code.clone();
        // Read after the group was locked: until the commit it keeps these accounts.
        let members = sqlx::query!(
            r#"SELECT m.platform AS "platform?", m.account_id AS "account_id?"
            FROM groups g LEFT JOIN group_members m USING (tenant_id, group_code)
            WHERE g.tenant_id = $1 AND g.group_code = $2 ORDER BY m.position"#,
            tenant_id,
            group_code,
        )
        .fetch_all(&mut *held.transaction)
        .await?;
        if members.is_empty() {
            return Ok(Err(Refusal::UnknownGroup(group_code)));
        }
        let members = members
            .into_iter()
            .filter_map(|row| Some(AccountKey::stored(row.platform?, row.account_id?)))
            .collect::<Vec<_>>();
        if members.is_empty() {
            return Ok(Err(Refusal::EmptyGroup(group_code)));
        }
        let taken = act::taking(&members, &held.task.publications);
        let new = self.write_taken(tenant_id, &held.task, &taken, &mut held.transaction).await?;
        let publications = &mut held.task.publications;
        publications.retain(|one| !taken.gone.contains(&one.publication_id));
        publications.extend(new);
        Ok(Ok(()))
    }

    /// Writes what [`act::taking`] decided, and returns what is new.
    async fn write_taken(
        &self,
        tenant_id: Uuid,
        task: &HeldTask,
        taken: &Taken,
        transaction: &mut PgTransaction<'_>,
    ) -> Result<Vec<HeldPublication>, StoreError> {
        let new = taken.new.iter().map(|(account, position)| HeldPublication {
            publication_id: self.clock.new_id(),
            fence: 0,
            account: account.clone(),
            position: *position,
            status: Status::Draft,
            url: None,
            error_code: None,
            in_doubt: false,
            added: false,
            account_deleted: false,
            updated_at: task.now,
        });
        let new = new.collect::<Vec<_>>();
        let (platforms, ids) = columns(new.iter().map(|one| &one.account));
        sqlx::query!(
            "WITH gone AS (
                DELETE FROM publications WHERE tenant_id = $1 AND task_id = $2 AND publication_id = ANY ($4::uuid[])
            ), kept AS (
                UPDATE publications p SET position = u.position, due_at = greatest($3, now() + $11::interval)
                FROM unnest($5::uuid[], $6::int[]) AS u(publication_id, position)
                WHERE p.tenant_id = $1 AND p.publication_id = u.publication_id
                RETURNING 1
            ), born AS (
                INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status,
                    due_at, updated_at)
                SELECT $1, u.publication_id, $2, u.platform, u.account_id, u.position, 'draft',
                    greatest($3, now() + $11::interval), now() + $11::interval
                FROM unnest($7::uuid[], $8::text[], $9::text[], $10::int[])
                    AS u(publication_id, platform, account_id, position)
                RETURNING 1
            )
            UPDATE tasks SET drafts = (SELECT count(*)::int FROM kept) + (SELECT count(*)::int FROM born)
            WHERE tenant_id = $1 AND task_id = $2",
            tenant_id,
            task.task_id,
            task.publish_at,
            &taken.gone,
            &taken.kept.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            &taken.kept.iter().map(|(_, place)| *place).collect::<Vec<_>>(),
            &new.iter().map(|one| one.publication_id).collect::<Vec<_>>(),
            &platforms,
            &ids,
            &new.iter().map(|one| one.position).collect::<Vec<_>>(),
            self.clock.skew() as _,
        )
        .execute(&mut **transaction)
        .await?;
        Ok(new)
    }
}

async fn read_draft(
    tenant_id: Uuid,
    task: &HeldTask,
    transaction: &mut PgTransaction<'_>,
) -> Result<Draft, StoreError> {
    let row = sqlx::query!(
        r#"SELECT t.callback_url, a.title, a.content_html, a.summary, a.cover_url, a.canonical_url, a.author,
            a.tags AS "tags: Json<Vec<String>>", a.metadata
        FROM tasks t JOIN articles a USING (tenant_id, task_id)
        WHERE t.tenant_id = $1 AND t.task_id = $2"#,
        tenant_id,
        task.task_id,
    )
    .fetch_one(&mut **transaction)
    .await?;
    Ok(Draft {
        group_code: task.group_code.clone(),
        content: Content {
            title: row.title,
            content_html: row.content_html,
            summary: row.summary,
            cover_url: row.cover_url,
            canonical_url: row.canonical_url,
            author: row.author,
            tags: row.tags.0,
        },
        callback_url: row.callback_url,
        publish_at: task.publish_at,
        metadata: row.metadata,
    })
}

async fn write_draft(
    tenant_id: Uuid,
    task_id: Uuid,
    draft: &Draft,
    transaction: &mut PgTransaction<'_>,
) -> Result<(), StoreError> {
    let content = &draft.content;
    let digests = Digests::of(content, &json::canonical_text(&draft.metadata));
    sqlx::query!(
        "UPDATE tasks SET group_code = $3, fingerprint = $4, digests = $5, callback_url = $6, publish_at = $7
        WHERE tenant_id = $1 AND task_id = $2",
        tenant_id,
        task_id,
        draft.group_code,
        &digests.fingerprint[..],
        &digests.fields[..],
        draft.callback_url,
        draft.publish_at,
    )
    .execute(&mut **transaction)
    .await?;
    sqlx::query!(
        "UPDATE articles SET title = $3, content_html = $4, summary = $5, cover_url = $6, canonical_url = $7,
            author = $8, tags = $9, metadata = $10
        WHERE tenant_id = $1 AND task_id = $2",
        tenant_id,
        task_id,
        content.title,
        content.content_html,
        content.summary,
        content.cover_url,
        content.canonical_url,
        content.author,
        Json(&content.tags) as _,
        draft.metadata,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}
