//! A batch in parts: of each tenant apart, and smaller where the database refuses one.

use std::future::Future;
use std::iter;
use std::ops::Range;

use uuid::Uuid;

/// What becomes of a part that was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then<R> {
    /// It is written once more.
    Again,
    /// Its halves are written, each for itself: one that is refused must not fail its neighbours.
    Halves,
    /// It is not written; this is the answer of each.
    Answer(R),
}

/// Writes parts of batches.
pub trait WritesParts<T>: Sync {
    /// What became of one.
    type Written: Clone + Send;
    /// Why a part was not written.
    type Error: Send;

    /// Writes what a tenant has in a batch; one answer for each, in order.
    fn write(
        &self,
        tenant_id: Uuid,
        part: &[T],
    ) -> impl Future<Output = Result<Vec<Self::Written>, Self::Error>> + Send;

    /// Decides about a part that was not written, and waits as long as it should wait.
    fn refused(&self, error: Self::Error, part: &[T]) -> impl Future<Output = Then<Self::Written>> + Send;
}

/// Writes a batch tenant by tenant; one answer for each, in order.
pub async fn by_tenant<T: Send + Sync, W: WritesParts<T>>(
    writer: &W,
    batch: Vec<T>,
    tenant: impl Fn(&T) -> Uuid + Send + Sync,
) -> Vec<W::Written> {
    let mut placed = batch.into_iter().enumerate().collect::<Vec<_>>();
    placed.sort_by_key(|(_, one)| tenant(one));
    let (came_at, batch): (Vec<_>, Vec<_>) = placed.into_iter().unzip();
    let mut written = iter::repeat_with(|| None).take(batch.len()).collect::<Vec<_>>();
    let mut parts = ranges(&batch, &tenant);
    while let Some(range) = parts.pop() {
        let part = &batch[range.clone()];
        let answers = match writer.write(tenant(&part[0]), part).await {
            Ok(answers) => answers,
            Err(error) => match writer.refused(error, part).await {
                Then::Answer(answer) => vec![answer; part.len()],
                Then::Halves if part.len() > 1 => {
                    let middle = range.start + part.len() / 2;
                    parts.extend([range.start..middle, middle..range.end]);
                    continue;
                }
                Then::Halves | Then::Again => {
                    parts.push(range);
                    continue;
                }
            },
        };
        debug_assert_eq!(answers.len(), part.len());
        for (at, answer) in came_at[range].iter().zip(answers) {
            written[*at] = Some(answer);
        }
    }
    written.into_iter().flatten().collect()
}

/// Where each tenant's part lies.
fn ranges<T>(batch: &[T], tenant: impl Fn(&T) -> Uuid) -> Vec<Range<usize>> {
    let parts = batch.chunk_by(|a, b| tenant(a) == tenant(b));
    let parts = parts.scan(0, |end, part| {
        let start = *end;
        *end += part.len();
        Some(start..*end)
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Refuses every part that holds `bad` beside others, and is away at first.
    struct Picky {
        bad: u32,
        away: Mutex<bool>,
        tried: Mutex<Vec<Vec<u32>>>,
    }

    impl WritesParts<(u128, u32)> for Picky {
        type Written = Result<u32, u32>;
        type Error = &'static str;

        async fn write(
            &self,
            tenant_id: Uuid,
            part: &[(u128, u32)],
        ) -> Result<Vec<Self::Written>, Self::Error> {
            assert!(part.iter().all(|(tenant, _)| Uuid::from_u128(*tenant) == tenant_id));
            let values = part.iter().map(|(_, value)| *value).collect::<Vec<_>>();
            self.tried.lock().unwrap().push(values.clone());
            if std::mem::take(&mut *self.away.lock().unwrap()) {
                return Err("away");
            }
            if values.contains(&self.bad) { Err("bad") } else { Ok(values.into_iter().map(Ok).collect()) }
        }

        async fn refused(&self, error: &'static str, part: &[(u128, u32)]) -> Then<Self::Written> {
            match (error, part.len()) {
                ("away", _) => Then::Again,
                (_, 1) => Then::Answer(Err(part[0].1)),
                _ => Then::Halves,
            }
        }
    }

    #[tokio::test]
    async fn each_gets_its_own_answer_and_a_bad_one_fails_alone() {
        let picky = Picky { bad: 3, away: Mutex::new(true), tried: Mutex::default() };
        let batch = vec![(2, 1), (1, 2), (2, 3), (1, 4), (2, 5)];
        let answers = by_tenant(&picky, batch, |(tenant, _)| Uuid::from_u128(*tenant)).await;
        assert_eq!(answers, [Ok(1), Ok(2), Err(3), Ok(4), Ok(5)]);
        let tried = picky.tried.into_inner().unwrap();
        assert_eq!(tried, [vec![1, 3, 5], vec![1, 3, 5], vec![3, 5], vec![5], vec![3], vec![1], vec![2, 4]]);
    }
}
