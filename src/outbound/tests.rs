use std::net::IpAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::clock::TestClock;

mod hostile;
mod limits;
mod rebinding;

const ROOMY: Limits = Limits { deadline: Duration::from_secs(10), answer_bytes: 1024 };
const BRIEF: Limits = Limits { deadline: Duration::from_millis(200), answer_bytes: 1024 };

/// The longest that a call and its server may take together: far above the brief deadline, below the roomy one.
const PATIENCE: Duration = Duration::from_secs(8);

async fn both<A, B>(call: impl Future<Output = A>, server: impl Future<Output = B>) -> (A, B) {
    let ended = tokio::time::timeout(PATIENCE, async { tokio::join!(call, server) }).await;
    ended.expect("neither side hangs")
}

fn client(allow: &[&str]) -> Client {
    client_where(allow, Arc::new(|_| Box::pin(async { Err(io::Error::other("no name is known here")) })))
}

fn client_where(allow: &[&str], lookup: Lookup) -> Client {
    client_that_waits(allow, lookup, CONNECT_MAX)
}

fn client_that_waits(allow: &[&str], lookup: Lookup, connect_max: Duration) -> Client {
    let allow = allow.iter().map(|net| net.parse().unwrap()).collect();
    let policy = Policy { allow, allow_http: true, ports: None };
    let clock = Arc::new(TestClock::seeded(1));
    Client::build(policy, clock, lookup, connect_max, Roots::Nobody).unwrap()
}

fn names(addresses: &[&str]) -> Lookup {
    let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>();
    Arc::new(move |_| Box::pin(std::future::ready(Ok(addresses.clone()))))
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    (listener, url)
}

/// Accepts one connection and reads one request whose body is `body.`.
async fn accept(listener: &TcpListener) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\nbody.") {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the request ended early");
    }
    (stream, String::from_utf8(request).unwrap())
}

/// Accepts one connection and reads one request that has no body.
async fn accept_bare(listener: &TcpListener) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the request ended early");
    }
    (stream, String::from_utf8(request).unwrap())
}

async fn answer_once(listener: &TcpListener, answer: &str) -> String {
    let (mut stream, request) = accept(listener).await;
    stream.write_all(answer.as_bytes()).await.unwrap();
    request
}

/// Ends when the client has closed the connection.
async fn until_closed(mut stream: TcpStream) {
    let mut rest = [0; 64];
    while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}

async fn post(client: &Client, url: &str, limits: Limits) -> Result<Answer, CallError> {
    let headers = &[("content-type", "application/json".to_owned())];
    client.send(Call { method: Method::Post, url, headers, body: b"body.".to_vec(), limits }).await
}

#[tokio::test]
async fn what_is_sent_arrives_and_the_answer_comes_back() {
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    let answer =
        "HTTP/1.1 503 Busy\r\nretry-after: 120\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nlate";
    let (got, request) = both(post(&client, &url, ROOMY), answer_once(&listener, answer)).await;
    let got = got.unwrap();
    assert_eq!((got.status, got.retry_after.as_deref(), &got.head[..]), (503, Some("120"), &b"late"[..]));
    assert!(got.elapsed > Duration::ZERO);
    let request = request.to_ascii_lowercase();
    assert!(request.starts_with("post /hook http/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nuser-agent: publish-ingest/"), "{request}");
    assert!(request.contains("\r\ncontent-type: application/json\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\nbody."), "{request}");
    assert!(!request.contains("accept-encoding") && !request.contains("referer"), "{request}");
}

#[tokio::test]
async fn each_method_arrives_as_itself_and_only_what_has_a_body_says_so() {
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    let bare = [
        (Method::Get, "get", false),
        (Method::Delete, "delete", false),
        (Method::Post, "post", true),
        (Method::Put, "put", true),
    ];
    for (method, name, told) in bare {
        let server = async {
            let (mut stream, request) = accept_bare(&listener).await;
            stream.write_all(b"HTTP/1.1 204 Done\r\nconnection: close\r\n\r\n").await.unwrap();
            request.to_ascii_lowercase()
        };
        let call = Call { method, url: &url, headers: &[], body: vec![], limits: ROOMY };
        let (got, request) = both(client.send(call), server).await;
        assert_eq!(got.unwrap().status, 204);
        assert!(request.starts_with(&format!("{name} /hook http/1.1\r\n")), "{request}");
        assert_eq!(request.contains("content-length: 0"), told, "{request}");
        assert!(!request.contains("transfer-encoding"), "{request}");
    }
    for (method, name) in [(Method::Put, "PUT"), (Method::Delete, "DELETE")] {
        let call = Call { method, url: &url, headers: &[], body: b"body.".to_vec(), limits: ROOMY };
        let answer = "HTTP/1.1 204 Done\r\nconnection: close\r\n\r\n";
        let (got, request) = both(client.send(call), answer_once(&listener, answer)).await;
        assert_eq!(got.unwrap().status, 204);
        assert!(request.starts_with(name) && request.contains("content-length: 5\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\nbody."), "{request}");
    }
}

