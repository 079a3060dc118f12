//! Articles that are to appear at given times, while the service is restarted twice: by a successor that is ready before
//! the service is asked to end, and plainly, so that for a while nobody runs.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use publish_ingest::clock::{Clock as _, SystemClock};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::api::{Api, article};
use crate::bridge::{Asked, Bridge};
use crate::invariants;
use crate::operator::{Furnished, put_group};
use crate::program::{Dev, eventually, seed};

const PUBLICATIONS: usize = 300;
const ACCOUNTS: [&str; 4] = ["a", "b", "c", "d"];
const PACED: &str = "paced";

/// Of the paced account: so many at one time, so often. They take as many seconds, and fit between each other.
const BUNCH: usize = 4;
const BUNCHES: usize = 3;

/// Over how long they are spread.
const SPREAD: TimeDelta = TimeDelta::seconds(20);

/// From when the first may be due: until then all are accepted.
const BEFORE: TimeDelta = TimeDelta::seconds(6);

/// How long nobody runs at least, so that much is due when somebody does again.
const AWAY: TimeDelta = TimeDelta::milliseconds(1_500);

/// How late a request may come.
const LATE: TimeDelta = TimeDelta::seconds(1);

/// The pace of the paced account.
const PACE: TimeDelta = TimeDelta::seconds(1);

/// One publication: its article, its account, and when it is due.
struct Planned {
    external_id: String,
    account: &'static str,
    due: DateTime<Utc>,
}

impl Planned {
    fn article(&self) -> Value {
        let mut article = article(&self.external_id);
        article["group_code"] = self.account.into();
        article["publish_at"] = self.due.to_rfc3339_opts(SecondsFormat::Micros, true).into();
        article
    }
}

fn plan(random: &mut StdRng, base: DateTime<Utc>) -> Vec<Planned> {
    let millis = SPREAD.num_milliseconds();
    let paced = (0..BUNCHES).flat_map(|bunch| {
        // Each bunch has its part of the time.
        let part = millis / i64::try_from(BUNCHES).unwrap();
        let at = TimeDelta::milliseconds(part * i64::try_from(bunch).unwrap() + random.random_range(0..part));
        (0..BUNCH).map(move |_| (PACED, at))
    });
    let mut dues = paced.collect::<Vec<_>>();
    while dues.len() < PUBLICATIONS {
        let account = ACCOUNTS[dues.len() % ACCOUNTS.len()];
        dues.push((account, TimeDelta::milliseconds(random.random_range(0..=millis))));
    }
    let planned = dues.into_iter().enumerate().map(|(n, (account, after))| Planned {
        external_id: format!("due-{n}"),
        account,
        due: base + after,
    });
    planned.collect()
}

/// While nobody ran: from when the last service was asked to end to when the next was ready.
struct Gap {
    asked: DateTime<Utc>,
    ready: DateTime<Utc>,
}

impl Gap {
    /// From when something that is due can be started. What is due in the last moment before the end may miss it, too.
    fn possible(&self, due: DateTime<Utc>) -> DateTime<Utc> {
        if due >= self.asked - LATE && due < self.ready { self.ready } else { due }
    }
}

async fn until(at: DateTime<Utc>) {
    tokio::time::sleep((at - SystemClock.now()).to_std().unwrap_or_default()).await;
}

async fn stopped(serve: Dev) {
    let (status, _, stderr) = serve.stop(Signal::TERM).await;
    assert!(status.success() && !stderr.contains("under way"), "{status}: {stderr}");
}

