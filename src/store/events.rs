//! Events, and the callbacks that deliver them, written with the state they tell of.

use uuid::Uuid;

use super::callbacks::RECEIVER_IN_FLIGHT;
use super::moves::NewEvent;
use super::{Store, StoreError};

impl Store {
    pub(super) async fn write_events(
        &self,
        tenant_id: Uuid,
        events: &[NewEvent],
        first_wait: chrono::TimeDelta,
        transaction: &mut sqlx::PgTransaction<'_>,
    ) -> Result<(), StoreError> {
        let delivery = |of: fn(&(String, String)) -> &str| {
            events.iter().map(|event| event.delivery.as_ref().map(of)).collect::<Vec<_>>()
        };
        sqlx::query!(
            "WITH input AS MATERIALIZED (
                SELECT * FROM unnest($2::bigint[], $3::uuid[], $4::uuid[], $5::uuid[], $6::int[], $7::text[],
                    $8::bytea[], $9::text[], $10::text[])
                AS u(position, event_id, task_id, publication_id, round, status, body, url, receiver)
            ), written AS (
                INSERT INTO events (tenant_id, position, event_id, task_id, publication_id, round, status, body, created_at)
                SELECT $1, position, event_id, task_id, publication_id, round, status, body, now() + $11::interval FROM input
            ), receivers_known AS (
                INSERT INTO receivers (tenant_id, receiver, max_in_flight, free_at)
                SELECT $1, receiver, $12, now() + $11::interval
                FROM (SELECT DISTINCT receiver FROM input WHERE receiver IS NOT NULL ORDER BY receiver) r
                -- Asked first: for a row that there is, the insert would wait for whoever is just changing it.
                WHERE NOT EXISTS (SELECT FROM receivers k WHERE k.tenant_id = $1 AND k.receiver = r.receiver)
                ON CONFLICT (tenant_id, receiver) DO NOTHING
            )
            INSERT INTO callbacks (tenant_id, event_id, url, receiver, due_at, created_at)
            SELECT $1, event_id, url, receiver, now() + $11::interval + $13::interval, now() + $11::interval
            FROM input WHERE url IS NOT NULL",
            tenant_id,
            &events.iter().map(|event| event.position).collect::<Vec<_>>(),
            &events.iter().map(|event| event.event_id).collect::<Vec<_>>(),
            &events.iter().map(|event| event.task_id).collect::<Vec<_>>(),
            &events.iter().map(|event| event.publication_id).collect::<Vec<_>>(),
            &events.iter().map(|event| event.round).collect::<Vec<_>>(),
            &events.iter().map(|event| event.status.as_str()).collect::<Vec<_>>() as &[&str],
            &events.iter().map(|event| &event.body[..]).collect::<Vec<_>>() as &[&[u8]],
            &delivery(|delivery| &delivery.0) as &[Option<&str>],
            &delivery(|delivery| &delivery.1) as &[Option<&str>],
            self.clock.skew() as _,
            RECEIVER_IN_FLIGHT,
            first_wait as _,
        )
        .execute(&mut **transaction)
        .await?;
        Ok(())
    }
}
