use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::clock::TestClock;
use crate::outbound::Policy;

mod parts;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n one";
const GIF: &[u8] = b"GIF89a two";
const UPLOAD: Rules = Rules { cover: Images::Upload, body: Images::Upload, broken: Broken::Fail };
const OMIT: Rules = Rules { broken: Broken::Omit, ..UPLOAD };
const ROOMY: Duration = Duration::from_secs(10);

/// What the host of the images does with a request.
#[derive(Clone)]
enum Does {
    /// Answers so, with a `Content-Length`.
    Answers(u16, &'static str, Vec<u8>),
    /// Answers 200, and the body ends with the connection.
    EndsWhenItEnds(Vec<u8>),
    /// Sends a byte now and then, and never all of them.
    Drips,
    /// Never stops sending.
    Floods,
    /// Says nothing.
    Waits,
    /// Answers with that image when it is let, and says that it was asked.
    Gated(Arc<Gate>, Vec<u8>),
    /// Promises more than it sends.
    BreaksOff,
}

/// Holds answers back until a test lets them go.
#[derive(Debug)]
struct Gate {
    /// One for each request that came.
    asked: Semaphore,
    /// One for each answer that may go.
    open: Semaphore,
}

impl Gate {
    fn closed() -> Arc<Self> {
        Arc::new(Self { asked: Semaphore::new(0), open: Semaphore::new(0) })
    }

    /// When so many more requests have come; then so many answers go.
    async fn pass(&self, asked: u32, answers: usize) {
        tokio::time::timeout(ROOMY, self.asked.acquire_many(asked))
            .await
            .expect("they are asked")
            .unwrap()
            .forget();
        self.open.add_permits(answers);
    }
}

/// A server of images, and the paths that it was asked for.
struct Host {
    base: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Host {
    async fn start<P: Into<String>>(paths: Vec<(P, Does)>) -> Self {
        let paths =
            paths.into_iter().map(|(path, does)| (path.into(), does)).collect::<Vec<(String, Does)>>();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, paths.clone(), heard.clone()));
            }
        });
        Self { base, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, paths: Vec<(String, Does)>, asked: Arc<Mutex<Vec<String>>>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let request = String::from_utf8(request).unwrap();
    let path = request.split(' ').nth(1).unwrap().to_owned();
    assert!(
        request.starts_with("GET ") && !request.to_ascii_lowercase().contains("content-length"),
        "{request}"
    );
    asked.lock().unwrap().push(path.clone());
    let does = paths.into_iter().find(|(known, _)| *known == path).map(|(_, does)| does);
    // Whatever fails here does so because the client has hung up.
    let _ = match does.unwrap_or(Does::Answers(404, "", Vec::new())) {
        Does::Answers(status, headers, body) => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(&[head.as_bytes(), &body].concat()).await
        }
        Does::EndsWhenItEnds(body) => {
            stream.write_all(&[b"HTTP/1.1 200 OK\r\n\r\n", &body[..]].concat()).await
        }
        Does::Drips => {
            let mut drip = tokio::time::interval(Duration::from_millis(20));
            let mut sent =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n\x89PNG\r\n\x1a\n").await;
            while sent.is_ok() {
                drip.tick().await;
                sent = stream.write_all(b"x").await;
            }
            sent
        }
        Does::Floods => {
            let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n\x89PNG\r\n\x1a\n").await;
            while sent.is_ok() {
                sent = stream.write_all(&[0; 8_192]).await;
            }
            sent
        }
        Does::Waits => stream.read_to_end(&mut Vec::new()).await.map(|_| ()),
        Does::Gated(gate, body) => {
            gate.asked.add_permits(1);
            gate.open.acquire().await.unwrap().forget();
            let head =
                format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            stream.write_all(&[head.as_bytes(), &body].concat()).await
        }
        Does::BreaksOff => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n\x89PNG\r\n\x1a\n").await
        }
    };
}

fn ok(body: &[u8]) -> Does {
    Does::Answers(200, "", body.to_vec())
}

fn media(allow: &[&str]) -> Media {
    let policy = Policy {
        allow: allow.iter().map(|net| net.parse().unwrap()).collect(),
        allow_http: true,
        ports: None,
    };
    let clock = Arc::new(TestClock::seeded(1));
    Media::new(Client::new(policy, clock.clone()).unwrap(), clock)
}

