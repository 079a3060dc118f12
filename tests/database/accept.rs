//! Accepting in batches: neighbours do not feel each other, and nothing is ever half done.

use publish_ingest::article::Submission;
use publish_ingest::store::Admitted;
use publish_ingest::task::accept::{Acceptance, Acceptor, NotAccepted, Sender};
use publish_ingest::telemetry::metrics::Metrics;
use publish_ingest::turns::Wake;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::harness::{BOTH, EMPTY, ONE, World, article, article_with, at_once, in_world};

fn acceptor(world: &World) -> Acceptor {
    Acceptor::start(
        None,
        world.store.clone(),
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
        assert!(matches!(answers[1], Err(NotAccepted::Unavailable)), "{answers:?}");
        other.rollback().await.unwrap();
        // What was answered is what is stored.
        for (n, answer) in answers.iter().enumerate() {
            if answer.is_ok() {
                assert!(matches!(answer, Ok(task) if task.created), "{n}");
            }
        }
        let again = gathered(world, &acceptor(world), &articles).await;
        assert!(again.iter().all(Result::is_ok));
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 3);
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
                async move { store.accept(&tasks.iter().collect::<Vec<_>>(), Uuid::nil()).await.unwrap() }
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