#[tokio::test]
async fn every_method_keeps_to_the_rules_of_addresses_and_follows_nothing() {
    let (first, second) = (listener().await, listener().await);
    let ((listener, url), (elsewhere, target)) = (first, second);
    for method in [Method::Get, Method::Post, Method::Put, Method::Delete] {
        let call = || Call { method, url: &url, headers: &[], body: vec![], limits: ROOMY };
        let refused = client(&[]).send(call()).await;
        assert!(matches!(refused, Err(CallError::Refused(Refusal::Address(_)))), "{refused:?}");
        let answer = format!(
            "HTTP/1.1 307 Moved\r\nlocation: {target}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        let server = async {
            let (mut stream, _) = accept_bare(&listener).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let client = client(&["127.0.0.0/8"]);
        tokio::select! {
            (got, ()) = both(client.send(call()), server) => {
                let got = got.unwrap();
                assert_eq!((got.status, got.location.as_deref()), (307, Some(&*target)));
            }
            _ = elsewhere.accept() => panic!("the redirect was followed"),
        }
    }
}

#[tokio::test]
async fn what_an_answer_says_of_itself_is_passed_on_where_it_is_short_text() {
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    let (kind, place, date) = ("text/html; charset=utf-8", "/posts/7", "Sun, 06 Nov 1994 08:49:37 GMT");
    for (kind, place, date, passed) in [
        (kind.to_owned(), place.to_owned(), date.to_owned(), true),
        (format!("a/{}", "b".repeat(318)), "c".repeat(2_048), "d".repeat(64), true),
        (format!("a/{}", "b".repeat(319)), "c".repeat(2_049), "d".repeat(65), false),
        ("text/\u{e9}".to_owned(), "/\u{e9}".to_owned(), "\u{e9}".to_owned(), false),
    ] {
        let answer = format!(
            "HTTP/1.1 201 Made\r\ncontent-type: {kind}\r\nlocation: {place}\r\ndate: {date}\r\ncontent-length: \
             0\r\nconnection: close\r\n\r\n"
        );
        let (got, _) = both(post(&client, &url, ROOMY), answer_once(&listener, &answer)).await;
        let got = got.unwrap();
        assert_eq!(got.content_type, passed.then_some(kind));
        assert_eq!(got.location, passed.then_some(place));
        assert_eq!(got.date, passed.then_some(date));
    }
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let (first, url) = listener().await;
    let (second, elsewhere) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    for status in [301, 302, 303, 307, 308] {
        let answer = format!(
            "HTTP/1.1 {status} Moved\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        let calls = both(post(&client, &url, ROOMY), answer_once(&first, &answer));
        tokio::select! {
            (got, _) = calls => assert_eq!(got.unwrap().status, status),
            _ = second.accept() => panic!("the redirect was followed"),
        }
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_at_the_limit_and_the_connection_closed() {
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    let server = async {
        let (mut stream, _) = accept(&listener).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        // Ends only because the client hangs up.
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    };
    let (got, ()) = both(post(&client, &url, ROOMY), server).await;
    let got = got.unwrap();
    assert_eq!((got.status, got.head.len(), got.cut), (200, 1024, true));
}

#[tokio::test]
async fn a_body_of_just_the_limit_is_whole_and_one_byte_more_is_cut() {
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    for (length, kept, cut) in [(1023, 1023, false), (1024, 1024, false), (1025, 1024, true)] {
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{}",
            "x".repeat(length)
        );
        let (got, _) = both(post(&client, &url, ROOMY), answer_once(&listener, &answer)).await;
        let got = got.unwrap();
        assert_eq!((got.head.len(), got.cut), (kept, cut));
    }
}

#[tokio::test]
async fn a_body_that_fills_the_limit_and_may_go_on_is_cut_without_waiting_for_more() {
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    let server = async {
        let (mut stream, _) = accept(&listener).await;
        let body = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(1024));
        stream.write_all(body.as_bytes()).await.unwrap();
        until_closed(stream).await;
    };
    let (got, ()) = both(post(&client, &url, ROOMY), server).await;
    let got = got.unwrap();
    assert_eq!((got.head.len(), got.cut), (1024, true));
}

#[tokio::test]
async fn a_body_that_drips_hits_the_one_deadline() {
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    let server = async {
        let (mut stream, _) = accept(&listener).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await.unwrap();
        // The drip is what is tested: each byte comes well within the deadline, all of them do not.
        let mut drip = tokio::time::interval(Duration::from_millis(20));
        while stream.write_all(b"x").await.is_ok() {
            drip.tick().await;
        }
    };
    let (got, ()) = both(post(&client, &url, BRIEF), server).await;
    assert!(matches!(got, Err(CallError::Timeout(_))), "{got:?}");
}

#[tokio::test]
async fn a_silent_server_hits_the_deadline_and_proves_nothing() {
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    let server = async { until_closed(accept(&listener).await.0).await };
    let (got, ()) = both(post(&client, &url, BRIEF), server).await;
    let error = got.unwrap_err();
    assert!(matches!(error, CallError::Timeout(_)) && !error.proved_unsent(), "{error:?}");
    assert_eq!(error.to_string(), "no complete answer came within 200 ms");
}

#[tokio::test]
async fn a_resolver_that_hangs_hits_the_deadline() {
    let client = client_where(&[], Arc::new(|_| Box::pin(std::future::pending())));
    let (got, ()) = both(post(&client, "http://slow.example/", BRIEF), async {}).await;
    let error = got.unwrap_err();
    assert!(matches!(error, CallError::Timeout(_)), "{error:?}");
}

#[tokio::test]
async fn loopback_is_refused_unless_listed_and_nobody_is_connected_to() {
    let (listener, url) = listener().await;
    let port = listener.local_addr().unwrap().port();
    let client = client_where(&["10.0.0.0/8"], names(&["127.0.0.1"]));
    let hosts = ["127.0.0.1", "2130706433", "localhost", "[::ffff:127.0.0.1]", "name.example"];
    let calls = async {
        for host in hosts {
            let error = post(&client, &format!("http://{host}:{port}/"), ROOMY).await.unwrap_err();
            assert!(matches!(error, CallError::Refused(_)) && error.proved_unsent(), "{host}: {error:?}");
        }
        post(&client, &url, ROOMY).await.unwrap_err()
    };
    tokio::select! {
        biased;
        _ = listener.accept() => panic!("a refused address was dialled"),
        error = calls => assert!(matches!(error, CallError::Refused(Refusal::Address(_)))),
    }
}

#[tokio::test]
async fn a_name_is_refused_for_one_of_its_addresses() {
    let (listener, url) = listener().await;
    let url = url.replace("127.0.0.1", "name.example");
    // The allowed address stands first: it must not be dialled either.
    let client = client_where(&["127.0.0.1/32"], names(&["127.0.0.1", "10.0.0.1"]));
    tokio::select! {
        biased;
        _ = listener.accept() => panic!("a name with a refused address was dialled"),
        got = post(&client, &url, ROOMY) => {
            assert!(matches!(got, Err(CallError::Refused(Refusal::Resolved(_)))), "{got:?}");
        }
    }
}

#[tokio::test]
async fn a_name_that_changes_its_mind_is_judged_at_every_call() {
    let (listener, url) = listener().await;
    let url = url.replace("127.0.0.1", "name.example");
    let asked = Arc::new(AtomicUsize::new(0));
    let lookup: Lookup = {
        let asked = asked.clone();
        Arc::new(move |_| {
            let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            let ip = if first { "127.0.0.1" } else { "127.0.0.2" };
            Box::pin(std::future::ready(Ok(vec![ip.parse().unwrap()])))
        })
    };
    let client = client_where(&["127.0.0.1/32"], lookup);
    let answer = "HTTP/1.1 204 Done\r\nconnection: close\r\n\r\n";
    let (got, _) = both(post(&client, &url, ROOMY), answer_once(&listener, answer)).await;
    assert_eq!(got.unwrap().status, 204);
    let got = post(&client, &url, ROOMY).await;
    assert!(matches!(got, Err(CallError::Refused(Refusal::Resolved(_)))), "{got:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn localhost_is_loopback_whatever_the_resolver_says() {
    let (listener, url) = listener().await;
    let client = client_where(&["127.0.0.0/8", "10.0.0.0/8"], names(&["10.0.0.1"]));
    for host in ["localhost", "x.localhost", "localhost."] {
        let url = url.replace("127.0.0.1", host);
        let answer = "HTTP/1.1 204 Done\r\nconnection: close\r\n\r\n";
        let (got, _) = both(post(&client, &url, ROOMY), answer_once(&listener, answer)).await;
        assert_eq!(got.unwrap().status, 204);
    }
}

#[tokio::test]
async fn an_unknown_name_is_told_without_the_resolvers_words() {
    let empty = client_where(&[], names(&[]));
    for client in [client(&[]), empty] {
        let error = post(&client, "http://nowhere.example/secret", ROOMY).await.unwrap_err();
        assert!(matches!(error, CallError::Resolve(_)) && error.proved_unsent(), "{error:?}");
        assert_eq!(error.to_string(), "the host's name could not be resolved: check its DNS");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}

#[tokio::test]
async fn a_refused_connection_proves_that_nothing_was_sent() {
    let (listener, url) = listener().await;
    drop(listener);
    let error = post(&client(&["127.0.0.0/8"]), &url, ROOMY).await.unwrap_err();
    assert!(matches!(error, CallError::Connect(_)) && error.proved_unsent(), "{error:?}");
    assert!(!error.to_string().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_connection_lost_after_the_request_proves_nothing() {
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    for sent in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc",
        "hello\r\n\r\n",
    ] {
        let server = async {
            let (mut stream, _) = accept(&listener).await;
            stream.write_all(sent.as_bytes()).await.unwrap();
            if sent.is_empty() {
                stream.set_zero_linger().unwrap(); // a reset, not an end
            }
        };
        let (got, ()) = both(post(&client, &url, ROOMY), server).await;
        let error = got.unwrap_err();
        assert!(matches!(error, CallError::Protocol(_)) && !error.proved_unsent(), "{sent:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_failed_tls_handshake_proves_that_nothing_was_sent() {
    let (listener, url) = listener().await;
    let url = url.replace("http:", "https:");
    // Roots of its own, so that the test does not depend on the machine's.
    let mut client = client(&["127.0.0.0/8"]);
    client.roots = Roots::System;
    for sent in ["HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 1];
            stream.read_exact(&mut hello).await.unwrap();
            assert_eq!(hello, [0x16], "a TLS handshake record (RFC 8446 §5.1)");
            stream.write_all(sent.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            until_closed(stream).await;
        };
        let (got, ()) = both(post(&client, &url, ROOMY), server).await;
        let error = got.unwrap_err();
        assert!(matches!(error, CallError::Tls(_)) && error.proved_unsent(), "{sent:?}: {error:?}");
    }
}

#[tokio::test]
async fn without_authorities_http_works_and_https_says_why_not() {
    let client = client(&["127.0.0.0/8"]);
    assert!(!client.can_call_https());
    let error = post(&client, "https://127.0.0.1:2/", ROOMY).await.unwrap_err();
    assert!(matches!(error, CallError::NoRoots) && error.proved_unsent(), "{error:?}");
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_is_our_error_and_not_a_panic() {
    let client = client(&["127.0.0.0/8"]);
    for (name, value) in [("x-a", "b\r\nx-c: d"), ("X Y", "z"), ("", "z")] {
        let (url, headers) = ("http://127.0.0.1:2/", &[(name, value.to_owned())]);
        let got = client.send(Call { method: Method::Get, url, headers, body: vec![], limits: ROOMY }).await;
        assert!(matches!(got, Err(CallError::Header(_))), "{name}: {got:?}");
    }
}

#[tokio::test]
async fn an_overlong_retry_after_is_not_passed_on() {
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    let answer = format!("HTTP/1.1 429 Slow\r\nretry-after: {}\r\ncontent-length: 0\r\n\r\n", "9".repeat(65));
    let (got, _) = both(post(&client, &url, ROOMY), answer_once(&listener, &answer)).await;
    assert_eq!(got.unwrap().retry_after, None);
}

/// Runs one test of this file again, in a process of its own, where the environment can be another.
fn passes_with(test: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("outbound::tests::{test}")]);
    command.env_remove("NO_PROXY").env_remove("no_proxy").env_remove("REQUEST_METHOD");
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_proxy_of_the_environment_is_ignored() {
    // Nothing listens on port 1: a call that went by the proxy would fail.
    let proxy = "http://127.0.0.1:1";
    let environment =
        [("HTTP_PROXY", proxy), ("http_proxy", proxy), ("ALL_PROXY", proxy), ("all_proxy", proxy)];
    passes_with("what_is_sent_arrives_and_the_answer_comes_back", &environment);
}

#[tokio::test]
async fn a_client_can_be_made_on_this_machine() {
    let policy = Policy { allow: vec!["127.0.0.0/8".parse().unwrap()], allow_http: true, ports: None };
    let client = Client::new(policy, Arc::new(TestClock::seeded(1))).unwrap();
    let (listener, url) = listener().await;
    let answer = "HTTP/1.1 204 Done\r\n\r\n";
    let (got, _) = both(post(&client, &url, ROOMY), answer_once(&listener, answer)).await;
    assert_eq!(got.unwrap().status, 204);
    if !client.can_call_https() {
        let got = post(&client, "https://127.0.0.1:2/", ROOMY).await;
        assert!(matches!(got, Err(CallError::NoRoots)), "{got:?}");
    }
}

#[test]
fn a_client_can_be_made_on_a_machine_without_authorities() {
    let nowhere = [("SSL_CERT_FILE", "/nonexistent/file"), ("SSL_CERT_DIR", "/nonexistent/folder")];
    passes_with("a_client_can_be_made_on_this_machine", &nowhere);
}