fn local() -> Media {
    media(&["127.0.0.0/8"])
}

/// Keeps what it is given, and takes no GIF.
#[derive(Default)]
struct Shelf {
    images: Vec<Image>,
    given: usize,
}

impl Uploader for Shelf {
    type Error = String;

    async fn upload(&mut self, image: Image) -> Result<Placed, NotPlaced<String>> {
        tokio::task::yield_now().await;
        self.given += 1;
        if image.bytes == b"GIF89a down" {
            return Err(NotPlaced::Failed("the platform is down".to_owned()));
        }
        if image.kind == Kind::Gif {
            return Err(NotPlaced::Refused("the blog takes no GIF: use PNG".to_owned()));
        }
        let url = format!("https://blog.example/{}", self.given);
        self.images.push(image);
        Ok(Placed { url, remote_id: Some(self.given.to_string()) })
    }
}

fn article(cover: Option<String>, html: impl Into<String>) -> Content {
    Content { content_html: html.into(), cover_url: cover, ..Content::default() }
}

async fn transfer(
    media: &Media,
    content: &Content,
    rules: Rules,
    shelf: &mut Shelf,
) -> Result<Transferred, TransferError<String>> {
    let until = media.clock.instant() + ROOMY;
    // Boxed as connectors do: it must be able to move between threads.
    let mut moved = Moved::default();
    let moving: crate::connector::Answering<'_, _> =
        Box::pin(media.transfer(content, rules, until, &mut moved, shelf));
    let moved = tokio::time::timeout(ROOMY, moving).await.expect("it does not hang");
    moved.map(|whole| whole.expect("there is time for all of it"))
}

async fn fetched(media: &Media, url: &str) -> Result<Image, (bool, String, String)> {
    media.fetch(Role::Body, url, ROOMY).await.map_err(|error| match error {
        MediaError::Broken(why) => (false, why.code.into_owned(), why.message),
        MediaError::Transient(why) => (true, why.code.into_owned(), why.message),
    })
}

#[tokio::test]
async fn an_image_is_what_its_content_says() {
    let most = [PNG, &vec![0; IMAGE_MAX_BYTES - PNG.len()]].concat();
    let html = b"GIF89a\x01\0\x01\0\0\0\0;<html><script>alert(1)</script>";
    let host = Host::start(vec![
        ("/a.gif", Does::Answers(200, "content-type: text/html\r\n", PNG.to_vec())),
        ("/shell.php", ok(html)),
        ("/most.png", ok(&most)),
        ("/untold.png", Does::EndsWhenItEnds(most)),
    ]);
    let host = host.await;
    let image = fetched(&local(), &host.url("/a.gif?x=1#y")).await.unwrap_err();
    assert_eq!(image.1, "image_unavailable", "the query is sent");
    let image = fetched(&local(), &host.url("/a.gif#y")).await.unwrap();
    assert_eq!((image.kind, &image.bytes[..], image.kind.mime()), (Kind::Png, PNG, "image/png"));
    assert_eq!(image.file_name(), format!("{}.png", image.sha256));
    assert_eq!(format!("{image:?}"), format!("Image(12 bytes, {}.png)", image.sha256));
    // What hangs behind an image is carried along, but nothing calls it anything but an image.
    let image = fetched(&local(), &host.url("/shell.php")).await.unwrap();
    assert_eq!((image.kind.mime(), image.bytes.len()), ("image/gif", html.len()));
    assert_eq!(image.file_name(), format!("{}.gif", image.sha256));
    for path in ["/most.png", "/untold.png"] {
        assert_eq!(fetched(&local(), &host.url(path)).await.unwrap().bytes.len(), IMAGE_MAX_BYTES, "{path}");
    }
}

#[test]
fn the_hash_is_the_one_that_others_compute() {
    let image = Image::of(b"GIF89a".to_vec()).unwrap();
    assert_eq!(image.sha256, "610f5ae4d76e332636a17bd357fd6ce99029316a99d320280d4d77a746bf29e8");
}

