//! The outbound door of the program itself: the written list of hostile URLs, and proxies in the environment.

use serde_json::json;
use tokio::net::TcpListener;

use crate::api::article;
use crate::program::{Dev, Folder, eventually};
use crate::receiver::{Receiver, WILLING};

#[expect(dead_code, reason = "names are for the client's own tests, which choose what they resolve to")]
#[path = "../../src/outbound/address/hostile.rs"]
mod hostile;

/// What a caller can name that the service would call, with the place of the URL in a request.
const ACCOUNTS: [(&str, &str, &str); 3] = [
    ("http_bridge", "endpoint", r#"{"secret": "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#),
    ("wordpress", "base_url", r#"{"username": "u", "application_password": "p"}"#),
    (
        "ghost",
        "base_url",
        r#"{"admin_api_key": "0123456789abcdef01234567:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}"#,
    ),
];

#[tokio::test]
async fn no_hostile_url_is_taken_from_a_caller() {
    let folder = Folder::new();
    let dev = Dev::start(&folder, &[("PUBLISH_OUTBOUND_ALLOW", "")]).await;
    let api = dev.api();
    for (at, url) in hostile::SPELLINGS.iter().enumerate() {
        let mut article = article(&format!("hostile-{at}"));
        article["callback_url"] = json!(url);
        let answer = api.publish(&article).await.unwrap();
        assert_eq!(answer.status, 422, "{url:?}: {}", answer.text());
        assert_eq!(answer.json()["errors"][0]["pointer"], "/callback_url", "{url:?}");
    }
    for (platform, place, credentials) in ACCOUNTS {
        let credentials = serde_json::from_str::<serde_json::Value>(credentials).unwrap();
        let put = async |url: &str| {
            let account = json!({"settings": {place: url}, "credentials": credentials});
            api.put(&format!("/accounts/{platform}/hostile"), &account).await.unwrap()
        };
        // That it is the URL which is refused.
        assert_eq!(put("https://example.com/").await.status, 200, "{platform}");
        for url in hostile::SPELLINGS.iter().filter(|url| !url.is_empty()) {
            let answer = put(url).await;
            assert_eq!(answer.status, 422, "{platform} {url:?}: {}", answer.text());
            // NUL is refused in all of the settings.
            let pointer = answer.json()["errors"][0]["pointer"].as_str().unwrap().to_owned();
            assert!(pointer.starts_with("/settings"), "{platform} {url:?}: {pointer}");
        }
    }
}

#[tokio::test]
async fn only_listed_ports_are_called_where_the_operator_lists_some() {
    let folder = Folder::new();
    let receiver = Receiver::start(WILLING).await;
    let port = receiver.url.rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    let ports = format!("{port},8000-8999");
    let dev = Dev::start(&folder, &[("PUBLISH_OUTBOUND_PORTS", &ports)]).await;
    let mut article = article("ports");
    article["callback_url"] = json!("http://127.0.0.1:9000/");
    let answer = dev.api().publish(&article).await.unwrap();
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("port 9000 is not called"), "{}", answer.text());
    article["callback_url"] = json!(receiver.url);
    dev.api().publish(&article).await.unwrap().ok();
    receiver.wait_for("the callback", |received| !received.is_empty()).await;
}

#[tokio::test]
async fn proxies_of_the_environment_are_not_used() {
    let folder = Folder::new();
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", proxy.local_addr().unwrap());
    let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
        .map(|name| (name, &*at));
    let receiver = Receiver::start(WILLING).await;
    let calls = async {
        let dev = Dev::start(&folder, &names).await;
        let mut article = article("by-itself");
        article["callback_url"] = json!(receiver.url);
        dev.api().publish(&article).await.unwrap().ok();
        receiver.wait_for("the callback", |received| !received.is_empty()).await;
        // https, which a proxy would be asked to tunnel: the try fails at the receiver, who speaks no TLS.
        article["external_id"] = json!("tunnel");
        article["callback_url"] = json!(receiver.url.replace("http:", "https:"));
        dev.api().publish(&article).await.unwrap().ok();
        let tried = async || {
            let history = dev.api().get("/tasks/tunnel/history").await.unwrap().ok();
            history["entries"].as_array().unwrap().iter().any(|entry| entry["kind"] == "callback")
        };
        eventually("a try over https", tried).await;
    };
    tokio::select! {
        biased;
        _ = proxy.accept() => panic!("the proxy was asked"),
        () = calls => {}
    }
}
