//! What the client itself limits: how long it is connected to, and how much header it reads.

use super::*;

/// The limit on being connected in these tests: far below the roomy deadline, so that it must be what ended the call.
const SOON: Duration = Duration::from_millis(100);

#[tokio::test]
async fn who_is_not_connected_to_in_time_was_sent_nothing() {
    let silent_resolver: Lookup = Arc::new(|_| Box::pin(std::future::pending()));
    let client = client_that_waits(&[], silent_resolver, SOON);
    let (got, ()) = both(post(&client, "http://slow.example/", ROOMY), async {}).await;
    let error = got.unwrap_err();
    assert!(matches!(error, CallError::Unreachable(_)) && error.proved_unsent(), "{error:?}");
    assert!(error.to_string().starts_with("no connection was made within 5000 ms: check"), "{error}");

    // The same for one who accepts and does not answer to TLS.
    let (listener, url) = listener().await;
    let mut client = client_that_waits(&["127.0.0.0/8"], names(&[]), SOON);
    client.roots = Roots::System;
    let url = url.replace("http:", "https:");
    let server = async { until_closed(listener.accept().await.unwrap().0).await };
    let (got, ()) = both(post(&client, &url, ROOMY), server).await;
    let error = got.unwrap_err();
    assert!(matches!(error, CallError::Unreachable(_)) && error.proved_unsent(), "{error:?}");
}

#[tokio::test]
async fn who_is_connected_to_has_until_the_deadline() {
    let (listener, url) = listener().await;
    let client = client_that_waits(&["127.0.0.0/8"], names(&[]), SOON);
    let server = async { until_closed(accept(&listener).await.0).await };
    // Twice the limit on being connected.
    let (got, ()) = both(post(&client, &url, BRIEF), server).await;
    assert!(matches!(got, Err(CallError::Timeout(_))), "{got:?}");
}

#[tokio::test]
async fn more_header_fields_than_the_limit_are_no_answer() {
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    // Two of them are `content-length` and `connection`.
    for (more, readable) in [(HEADERS_MAX - 2, true), (HEADERS_MAX - 1, false)] {
        let fields = "x-more: 1\r\n".repeat(more);
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}content-length: 0\r\nconnection: close\r\n\r\n");
        let (got, _) = both(post(&client, &url, ROOMY), answer_once(&listener, &answer)).await;
        match got {
            Ok(answer) => assert!(readable && answer.status == 200),
            Err(error) => assert!(!readable && matches!(error, CallError::Protocol(_)), "{error:?}"),
        }
    }
}

#[tokio::test]
async fn a_header_that_does_not_end_is_given_up() {
    /// The library's limit on what it reads ahead is about 400 KiB; the kernel's buffers take some more.
    const SENT_MAX: usize = 16 * 1024 * 1024;
    let (listener, url) = listener().await;
    let client = client(&["127.0.0.0/8"]);
    for (beginning, part) in
        [("HTTP/1.1 200 OK\r\nx: ", "x"), ("HTTP/1.1 ", "2"), ("HTTP/1.1 200 OK\r\n", "x: y\r\n")]
    {
        let server = async {
            let (mut stream, _) = accept(&listener).await;
            stream.write_all(beginning.as_bytes()).await.unwrap();
            let (mut sent, block) = (0, part.repeat(4096));
            // Ends only because the client hangs up.
            while stream.write_all(block.as_bytes()).await.is_ok() {
                sent += block.len();
                assert!(sent < SENT_MAX, "the client reads on and on");
            }
        };
        let (got, ()) = both(post(&client, &url, ROOMY), server).await;
        assert!(matches!(got, Err(CallError::Protocol(_))), "{got:?}");
    }
}