#[tokio::test]
async fn what_is_no_image_is_broken_and_says_why() {
    let png = b"\x89PNG\r\n\x1a\n";
    let host = Host::start(vec![
        ("/svg.png", Does::Answers(200, "content-type: image/png\r\n", b"\n<SVG onload=x>".to_vec())),
        ("/page.png", Does::Answers(200, "content-type: image/png\r\n", b"<!doctype html>".to_vec())),
        ("/empty.png", ok(b"")),
        ("/gone.png", Does::Answers(410, "", png.to_vec())),
        ("/part.png", Does::Answers(206, "", png.to_vec())),
        ("/secret.png", Does::Answers(403, "", png.to_vec())),
        ("/large.png", ok(&[png.to_vec(), vec![0; IMAGE_MAX_BYTES - 7]].concat())),
        ("/flood.png", Does::Floods),
        ("/moved.png", Does::Answers(302, "location: /new.png?token=s3cret\r\n", png.to_vec())),
        ("/lost.png", Does::Answers(301, "", png.to_vec())),
        ("/gzip.png", Does::Answers(200, "content-encoding: gzip\r\n", b"\x1f\x8b\x08".to_vec())),
    ]);
    let host = host.await;
    let to = host.url("/new.png");
    for (path, code, word) in [
        ("/svg.png", "image_wrong_type", "SVG is not taken"),
        ("/page.png", "image_wrong_type", "no image that is taken"),
        ("/empty.png", "image_wrong_type", "is empty"),
        ("/gone.png", "image_unavailable", "answered 410: check"),
        ("/part.png", "image_unavailable", "answered 206: check"),
        ("/secret.png", "image_unavailable", "answered 403: check"),
        ("/nowhere.png", "image_unavailable", "answered 404: check"),
        ("/large.png", "image_too_large", "larger than 10 MiB"),
        ("/flood.png", "image_too_large", "larger than 10 MiB"),
        (
            "/moved.png",
            "image_unavailable",
            &format!("answered 302, a redirect to {to}, and none is followed: use the"),
        ),
        (
            "/lost.png",
            "image_unavailable",
            "answered 301, a redirect, and none is followed: use the final address",
        ),
        ("/gzip.png", "image_wrong_type", "no image that is taken"),
    ] {
        let (passing, told, message) = fetched(&local(), &host.url(path)).await.unwrap_err();
        assert_eq!((passing, &*told), (false, code), "{message}");
        assert!(message.starts_with(&host.url(path)) && message.contains(word), "{message}");
        assert!(!message.contains("s3cret"), "{message}");
    }
    assert!(!host.asked().contains(&"/new.png?token=s3cret".to_owned()), "a redirect was followed");
}

#[tokio::test]
async fn what_may_pass_is_transient() {
    let host = Host::start(vec![
        ("/busy", Does::Answers(503, "", PNG.to_vec())),
        ("/often", Does::Answers(429, "", PNG.to_vec())),
        ("/slow", Does::Answers(408, "", PNG.to_vec())),
        ("/break", Does::BreaksOff),
        ("/drip", Does::Drips),
        ("/wait", Does::Waits),
    ]);
    let host = host.await;
    let media = local();
    for (path, deadline) in [
        ("/busy", ROOMY),
        ("/often", ROOMY),
        ("/slow", ROOMY),
        ("/break", ROOMY),
        ("/drip", Duration::from_millis(200)),
        ("/wait", Duration::from_millis(200)),
    ] {
        let got = tokio::time::timeout(ROOMY / 2, media.fetch(Role::Cover, &host.url(path), deadline))
            .await
            .unwrap();
        let Err(MediaError::Transient(why)) = got else { panic!("{path}: {got:?}") };
        assert_eq!(why.code, "cover_unavailable");
        assert!(why.message.starts_with(&host.url(path)), "{}", why.message);
    }
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (passing, ..) = fetched(&media, &format!("http://{nobody}/")).await.unwrap_err();
    assert!(passing);
}

