//! The door for callers under hostile and clumsy use. Every test has one limit that is short, or a small number, and all
//! others so long that only that one can have done what is seen.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::api::article;
use crate::program::{Dev, Folder, LIMIT, eventually};

/// A limit that is not met in a test.
const LONG: &str = "1h";

fn address(url: &str) -> &str {
    url.strip_prefix("http://").unwrap()
}

/// A connection that has sent this.
async fn connection(url: &str, sent: &str) -> TcpStream {
    let mut connection = TcpStream::connect(address(url)).await.unwrap();
    connection.write_all(sent.as_bytes()).await.unwrap();
    connection
}

/// All that comes until the service closes.
async fn rest(connection: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(LIMIT, connection.read_to_end(&mut text)).await;
    // A reset is an end, too.
    let _ = read.expect("the service closes the connection");
    String::from_utf8(text).unwrap()
}

/// The answer to this, after which the service closes.
async fn answer(url: &str, sent: &str) -> String {
    rest(&mut connection(url, sent).await).await
}

/// The first answer on a connection that stays open: its head, and as much of its body as comes with it.
async fn first_answer(connection: &mut TcpStream) -> String {
    let mut text = vec![0; 64 * 1024];
    let read = tokio::time::timeout(LIMIT, connection.read(&mut text)).await.expect("an answer").unwrap();
    String::from_utf8_lossy(&text[..read]).into_owned()
}

/// A problem document of this status and code, under an id.
#[track_caller]
fn assert_problem(answer: &str, status: u16, code: &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(head.to_lowercase().contains("content-type: application/problem+json"), "{answer}");
    let problem: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    assert_eq!((&problem["status"], &problem["code"]), (&status.into(), &code.into()), "{answer}");
    let id = problem["request_id"].as_str().unwrap();
    assert!(head.contains(&format!("x-request-id: {id}")), "{answer}");
}

fn post(dev: &Dev, path: &str, more: &str) -> String {
    let key = dev.env("PUBLISH_API_KEY");
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n{more}"
    )
}

/// Somebody who behaves is served meanwhile.
async fn assert_serves(dev: &Dev, external_id: &str) {
    dev.api().publish(&article(external_id)).await.unwrap().ok();
}

