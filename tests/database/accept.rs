//! Accepting in batches: neighbours do not feel each other, and nothing is ever half done.

use publish_ingest::article::Submission;
use publish_ingest::store::{Admitted, Store};
use publish_ingest::task::accept::{Acceptance, Acceptor, NotAccepted, Sender};
use publish_ingest::telemetry::metrics::Metrics;
use publish_ingest::turns::Wake;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::harness::{BOTH, EMPTY, LOCK_WAIT, ONE, World, article, article_with, at_once, in_world};
use crate::wire::Wire;

fn acceptor(world: &World) -> Acceptor {
    acceptor_on(world, &world.store)
}

fn acceptor_on(world: &World, store: &Store) -> Acceptor {
    Acceptor::start(
        None,
        store.clone(),
        Wake::default(),
        &Metrics::new(),
        world.shared_clock(),
        &TaskTracker::new(),
    )
}

fn submission(article: &serde_json::Value) -> Submission {
    Submission::parse(article.to_string().as_bytes(), |_| Ok(())).unwrap()
}

/// Hands all in before a writer runs, so that they are gathered.
async fn gathered(
    world: &World,
    acceptor: &Acceptor,
    articles: &[serde_json::Value],
) -> Vec<Result<Acceptance, NotAccepted>> {
    let tenant_id = world.tenant.tenant_id;
    at_once(articles.iter().map(|article| {
        let (acceptor, submission) = (acceptor.clone(), submission(article));
        async move { acceptor.accept(&Sender { tenant_id, ..Sender::default() }, submission, None).await }
    }))
    .await
}

const TRANSACTIONS: &str = "SELECT count(DISTINCT xmin::text) FROM tasks";

#[tokio::test]
async fn one_batch_sorts_out_duplicates_and_unknown_groups() {
    in_world(async |world: &World| {
        let of_group = |id: &str, group: &str| article_with(id, json!({"group_code": group}));
        let articles = [
            article("a"),
            of_group("b", "nowhere"),
            article_with("a", json!({"title": "Second"})),
            of_group("c", EMPTY),
            of_group("d", BOTH),
            article_with("a", json!({"on_duplicate": "reject"})),
            of_group("b", ONE),
            article("d"),
        ];
        let answers = gathered(world, &acceptor(world), &articles).await;
        // One statement for the first of each id, and one for the second `b`, whose first stored nothing.
        assert_eq!(world.number(TRANSACTIONS).await, 2);
        let first = answers[0].as_ref().unwrap();
        assert!(first.created);
        assert!(matches!(answers[1], Err(NotAccepted::UnknownGroup)));
        let second = answers[2].as_ref().unwrap();
        assert_eq!((second.created, second.task_id), (false, first.task_id));
        assert_eq!(second.changed_fields, ["title"]);
        assert!(matches!(answers[3], Err(NotAccepted::EmptyGroup)));
        assert_eq!(answers[4].as_ref().unwrap().publications.len(), 2);
        assert!(matches!(&answers[5], Err(NotAccepted::Duplicate(task)) if task.task_id == first.task_id));
        // The one before it stored nothing, so this one is new.
        assert!(answers[6].as_ref().unwrap().created);
        assert_eq!(answers[7].as_ref().unwrap().changed_fields, ["group_code"]);
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 3);
    })
    .await;
}

#[tokio::test]
async fn more_than_may_wait_at_once_wait_for_room_where_they_are_patient() {
    in_world(async |world: &World| {
        // The queue has 4,096 places, and all are handed in before a writer runs.
        let (acceptor, tenant_id) = (acceptor(world), world.tenant.tenant_id);
        let accepted = at_once((0..4_200).map(|n| {
            let submission = submission(&article_with(&format!("post-{n}"), json!({"draft": true})));
            let acceptor = acceptor.clone();
            async move {
                let sender = Sender { tenant_id, ..Sender::default() };
                acceptor.accept_patiently(&sender, submission, None).await
            }
        }))
        .await;
        assert!(accepted.iter().all(|one| one.as_ref().is_ok_and(|task| task.created)));
    })
    .await;
}

#[tokio::test]
async fn an_article_that_the_database_refuses_fails_alone() {
    in_world(async |world: &World| {
        world.execute("ALTER TABLE articles ADD CONSTRAINT sick CHECK (title <> 'sick')").await;
        let mut articles = (0..40).map(|n| article(&format!("post-{n}"))).collect::<Vec<_>>();
        for sick in [11, 30] {
            articles[sick]["title"] = json!("sick");
        }
        let answers = gathered(world, &acceptor(world), &articles).await;
        for (n, answer) in answers.iter().enumerate() {
            match answer {
                Ok(accepted) => assert!(accepted.created && n != 11 && n != 30),
                Err(error) => assert!(matches!(error, NotAccepted::Refused) && (n == 11 || n == 30), "{n}"),
            }
        }
        assert!(world.number(TRANSACTIONS).await < 20, "neighbours stay gathered");
        // Nothing of a refused one is left, so it can come again.
        world.execute("ALTER TABLE articles DROP CONSTRAINT sick").await;
        assert!(gathered(world, &acceptor(world), &articles[11..12]).await[0].as_ref().unwrap().created);
    })
    .await;
}