/// The accounts, with a group for each.
async fn furnish(api: &Api, bridge: &Bridge) {
    for account in ACCOUNTS.into_iter().chain([PACED]) {
        let name = format!("http_bridge/{account}");
        let body = bridge.account(u32::from(account == PACED));
        api.put(&format!("/accounts/{name}"), &body).await.unwrap().ok();
        put_group(api, account, &[&name]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_scheduled_comes_in_time_and_once_across_restarts() {
    let mut random = StdRng::seed_from_u64(seed());
    let furnished = Furnished::new().await;
    let bridge = Bridge::start(Duration::ZERO).await;
    let first = furnished.serve(&[]).await;
    let api = furnished.api(&first);
    furnish(&api, &bridge).await;
    let base = SystemClock.now() + BEFORE;
    let planned = plan(&mut random, base);
    let articles = planned.iter().map(Planned::article).collect::<Vec<_>>();
    let answer = api.post("/publish/batch", &json!({"articles": articles})).await.unwrap().ok();
    assert!(
        answer["results"].as_array().unwrap().iter().all(|one| one["task"]["created"] == true),
        "{answer}"
    );
    assert!(SystemClock.now() < base, "accepted too late to judge");

    until(base + TimeDelta::milliseconds(random.random_range(4_000..8_000))).await;
    let second = furnished.serve(&[]).await;
    stopped(first).await;

    until(base + TimeDelta::milliseconds(random.random_range(11_000..15_000))).await;
    let asked = SystemClock.now();
    stopped(second).await;
    until(asked + AWAY).await;
    let third = furnished.serve(&[]).await;
    let gap = Gap { asked, ready: SystemClock.now() };
    println!("nobody ran from {:?} to {:?}", gap.asked - base, gap.ready - base);

    bridge.count(PUBLICATIONS).await;
    let pool = PgPool::connect(&furnished.shell.url).await.unwrap();
    eventually("all is recorded", async || {
        let open = "SELECT count(*) FROM publications WHERE status <> 'success'";
        sqlx::query_scalar::<_, i64>(open).fetch_one(&pool).await.unwrap() == 0
    })
    .await;
    stopped(third).await;
    bridge.assert_faultless();
    judge(&planned, &bridge.asked(), &gap, base);
    paced_by_the_claims(&pool).await;
    invariants::check(&pool).await;
}

/// None early, none late, none twice.
fn judge(planned: &[Planned], asked: &[Asked], gap: &Gap, base: DateTime<Utc>) {
    assert_eq!(asked.len(), PUBLICATIONS, "some were sent twice");
    let came = asked.iter().map(|one| (one.external_id.as_str(), one)).collect::<HashMap<_, _>>();
    assert_eq!(came.len(), PUBLICATIONS, "some were sent twice, and others not");
    let (mut wrong, mut latest) = (Vec::new(), TimeDelta::zero());
    let mut check = |what: &str, from: DateTime<Utc>, possible: DateTime<Utc>, at: DateTime<Utc>| {
        latest = latest.max(at - possible);
        if at < from || at > possible + LATE {
            wrong.push(format!(
                "{what}: due {}, possible {}, came {}",
                from - base,
                possible - base,
                at - base
            ));
        }
    };
    for one in planned {
        let arrived = came[one.external_id.as_str()];
        assert_eq!(arrived.account_id, one.account);
        // Of the paced account, the n-th to come is held against the n-th that was due.
        let possible = if one.account == PACED { arrived.at } else { gap.possible(one.due) };
        check(&one.external_id, one.due, possible, arrived.at);
    }
    let paced = || planned.iter().filter(|one| one.account == PACED);
    let mut dues = paced().map(|one| one.due).collect::<Vec<_>>();
    let mut starts = paced().map(|one| came[one.external_id.as_str()].at).collect::<Vec<_>>();
    dues.sort_unstable();
    starts.sort_unstable();
    let mut before = None::<DateTime<Utc>>;
    for (due, at) in dues.into_iter().zip(starts) {
        let possible = gap.possible(before.map_or(due, |before| due.max(before + PACE)));
        check(PACED, due, possible, at);
        before = Some(possible);
    }
    println!("the latest came {latest} after it was possible");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// By the database's clock, two starts of the paced account are never closer than its pace. (How long a request is on its
/// way from there differs by some milliseconds from one to the next, which is not the pace's affair.)
async fn paced_by_the_claims(pool: &PgPool) {
    let starts: Vec<DateTime<Utc>> = sqlx::query_scalar(
        "SELECT x.at FROM transitions x JOIN publications p USING (tenant_id, publication_id)
        WHERE p.account_id = $1 AND x.to_status = 'running' ORDER BY x.at",
    )
    .bind(PACED)
    .fetch_all(pool)
    .await
    .unwrap();
    assert_eq!(starts.len(), BUNCH * BUNCHES);
    for pair in starts.windows(2) {
        assert!(pair[1] - pair[0] >= PACE, "{} after {}", pair[1], pair[0]);
    }
}
