//! Callbacks over https, as they are outside `dev`: a certificate that is checked, and HTTP/2 where it is offered.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

use crate::api::article;
use crate::program::{Dev, Folder, eventually};
use crate::receiver::{Receiver, WILLING};

/// Accepts TLS connections.
struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    /// A listener with a certificate of its own for 127.0.0.1, which is also written to a file, to be trusted.
    async fn start(folder: &Folder, protocols: &[&str]) -> (Self, PathBuf) {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let trusted = folder.path().join("trusted.pem");
        std::fs::write(&trusted, made.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        (Self { tcp, acceptor: TlsAcceptor::from(Arc::new(config)) }, trusted)
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, address) = self.tcp.accept().await.unwrap();
            // Whoever does not trust us goes away.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

#[tokio::test]
async fn a_callback_goes_over_https_to_whom_the_operator_trusts() {
    for protocols in [&["h2", "http/1.1"][..], &["http/1.1"]] {
        let folder = Folder::new();
        let (listener, trusted) = TlsListener::start(&folder, protocols).await;
        let receiver = Receiver::start_on(listener, "https", WILLING);
        let settings = [("SSL_CERT_FILE", trusted.to_str().unwrap()), ("PUBLISH_ALLOW_HTTP", "false")];
        let dev = Dev::start(&folder, &settings).await;
        let mut article = article("over-tls");
        article["callback_url"] = receiver.url.replace("https", "http").into();
        assert_eq!(dev.api().publish(&article).await.unwrap().status, 422);
        article["callback_url"] = receiver.url.as_str().into();
        dev.api().publish(&article).await.unwrap().ok();
        receiver.wait_for("the callback", |received| !received.is_empty()).await;
        let version = if protocols.len() > 1 { "HTTP/2.0" } else { "HTTP/1.1" };
        assert_eq!(receiver.received()[0].version, version);
    }
}

#[tokio::test]
async fn a_receiver_whose_certificate_nobody_vouches_for_hears_nothing() {
    let folder = Folder::new();
    let (listener, _) = TlsListener::start(&folder, &[]).await;
    let receiver = Receiver::start_on(listener, "https", WILLING);
    let dev = Dev::start(&folder, &[("PUBLISH_CALLBACK_SCHEDULE", "0s")]).await;
    let mut article = article("untrusted");
    article["callback_url"] = receiver.url.as_str().into();
    dev.api().publish(&article).await.unwrap().ok();
    let history = async || dev.api().get("/tasks/untrusted/history").await.unwrap().ok();
    let tried = |history: &serde_json::Value| {
        let entries = history["entries"].as_array().unwrap();
        entries.iter().find(|entry| entry["kind"] == "callback").cloned()
    };
    eventually("a try", async || tried(&history().await).is_some()).await;
    let tried = tried(&history().await).unwrap();
    assert!(tried["error"].as_str().unwrap().contains("TLS"), "{tried}");
    assert!(receiver.received().is_empty());
}