#[tokio::test]
async fn a_lock_on_one_article_holds_up_no_other_for_long() {
    in_world(async |world: &World| {
        // Somebody is about to write `post-1`, and takes his time.
        let mut other = world.pool.begin().await.unwrap();
        sqlx::query(
            "INSERT INTO tasks (tenant_id, external_id, task_id, group_code, fingerprint, digests, draft, drafts, open,
                created_at)
            SELECT tenant_id, 'post-1', gen_random_uuid(), 'one', sha256(''), sha256('') || sha256(''), false, 0, 1,
                now()
            FROM tenants",
        )
        .execute(&mut *other)
        .await
        .unwrap();
        let articles = [article("post-0"), article("post-1"), article("post-2")];
        let answers = gathered(world, &acceptor(world), &articles).await;
        other.rollback().await.unwrap();
        assert!(matches!(answers[1], Err(NotAccepted::Unavailable)), "{answers:?}");
        for n in [0, 2] {
            assert!(matches!(&answers[n], Ok(task) if task.created), "{answers:?}");
        }
        let again = gathered(world, &acceptor(world), &articles).await;
        assert!(again.iter().all(Result::is_ok));
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 3);
    })
    .await;
}

#[tokio::test]
async fn who_changes_a_group_holds_up_no_article_of_another() {
    // Four times halved, which leaves time also on a slow machine.
    const MANY: usize = 16;
    in_world(async |world: &World| {
        let mut changing = world.pool.begin().await.unwrap();
        sqlx::query("SELECT FROM groups WHERE group_code = 'both' FOR UPDATE")
            .execute(&mut *changing)
            .await
            .unwrap();
        let mut articles = (0..MANY).map(|n| article(&format!("post-{n:03}"))).collect::<Vec<_>>();
        articles[7] = article_with("post-007", json!({"group_code": BOTH}));
        let answers = gathered(world, &acceptor(world), &articles).await;
        changing.rollback().await.unwrap();
        let unanswered = (0..MANY).filter(|n| answers[*n].is_err()).collect::<Vec<_>>();
        assert_eq!(unanswered, [7]);
    })
    .await;
}

#[tokio::test]
async fn two_batches_in_opposite_order_do_not_wait_for_each_other_in_a_circle() {
    const ROUNDS: usize = 15;
    const ARTICLES: usize = 60;
    in_world(async |world: &World| {
        // Each row takes its time, so that the two meet halfway.
        world
            .execute(
                "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN PERFORM pg_sleep(0.0005); RETURN NEW; END $$;
                CREATE TRIGGER dawdle AFTER INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION dawdle();
                CREATE TRIGGER dawdle_before BEFORE INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION dawdle()",
            )
            .await;
        for round in 0..ROUNDS {
            let batch = |mut places: Vec<usize>, reversed: bool| {
                if reversed {
                    places.reverse();
                }
                let tasks = places.iter().map(|n| world.new_task(&format!("{round}-{n:03}"), ONE));
                let (tasks, store) = (tasks.collect::<Vec<_>>(), world.store.clone());
                async move {
                    store.accept(&tasks.iter().collect::<Vec<_>>(), Uuid::nil(), LOCK_WAIT).await.unwrap()
                }
            };
            let all = || (0..ARTICLES).collect::<Vec<_>>();
            let (there, back) = tokio::join!(batch(all(), false), batch(all(), true));
            let created = |admitted: &[Admitted]| {
                admitted.iter().filter(|one| matches!(one, Admitted::Created { .. })).count()
            };
            assert_eq!(created(&there) + created(&back), ARTICLES);
        }
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_a_whole_task_or_nothing() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let address = api.base.strip_prefix("http://").unwrap();
        let complete = 40;
        for n in 0..complete {
            let body = article(&format!("left-{n}")).to_string();
            let head = format!(
                "POST /publish HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n",
                api.key,
                body.len()
            );
            let mut stream = TcpStream::connect(address).await.unwrap();
            // Every fourth goes away in the middle of its body.
            let sent = if n % 4 == 0 { &body[..body.len() / 2] } else { &body };
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            // Some at once, some after the service has had a few turns.
            for _ in 0..n % 7 * 20 {
                tokio::task::yield_now().await;
            }
            drop(stream);
        }
        // What went before it is decided when this one is answered twice.
        api.publish(&article("last")).await.ok();
        for n in 0..complete {
            let answer = api.publish(&article(&format!("left-{n}"))).await.ok();
            assert_eq!(answer["publications"].as_array().unwrap().len(), 1);
            if n % 4 == 0 {
                assert_eq!(answer["created"], true, "half a body is no article");
            }
            api.finished(&format!("left-{n}")).await;
        }
        assert_eq!(world.pages("blog1").len(), usize::try_from(complete).unwrap() + 1);
    })
    .await;
}

