//! Articles of many images: how many are fetched beside each other, and what is done when one part has no time for all.

use super::*;
use crate::clock::{Clock, SystemClock};

/// How many are fetched beside each other: written out, or one would do.
const BESIDE: usize = 4;

/// A clock that a test moves on: time that an upload takes.
#[derive(Default)]
struct Hands(Mutex<Duration>);

impl Clock for Hands {
    fn now(&self) -> chrono::DateTime<chrono::Utc> {
        SystemClock.now()
    }

    fn instant(&self) -> Instant {
        SystemClock.instant() + *self.0.lock().unwrap()
    }

    fn skew(&self) -> chrono::TimeDelta {
        chrono::TimeDelta::zero()
    }

    fn fill(&self, bytes: &mut [u8]) {
        SystemClock.fill(bytes);
    }
}

/// A platform whose uploads take that long.
struct Slow {
    clock: Arc<Hands>,
    each: Duration,
    given: Vec<String>,
}

impl Uploader for Slow {
    type Error = String;

    async fn upload(&mut self, image: Image) -> Result<Placed, NotPlaced<String>> {
        *self.clock.0.lock().unwrap() += self.each;
        let url = format!("https://blog.example/{}", image.file_name());
        self.given.push(image.sha256);
        Ok(Placed { url, remote_id: None })
    }
}

/// So many images, each with a content of its own.
fn gallery(count: usize, gate: Option<&Arc<Gate>>) -> Vec<(String, Does)> {
    let image = |n| [PNG, format!("{n}").as_bytes()].concat();
    let does = |n| gate.map_or_else(|| ok(&image(n)), |gate| Does::Gated(gate.clone(), image(n)));
    (0..count).map(|n| (format!("/{n}"), does(n))).collect()
}

fn showing(host: &Host, count: usize) -> Content {
    article(
        None,
        (0..count).map(|n| format!("<img src={}>", host.url(&format!("/{n}")))).collect::<Vec<_>>().concat(),
    )
}

#[tokio::test]
async fn images_are_fetched_beside_each_other_and_no_more_than_that() {
    let gate = Gate::closed();
    let host = Host::start(gallery(30, Some(&gate))).await;
    let (media, content, mut shelf) = (local(), showing(&host, 30), Shelf::default());
    let all_but_one = async {
        // All that may be asked for at once is asked for before anything is answered; then one more with each answer.
        gate.pass(u32::try_from(BESIDE).unwrap(), 0).await;
        for answered in 0..30 - BESIDE {
            assert_eq!((gate.asked.available_permits(), host.asked().len()), (0, BESIDE + answered));
            // In their order, since they are uploaded so.
            gate.pass(0, 1).await;
            gate.pass(1, 0).await;
        }
        gate.pass(0, BESIDE).await;
    };
    let (moved, ()) = tokio::join!(transfer(&media, &content, UPLOAD, &mut shelf), all_but_one);
    let moved = moved.unwrap();
    assert_eq!((shelf.given, host.asked().len()), (30, 30));
    let shown =
        (1..=30).map(|n| format!("<img src=\"https://blog.example/{n}\">")).collect::<Vec<_>>().concat();
    assert_eq!(moved.content_html, shown);
    let order = shelf.images.iter().map(|image| image.bytes[PNG.len()..].to_vec()).collect::<Vec<_>>();
    assert_eq!(order, (0..30).map(|n| n.to_string().into_bytes()).collect::<Vec<_>>());
    assert_eq!(media.room.available_permits(), IMAGES_AT_ONCE * IMAGE_MAX_KIB);
}

#[tokio::test]
async fn a_busy_node_moves_one_image_of_an_article_at_a_time() {
    let gate = Gate::closed();
    let host = Host::start(gallery(3, Some(&gate))).await;
    let (media, content, mut shelf) = (local(), showing(&host, 3), Shelf::default());
    let others = u32::try_from((IMAGES_AT_ONCE - 1) * IMAGE_MAX_KIB).unwrap();
    let _others = media.room.acquire_many(others).await.unwrap();
    let one_by_one = async {
        for answered in 0..3 {
            gate.pass(1, 0).await;
            assert_eq!((gate.asked.available_permits(), host.asked().len()), (0, answered + 1));
            gate.pass(0, 1).await;
        }
    };
    let (moved, ()) = tokio::join!(transfer(&media, &content, UPLOAD, &mut shelf), one_by_one);
    assert_eq!((moved.is_ok(), shelf.given), (true, 3));
}

#[tokio::test]
async fn what_there_is_no_time_for_is_moved_in_another_part_and_nothing_twice() {
    let mut paths = gallery(7, None);
    paths.push(("/7".to_owned(), ok(&[PNG, b"0"].concat())));
    let host = Host::start(paths).await;
    let content = showing(&host, 8);
    let clock = Arc::new(Hands::default());
    let policy = Policy { allow: vec!["127.0.0.0/8".parse().unwrap()], allow_http: true, ports: None };
    let media = Media::new(Client::new(policy, clock.clone()).unwrap(), clock.clone());
    let mut slow = Slow { clock: clock.clone(), each: Duration::from_mins(5), given: Vec::new() };
    let mut moved = Moved::default();
    let mut parts = Vec::new();
    let whole = loop {
        let until = clock.instant() + Duration::from_mins(14);
        // As a connector keeps it between two parts.
        moved = serde_json::from_value(serde_json::to_value(moved).unwrap()).unwrap();
        let got = media.transfer(&content, UPLOAD, until, &mut moved, &mut slow).await.unwrap();
        assert!(until > clock.instant(), "what was begun has ended in time");
        parts.push(slow.given.len());
        if let Some(whole) = got {
            break whole;
        }
    };
    // After the second upload four minutes are left: too few for one that takes five.
    assert_eq!(parts, [2, 4, 6, 7]);
    assert_eq!(slow.given.iter().collect::<std::collections::HashSet<_>>().len(), 7, "each content once");
    assert_eq!(whole.content_html.matches("https://blog.example/").count(), 8);
    assert_eq!(whole.content_html.matches(&slow.given[0]).count(), 2);
}

#[tokio::test]
async fn a_part_in_which_nothing_could_be_moved_ends_the_try_and_says_so() {
    let host = Host::start(gallery(1, Some(&Gate::closed()))).await;
    let (media, content) = (local(), showing(&host, 1));
    let until = media.clock.instant() + Duration::from_millis(100);
    let got = media.transfer(&content, OMIT, until, &mut Moved::default(), &mut Shelf::default()).await;
    let Err(TransferError::Transient(why)) = got else { panic!("{got:?}") };
    assert_eq!(why.code, "image_unavailable");
    assert!(
        why.message.ends_with("no time left to fetch it; it is tried again by the retry schedule"),
        "{}",
        why.message
    );
}
