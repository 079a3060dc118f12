//! The feed: a tenant's events in the order of their positions.
//!
//! A position is taken under the lock of the tenant's row in `feeds`, which is held until the commit. So events become
//! visible in the order of their positions, and whoever has read up to one has read all before it.

use uuid::Uuid;

use super::{Store, StoreError};

/// A place in a feed: behind an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedPlace {
    /// The event's position; before the first one: zero.
    pub position: i64,
    /// The event; nil where that was not known.
    pub event_id: Uuid,
}

/// What a feed holds behind a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedRead {
    /// The bodies of the next events, and the place behind them.
    Page(Vec<Vec<u8>>, FeedPlace),
    /// What comes behind that place is no longer kept, or not all of it: only what stands at this position and later.
    Expired(i64),
    /// The place is none of this feed.
    Foreign,
}

struct Row {
    position: i64,
    event_id: Uuid,
    body: Vec<u8>,
}

impl Store {
    /// The next events behind a place, at most `limit`; without a place, from the oldest that is kept.
    pub async fn feed(
        &self,
        tenant_id: Uuid,
        after: Option<FeedPlace>,
        limit: i64,
    ) -> Result<FeedRead, StoreError> {
        // With the event at the place, which tells whether it is still the one that was read. One statement, so that the
        // newest position and the events are of one moment.
        let from = after.map_or(0, |place| place.position);
        let rows = sqlx::query!(
            r#"SELECT f.position AS newest, e.position AS "position?", e.event_id AS "event_id?", e.body AS "body?"
            FROM feeds f LEFT JOIN LATERAL (
                SELECT e.position, e.event_id, e.body FROM events e WHERE e.tenant_id = $1 AND e.position >= $2
                ORDER BY e.tenant_id, e.position LIMIT $3) e ON true
            WHERE f.tenant_id = $1 ORDER BY e.position"#,
            tenant_id,
            from,
            limit + 1,
        )
        .fetch_all(&self.pool)
        .await?;
        let newest = rows.first().map_or(0, |row| row.newest);
        let events = rows.into_iter().filter_map(|row| {
            Some(Row { position: row.position?, event_id: row.event_id?, body: row.body? })
        });
        Ok(page(after, newest, events.collect(), limit))
    }

    /// The newest positions of these tenants' feeds.
    pub async fn feed_positions(&self, tenants: &[Uuid]) -> Result<Vec<(Uuid, i64)>, StoreError> {
        let rows = sqlx::query!("SELECT tenant_id, position FROM feeds WHERE tenant_id = ANY ($1)", tenants);
        Ok(rows.fetch_all(&self.pool).await?.into_iter().map(|row| (row.tenant_id, row.position)).collect())
    }
}

/// The page that rows from a place on make, the event at the place among them if it is kept.
fn page(after: Option<FeedPlace>, newest: i64, mut rows: Vec<Row>, limit: i64) -> FeedRead {
    let mut last = FeedPlace { position: newest, event_id: Uuid::nil() };
    if let Some(place) = after {
        last = place;
        if place.position > newest {
            return FeedRead::Foreign;
        }
        if let Some(at) = rows.first().filter(|row| row.position == place.position) {
            if !place.event_id.is_nil() && at.event_id != place.event_id {
                return FeedRead::Foreign;
            }
            last.event_id = at.event_id;
            rows.remove(0);
        }
        let next = rows.first().map_or(newest, |row| row.position - 1);
        if next != place.position {
            return FeedRead::Expired(next + 1);
        }
    }
    rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    if let Some(row) = rows.last() {
        last = FeedPlace { position: row.position, event_id: row.event_id };
    }
    FeedRead::Page(rows.into_iter().map(|row| row.body).collect(), last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(position: i64) -> Uuid {
        Uuid::from_u128(u128::try_from(position).unwrap())
    }

    fn place(position: i64) -> FeedPlace {
        FeedPlace { position, event_id: id(position) }
    }

    fn rows(positions: std::ops::RangeInclusive<i64>) -> Vec<Row> {
        let body = |position: i64| position.to_string().into_bytes();
        positions.map(|position| Row { position, event_id: id(position), body: body(position) }).collect()
    }

    fn bodies(positions: std::ops::RangeInclusive<i64>) -> Vec<Vec<u8>> {
        rows(positions).into_iter().map(|row| row.body).collect()
    }

    #[test]
    fn a_page_begins_behind_its_place() {
        let read = |after, newest, rows| page(after, newest, rows, 2);
        // From the oldest that is kept, whichever that is.
        assert_eq!(read(None, 9, rows(1..=3)), FeedRead::Page(bodies(1..=2), place(2)));
        assert_eq!(read(None, 9, rows(7..=9)), FeedRead::Page(bodies(7..=8), place(8)));
        assert_eq!(read(Some(place(2)), 9, rows(2..=4)), FeedRead::Page(bodies(3..=4), place(4)));
        assert_eq!(read(Some(place(8)), 9, rows(8..=9)), FeedRead::Page(bodies(9..=9), place(9)));
        assert_eq!(read(Some(place(9)), 9, rows(9..=9)), FeedRead::Page(Vec::new(), place(9)));
    }

    #[test]
    fn an_empty_feed_has_a_place_to_go_on_from() {
        let FeedRead::Page(none, start) = page(None, 0, Vec::new(), 2) else { panic!("no page") };
        assert_eq!((none.len(), start), (0, FeedPlace { position: 0, event_id: Uuid::nil() }));
        assert_eq!(page(Some(start), 1, rows(1..=1), 2), FeedRead::Page(bodies(1..=1), place(1)));
        assert_eq!(page(Some(start), 0, Vec::new(), 2), FeedRead::Page(Vec::new(), start));
        // So has one of which nothing is kept.
        let FeedRead::Page(_, end) = page(None, 9, Vec::new(), 2) else { panic!("no page") };
        assert_eq!(page(Some(end), 10, rows(10..=10), 2), FeedRead::Page(bodies(10..=10), place(10)));
    }

    #[test]
    fn what_is_not_kept_and_what_is_foreign_is_told() {
        // The event at the place may be gone, the next must be there.
        assert_eq!(page(Some(place(6)), 9, rows(7..=8), 2), FeedRead::Page(bodies(7..=8), place(8)));
        assert_eq!(page(Some(place(5)), 9, rows(7..=8), 2), FeedRead::Expired(7));
        assert_eq!(page(Some(place(5)), 9, Vec::new(), 2), FeedRead::Expired(10));
        // Ahead of the feed, or on another event than the one that was read: a backup, or another tenant.
        assert_eq!(page(Some(place(10)), 9, Vec::new(), 2), FeedRead::Foreign);
        let other = FeedPlace { position: 7, event_id: id(70) };
        assert_eq!(page(Some(other), 9, rows(7..=9), 2), FeedRead::Foreign);
    }
}