#[tokio::test]
async fn what_exists_is_answered_without_a_lock_or_a_write() {
    in_world(async |world: &World| {
        let acceptor = acceptor(world);
        let articles = (0..30).map(|n| article(&format!("post-{n}"))).collect::<Vec<_>>();
        gathered(world, &acceptor, &articles).await;
        // Who locks a row leaves its number there.
        let touched = "SELECT count(*) FROM groups WHERE xmax <> 0";
        world.execute("UPDATE groups SET group_code = group_code").await;
        assert_eq!(world.number(touched).await, 0);
        for answer in gathered(world, &acceptor, &articles).await {
            assert!(answer.unwrap().replayed);
        }
        assert_eq!(world.number(touched).await, 0);
        // With a new one among them, that one's group.
        gathered(world, &acceptor, &[article("post-1"), article("new"), article("post-2")]).await;
        assert_eq!(world.number(touched).await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_full_disk_refuses_for_now_and_keeps_nothing() {
    in_world(async |world: &World| {
        // What `PostgreSQL` says then, at the third of what one article writes.
        world
            .execute(
                "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN RAISE disk_full USING MESSAGE = 'could not extend file: No space left on device'; END $$",
            )
            .await;
        world
            .execute(
                "CREATE TRIGGER full_disk BEFORE INSERT ON publications FOR EACH ROW EXECUTE FUNCTION full_disk()",
            )
            .await;
        let acceptor = acceptor(world);
        let articles = (0..30).map(|n| article(&format!("post-{n}"))).collect::<Vec<_>>();
        for answer in gathered(world, &acceptor, &articles).await {
            assert!(matches!(answer, Err(NotAccepted::Unavailable)), "{answer:?}");
        }
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 0);
        // What is there is found all the same, and what is not comes in when there is room again.
        world.execute("DROP TRIGGER full_disk ON publications").await;
        for answer in gathered(world, &acceptor, &articles).await {
            assert!(answer.unwrap().created);
        }
    })
    .await;
}

/// Holds each statement that accepts back once all is inserted, until what is returned lets go of it.
async fn hold_back(world: &World) -> PgConnection {
    world
        .execute(
            "CREATE FUNCTION wait_at_the_end() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$",
        )
        .await;
    world
        .execute(
            "CREATE TRIGGER wait_at_the_end AFTER INSERT ON publications FOR EACH STATEMENT
            EXECUTE FUNCTION wait_at_the_end()",
        )
        .await;
    let mut gate = PgConnection::connect(&world.url).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(7)").execute(&mut gate).await.unwrap();
    gate
}

/// How many of them are held back.
const HELD_BACK: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'";

#[tokio::test]
async fn batches_whose_connections_are_lost_are_written_once_and_told_as_new() {
    in_world(async |world: &World| {
        let mut gate = hold_back(world).await;
        let acceptor = acceptor(world);
        let articles = (0..30).map(|n| article(&format!("post-{n}"))).collect::<Vec<_>>();
        let lose = async {
            world.until(HELD_BACK, 1).await;
            let lost = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event = 'advisory'";
            assert!(world.number(lost).await > 0);
            sqlx::query("SELECT pg_advisory_unlock(7)").execute(&mut gate).await.unwrap();
        };
        let (answers, ()) = tokio::join!(gathered(world, &acceptor, &articles), lose);
        for answer in answers {
            assert!(answer.unwrap().created);
        }
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 30);
        gate.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn batches_that_were_committed_as_their_connections_were_lost_are_known_as_our_own() {
    in_world(async |world: &World| {
        let wire = Wire::to(&world.url);
        let store = Store::open(&wire.url, 4, world.shared_clock()).unwrap();
        let mut gate = hold_back(world).await;
        let acceptor = acceptor_on(world, &store);
        let mut articles = (0..30)
            .map(|n| article_with(&format!("post-{n:02}"), json!({"on_duplicate": "reject"})))
            .collect::<Vec<_>>();
        // Of two of the same article, one is a duplicate, whatever is lost.
        articles.push(article_with("post-00", json!({"title": "Second"})));
        let lose = async {
            // What is asked to prepare a statement is answered by then.
            world.until(HELD_BACK, 1).await;
            wire.cut();
            sqlx::query("SELECT pg_advisory_unlock(7)").execute(&mut gate).await.unwrap();
        };
        let (answers, ()) = tokio::join!(gathered(world, &acceptor, &articles), lose);
        assert!(wire.lost() > 0, "no answer was lost: the test shows nothing");
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 30);
        for (n, answer) in answers[..30].iter().enumerate() {
            let own = answer.as_ref().unwrap_or_else(|error| panic!("{n}: {error}"));
            assert!(own.created && !own.replayed && own.changed_fields.is_empty(), "{n}: {own:?}");
        }
        let second = answers[30].as_ref().unwrap();
        assert!(!second.created && second.changed_fields == ["title"], "{second:?}");
        // All was written at the first time, and nothing after that.
        assert_eq!(world.number(TRANSACTIONS).await, 1);
        gate.close().await.unwrap();
        store.close().await;
    })
    .await;
}