#[tokio::test]
async fn heads_and_bodies_that_come_slowly_are_ended() {
    let folder = Folder::new();
    let settings = [
        ("PUBLISH_HEAD_TIMEOUT", "500ms"),
        ("PUBLISH_BODY_TIMEOUT", "500ms"),
        ("PUBLISH_IDLE_TIMEOUT", LONG),
        ("PUBLISH_ANSWER_TIMEOUT", LONG),
    ];
    let dev = Dev::start(&folder, &settings).await;
    let url = &dev.url;
    let mut kept = connection(url, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(first_answer(&mut kept).await.starts_with("HTTP/1.1 200"));
    let mut resumed = connection(url, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(first_answer(&mut resumed).await.starts_with("HTTP/1.1 200"));
    resumed.write_all(b"GET /healthz HTTP/1.1\r\nx-").await.unwrap();

    for slow in ["", "G", "GET /healthz HTTP/1.1\r\nhost: x\r\nx-a: ", "PRI * HTTP/2.0\r\n"] {
        assert_eq!(answer(url, slow).await, "", "{slow:?}");
    }
    assert_eq!(rest(&mut resumed).await, "", "a second head has no more time than the first");
    for body in ["content-length: 100\r\n\r\n{", "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"] {
        assert_problem(&answer(url, &post(&dev, "/publish", body)).await, 408, "request_timeout");
    }
    assert_serves(&dev, "in-time").await;
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(first_answer(&mut kept).await.starts_with("HTTP/1.1 200"), "an idle connection is kept");
    assert!(dev.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn idle_connections_and_answers_that_nobody_takes_are_ended() {
    let folder = Folder::new();
    let settings = [
        ("PUBLISH_HEAD_TIMEOUT", LONG),
        ("PUBLISH_BODY_TIMEOUT", LONG),
        ("PUBLISH_IDLE_TIMEOUT", "500ms"),
        ("PUBLISH_ANSWER_TIMEOUT", "500ms"),
    ];
    let dev = Dev::start(&folder, &settings).await;
    let kept = answer(&dev.url, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(kept.starts_with("HTTP/1.1 200"), "{kept}");

    // HTTP/2: with a window of nothing, an answer cannot be sent; with one, an idle connection gets its farewell.
    let window = h2::client::Builder::new().initial_window_size(0).clone();
    let (mut client, connection) =
        window.handshake::<_, Bytes>(TcpStream::connect(address(&dev.url)).await.unwrap()).await.unwrap();
    let (answer, _) = client.send_request(http_request("/openapi.json"), true).unwrap();
    let connection = tokio::spawn(connection);
    let mut body = answer.await.unwrap().into_body();
    let ended = tokio::time::timeout(LIMIT, body.data()).await.expect("the service ends it");
    assert!(ended.is_none_or(|ended| ended.is_err()));
    let _ = connection.await.unwrap();

    let (mut client, connection) =
        h2::client::handshake(TcpStream::connect(address(&dev.url)).await.unwrap()).await.unwrap();
    let (answer, _) = client.send_request(http_request("/healthz"), true).unwrap();
    let connection = tokio::spawn(connection);
    assert_eq!(answer.await.unwrap().status(), 200);
    let ended = tokio::time::timeout(LIMIT, connection).await.expect("the service ends it").unwrap();
    ended.expect("with a farewell");
    assert!(dev.stop(Signal::TERM).await.0.success());
}

fn http_request(path: &str) -> axum::http::Request<()> {
    axum::http::Request::get(format!("http://x{path}")).body(()).unwrap()
}

#[tokio::test]
async fn what_is_too_large_or_no_http_is_answered_with_a_problem() {
    let folder = Folder::new();
    let dev = Dev::start(&folder, &[("PUBLISH_BODY_LIMIT", "64KiB")]).await;
    let url = &dev.url;
    let get = |more: &str| format!("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{more}\r\n");
    let headers = |number: usize| (0..number).map(|n| format!("x-{n}: a\r\n")).collect::<Vec<_>>().concat();
    assert!(answer(url, &get(&headers(62))).await.starts_with("HTTP/1.1 200"));
    // By our rule, and by the library's, which sees nothing beyond.
    for number in [63, 99, 200] {
        assert_problem(&answer(url, &get(&headers(number))).await, 431, "head_too_large");
    }
    for bytes in [17 * 1024, 40 * 1024] {
        let long = "x".repeat(bytes);
        assert_problem(&answer(url, &get(&format!("x-a: {long}\r\n"))).await, 431, "head_too_large");
        let target = format!("GET /tasks/{long} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        assert_problem(&answer(url, &target).await, 431, "head_too_large");
    }
    for no_http in ["BREW", "GET /\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nhost x\r\n\r\n"] {
        let mut connection = connection(url, &format!("{no_http}\r\n\r\n")).await;
        assert_problem(&rest(&mut connection).await, 400, "invalid_header");
    }
    for hosts in ["", "host: x\r\nhost: y\r\n", "host: x\r\nhost: x\r\n"] {
        let head = format!("GET /healthz HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
        assert_problem(&answer(url, &head).await, 400, "invalid_header");
    }
    // HTTP/1.0 had none.
    assert!(answer(url, "GET /healthz HTTP/1.0\r\n\r\n").await.contains(" 200 OK\r\n"));
    let both = post(&dev, "/publish", "content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    assert!(answer(url, &format!("{both}connection: close\r\n\r\n")).await.starts_with("HTTP/1.1 4"));

    // By its own word and without it; the connection is closed, and the answer is not lost.
    let large = "x".repeat(1024 * 1024);
    let declared = format!("connection: close\r\ncontent-length: {}\r\n\r\n{large}", large.len());
    let chunked = format!(
        "connection: close\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    for body in [&declared, &chunked] {
        assert_problem(&answer(url, &post(&dev, "/publish", body)).await, 413, "payload_too_large");
    }
    let expects = "expect: 100-continue\r\nconnection: close\r\ncontent-length: 1000000\r\n\r\n";
    assert_problem(&answer(url, &post(&dev, "/publish", expects)).await, 413, "payload_too_large");
    for coding in ["gzip", "br", "identity, gzip"] {
        let body =
            format!("connection: close\r\ncontent-encoding: {coding}\r\ncontent-length: 2\r\n\r\n{{}}");
        let answer = answer(url, &post(&dev, "/publish", &body)).await;
        assert_problem(&answer, 415, "unsupported_media_type");
        assert!(answer.contains("accept-encoding: identity"), "{answer}");
    }
    assert_serves(&dev, "small").await;
    assert!(dev.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn a_newcomer_gets_the_place_of_a_connection_that_waits() {
    let folder = Folder::new();
    let settings =
        [("PUBLISH_CONNECTIONS", "4"), ("PUBLISH_HEAD_TIMEOUT", LONG), ("PUBLISH_IDLE_TIMEOUT", LONG)];
    let dev = Dev::start(&folder, &settings).await;
    let url = &dev.url;
    let mut crowd = Vec::new();
    for _ in 0..40 {
        crowd.push(connection(url, "GET /healthz HTTP/1.1\r\nx-a: ").await);
    }
    assert_serves(&dev, "newcomer").await;
    for silent in &mut crowd[..30] {
        assert_eq!(rest(silent).await, "");
    }
    drop(crowd);

    // All at work: whoever comes then is told, and who is at work stays.
    let poll = format!(
        "GET /events?wait=30s&after={} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        newest(&dev).await,
        dev.env("PUBLISH_API_KEY")
    );
    let mut polls = Vec::new();
    let mut refused = String::new();
    eventually("all places are at work", async || {
        refused = answer(url, "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        polls.push(connection(url, &poll).await);
        refused.starts_with("HTTP/1.1 503")
    })
    .await;
    assert_problem(&refused, 503, "unavailable");
    assert!(refused.contains("retry-after: 1"), "{refused}");
    drop(polls);
    eventually("there is a place again", async || {
        dev.api().get("/healthz").await.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    assert!(dev.stop(Signal::TERM).await.0.success());
}

/// The end of the feed as it stands, once what was published has been told.
async fn newest(dev: &Dev) -> String {
    dev.api().published("newcomer").await;
    let events = dev.api().get("/events?limit=200").await.unwrap().ok();
    events["next_cursor"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn bodies_in_memory_have_a_limit_together() {
    let folder = Folder::new();
    let settings = [("PUBLISH_BODY_MEMORY", "64MiB"), ("PUBLISH_BODY_TIMEOUT", LONG)];
    let dev = Dev::start(&folder, &settings).await;
    let url = &dev.url;
    let size = 31 * 1024 * 1024;
    let head = post(&dev, "/publish/batch", &format!("content-length: {size}\r\n\r\n"));
    // Two of them, all but their last byte, take the room.
    let almost = format!("{head}{{\"articles\": [\"{}", "x".repeat(size - 20));
    let mut unfinished = Vec::new();
    for _ in 0..2 {
        unfinished.push(connection(url, &almost).await);
    }
    let third = answer(url, &almost).await;
    assert_problem(&third, 503, "unavailable");
    assert!(third.contains("too many large bodies"), "{third}");
    assert_serves(&dev, "small").await;
    drop(unfinished);
    eventually("there is room again", async || {
        let whole = format!("{almost}\"]}}{}", " ".repeat(4));
        let answer = answer(url, &whole.replace("host: x", "host: x\r\nconnection: close")).await;
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        answer.starts_with("HTTP/1.1 200")
    })
    .await;
    assert!(dev.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn what_many_batches_at_once_hold_does_not_grow_with_their_number() {
    const BATCHES: usize = 100;
    const GROWTH_MAX_KIB: u64 = 64 * 1024;
    let folder = Folder::new();
    let dev = Dev::start(&folder, &[("PUBLISH_LOG", "error")]).await;
    let articles = (0..500).map(|n| {
        let mut article = article(&format!("post-{n}"));
        article["group_code"] = "nobody".into();
        article
    });
    let body = serde_json::json!({"articles": articles.collect::<Vec<_>>()}).to_string();
    let length = format!("connection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    let batch: Arc<str> = (post(&dev, "/publish/batch", &length) + &body).into();
    let before = dev.memory_kib();
    let mut batches = (0..BATCHES).fold(JoinSet::new(), |mut batches, _| {
        let (url, batch) = (dev.url.clone(), batch.clone());
        batches.spawn(async move { answer(&url, &batch).await });
        batches
    });
    let (mut most, mut looks) = (before, tokio::time::interval(Duration::from_millis(10)));
    loop {
        tokio::select! {
            done = batches.join_next() => match done {
                // On a slow machine some have waited long enough.
                Some(answer) => assert!(["200", "503"].contains(&&answer.unwrap()[9..12])),
                None => break,
            },
            _ = looks.tick() => most = most.max(dev.memory_kib()),
        }
    }
    assert!(most - before < GROWTH_MAX_KIB, "{before} KiB, then {most} KiB");
    assert!(dev.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn http2_is_spoken_and_its_floods_are_ended() {
    let folder = Folder::new();
    let dev = Dev::start(&folder, &[]).await;
    let connect = async || {
        let stream = TcpStream::connect(address(&dev.url)).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        (client, tokio::spawn(connection))
    };
    let (client, connection) = connect().await;
    let mut client = client.ready().await.unwrap();
    let (answer, _) = client.send_request(http_request("/healthz"), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    assert_eq!(client.current_max_send_streams(), 100);
    // Twice the limit of a head: the library refuses it, and can say nothing but the status.
    let mut large = http_request("/healthz");
    large.headers_mut().insert("x-a", "x".repeat(20 * 1024).parse().unwrap());
    let (answer, _) = client.send_request(large, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 431);
    drop(client);
    connection.abort();

    // Requests that are broken off as soon as they are sent (CVE-2023-44487).
    let (mut client, connection) = connect().await;
    let mut broken_off = 0;
    while let Ok(ready) = client.ready().await {
        client = ready;
        let Ok((_, mut stream)) = client.send_request(http_request("/openapi.json"), false) else { break };
        stream.send_reset(h2::Reason::CANCEL);
        broken_off += 1;
        assert!(broken_off < 100_000, "nobody ends it");
        if broken_off % 10 == 0 {
            tokio::task::yield_now().await;
        }
        client = match poll_fn(|cx| client.poll_ready(cx)).await {
            Ok(()) => client,
            Err(_) => break,
        };
    }
    let _ = tokio::time::timeout(LIMIT, connection).await.expect("the service ends it");

    // A head that never ends (CVE-2024-27316): frames of 16 KiB, none the last.
    let mut endless = TcpStream::connect(address(&dev.url)).await.unwrap();
    endless.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let frame = |kind: u8| [&[0, 0x40, 0, kind, 0, 0, 0, 0, 1][..], &[0x40; 16 * 1024]].concat();
    endless.write_all(&frame(1)).await.unwrap();
    let flood = async { while endless.write_all(&frame(9)).await.is_ok() {} };
    tokio::time::timeout(LIMIT, flood).await.expect("the service ends it");
    assert_serves(&dev, "meanwhile").await;
    assert!(dev.stop(Signal::TERM).await.0.success());
}