#[tokio::test]
async fn images_keep_to_the_rules_of_addresses() {
    let host = Host::start(vec![("/a.png", ok(PNG))]).await;
    let port = host.base.rsplit(':').next().unwrap();
    let refused = media(&[]);
    for url in [
        host.url("/a.png"),
        format!("http://localhost:{port}/a.png"),
        format!("http://0x7f.1:{port}/a.png"),
        format!("http://[::ffff:127.0.0.1]:{port}/a.png"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "ftp://h/a.png".to_owned(),
    ] {
        let (passing, code, message) = fetched(&refused, &url).await.unwrap_err();
        assert_eq!((passing, &*code), (false, "image_not_allowed"), "{message}");
    }
    let with_user = host.base.replace("http://", "http://me:s3cret@") + "/a.png?key=s3cret";
    let (passing, code, message) = fetched(&local(), &with_user).await.unwrap_err();
    assert_eq!((passing, &*code), (false, "image_not_allowed"));
    assert!(message.starts_with(&host.url("/a.png")) && !message.contains("s3cret"), "{message}");
    let (_, code, message) =
        fetched(&local(), &host.url(&format!("/{}", "x".repeat(2_048)))).await.unwrap_err();
    assert_eq!(code, "image_not_allowed");
    assert!(message.chars().count() < 200 && message.contains('…'), "{message}");
    assert_eq!(host.asked(), Vec::<String>::new(), "a refused address was called");
}

#[tokio::test]
async fn each_address_is_fetched_and_each_content_uploaded_once() {
    let host =
        Host::start(vec![("/a.png", ok(PNG)), ("/b.png", ok(PNG)), ("/c.jpg", ok(b"\xff\xd8\xff three"))])
            .await;
    let [a, b, c] = ["/a.png", "/b.png", "/c.jpg"].map(|path| host.url(path));
    let data = "data:image/png;base64,iVBORw0KGgogb25l"; // the bytes of PNG
    let html = format!(
        "<img src={a}><p><img src={c} srcset='{c} 2x'><img src={b}><img src={a}#x><img src={data}><img src=/r>"
    );
    let mut shelf = Shelf::default();
    let moved = transfer(&local(), &article(Some(b), html), UPLOAD, &mut shelf).await.unwrap();
    let mut asked = host.asked();
    asked.sort();
    assert_eq!(asked, ["/a.png", "/b.png", "/c.jpg"]);
    assert_eq!(shelf.images.iter().map(|image| image.kind).collect::<Vec<_>>(), [Kind::Png, Kind::Jpeg]);
    let [one, two] = ["<img src=\"https://blog.example/1\">", "<img src=\"https://blog.example/2\">"];
    assert_eq!(moved.content_html, format!("{one}<p>{two}{one}{one}{one}<img src=\"/r\"></p>"));
    let cover = Placed { url: "https://blog.example/1".to_owned(), remote_id: Some("1".to_owned()) };
    assert_eq!((moved.cover, moved.left_out), (Some(cover), Vec::new()));
}

#[tokio::test]
async fn what_is_kept_is_not_looked_at_and_stays_to_the_byte() {
    let host = Host::start(vec![("/a.png", ok(PNG))]).await;
    let html = format!("<P>x<img src={}><img src={}>", host.url("/a.png"), host.url("/gone.png"));
    let content = article(Some(host.url("/a.png")), html.clone());
    let keep = Rules { cover: Images::Keep, body: Images::Keep, broken: Broken::Fail };
    let kept = transfer(&local(), &content, keep, &mut Shelf::default()).await.unwrap();
    assert_eq!(kept, Transferred { content_html: html.clone(), cover: None, left_out: Vec::new() });
    assert_eq!(host.asked(), Vec::<String>::new());
    // The cover alone: the text goes on showing the same image from where it was.
    let cover = Rules { cover: Images::Upload, ..keep };
    let moved = transfer(&local(), &content, cover, &mut Shelf::default()).await.unwrap();
    assert_eq!((moved.content_html, moved.cover.is_some()), (html, true));
    assert_eq!(host.asked(), ["/a.png"]);
    let plain = article(None, "<P>nothing to see");
    assert_eq!(
        transfer(&local(), &plain, UPLOAD, &mut Shelf::default()).await.unwrap().content_html,
        "<P>nothing to see"
    );
}

#[tokio::test]
async fn a_broken_image_ends_it_or_is_left_out() {
    let host = Host::start(vec![
        ("/a.png", ok(PNG)),
        ("/b.gif", ok(GIF)),
        ("/c.gif", ok(GIF)),
        ("/busy", Does::Answers(503, "", Vec::new())),
    ]);
    let host = host.await;
    let html = format!(
        "<img src={}>x<figure><img src={}></figure><img src=data:image/svg+xml,%3Csvg/%3E><img src={}><img src={}>",
        host.url("/a.png"),
        host.url("/gone.png"),
        host.url("/b.gif"),
        host.url("/c.gif"),
    );
    let content = article(Some(host.url("/gone.png")), html);
    let mut shelf = Shelf::default();
    let got = transfer(&local(), &content, UPLOAD, &mut shelf).await;
    let Err(TransferError::Broken(why)) = got else { panic!("{got:?}") };
    assert_eq!((&*why.code, shelf.given), ("cover_unavailable", 0), "nothing was uploaded before");
    let moved = transfer(&local(), &content, OMIT, &mut shelf).await.unwrap();
    assert_eq!(moved.content_html, "<img src=\"https://blog.example/1\">x");
    assert_eq!((moved.cover, shelf.given), (None, 2), "what was refused once is not sent again");
    let told = moved.left_out.iter().map(|why| (&*why.code, why.message.clone())).collect::<Vec<_>>();
    let refused = |path| format!("left out: {}: the blog takes no GIF: use PNG", host.url(path));
    let gone = format!(
        "left out: {}: its server answered 404: check that the image can be seen by everybody",
        host.url("/gone.png")
    );
    let svg = "left out: a data: image: SVG is not taken, since it can hold programs: use PNG, JPEG, GIF, WebP or AVIF";
    assert_eq!(
        told,
        [
            ("cover_omitted", gone),
            ("image_omitted", svg.to_owned()),
            ("image_omitted", refused("/b.gif")),
            ("image_omitted", refused("/c.gif")),
        ]
    );
    // What may pass is no reason to publish without it.
    let busy = article(None, format!("<img src={}>", host.url("/busy")));
    let got = transfer(&local(), &busy, OMIT, &mut shelf).await;
    assert!(matches!(got, Err(TransferError::Transient(_))), "{got:?}");
}

#[tokio::test]
async fn an_upload_that_fails_ends_it() {
    let host = Host::start(vec![("/a.gif", ok(b"GIF89a down")), ("/b.png", ok(PNG))]).await;
    let content = article(Some(host.url("/a.gif")), format!("<img src={}>", host.url("/b.png")));
    let mut shelf = Shelf::default();
    let got = transfer(&local(), &content, OMIT, &mut shelf).await;
    assert_eq!(got, Err(TransferError::Upload("the platform is down".to_owned())));
    assert_eq!(shelf.given, 1);
}

#[tokio::test]
async fn no_fetch_is_begun_or_goes_on_when_the_time_is_over() {
    let host = Host::start(vec![("/a.png", ok(PNG)), ("/wait", Does::Waits)]).await;
    let media = local();
    for (path, left, asked) in [("/a.png", Duration::ZERO, 0), ("/wait", Duration::from_millis(200), 1)] {
        let content = article(Some(host.url(path)), "");
        let until = media.clock.instant() + left;
        let (mut moved, mut shelf) = (Moved::default(), Shelf::default());
        let moving = media.transfer(&content, OMIT, until, &mut moved, &mut shelf);
        let got = tokio::time::timeout(ROOMY / 2, moving).await;
        assert!(matches!(got, Ok(Err(TransferError::Transient(_)))), "{got:?}");
        assert_eq!(host.asked().len(), asked);
    }
    // Nor does one wait longer for its turn.
    let _all = media.room.acquire_many(u32::try_from(IMAGES_AT_ONCE * IMAGE_MAX_KIB).unwrap()).await.unwrap();
    let content = article(Some(host.url("/a.png")), "");
    let until = media.clock.instant() + Duration::from_millis(50);
    let (mut moved, mut shelf) = (Moved::default(), Shelf::default());
    let moving = media.transfer(&content, OMIT, until, &mut moved, &mut shelf);
    let got = tokio::time::timeout(ROOMY / 2, moving).await;
    assert!(matches!(got, Ok(Err(TransferError::Transient(_)))), "{got:?}");
}

#[tokio::test]
async fn an_article_has_its_limits() {
    let many =
        |count| (0..count).map(|n| format!("<img src=http://127.0.0.1:2/{n}>")).collect::<Vec<_>>().concat();
    let got = transfer(&local(), &article(None, many(IMAGES_MAX + 1)), OMIT, &mut Shelf::default()).await;
    let Err(TransferError::Broken(why)) = got else { panic!("{got:?}") };
    assert_eq!(why.code, "too_many_images");
    let deep = "<div>".repeat(1_000) + "<img src=http://127.0.0.1:2/>";
    let got = transfer(&local(), &article(None, deep), OMIT, &mut Shelf::default()).await;
    let Err(TransferError::Broken(why)) = got else { panic!("{got:?}") };
    assert_eq!(why.code, "content_too_complex");
}
