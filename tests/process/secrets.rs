//! What must not show is planted everywhere, and then looked for everywhere: in what the service says at the finest log
//! level, also as it dies, and in all that the database holds.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use publish_ingest::callback::signature::{SigningKey, SigningSecret};
use publish_ingest::clock::SystemClock;
use publish_ingest::store::Store;
use publish_ingest::vault::{MasterKey, Vault};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::net::TcpListener;

use crate::api::{Api, article};
use crate::operator::put_group;
use crate::program::{Dev, Folder, database, eventually, program, run};
use crate::receiver::{AT_THE_SECOND_TRY, Receiver};

/// Larger than what is read of a body.
const TOO_LARGE: usize = 128 * 1024;

/// What is planted, by what it is.
struct Planted(Vec<(&'static str, String)>);

impl Planted {
    /// Fails with the lines that hold something planted; what may stand there is `allowed`.
    fn assert_absent(&self, place: &str, text: &str, allowed: &[&str]) {
        for (what, planted) in &self.0 {
            let found = text.lines().filter(|line| line.contains(planted)).collect::<Vec<_>>();
            assert!(allowed.contains(what) || found.is_empty(), "{what} in {place}: {found:#?}");
        }
    }

    fn plant(&mut self, what: &'static str, marker: &str) -> String {
        self.0.push((what, marker.to_owned()));
        marker.to_owned()
    }

    /// A secret of ours, in each form that it could be written in.
    fn plant_secret(&mut self, what: &'static str, shown: &str, bytes: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        // Without what a base64 text ends with, which an escape could change.
        let base64 = BASE64_STANDARD.encode(bytes);
        let forms =
            [shown.to_owned(), base64.trim_end_matches('=').to_owned(), hex(bytes), hex(shown.as_bytes())];
        self.0.extend(forms.map(|form| (what, form)));
    }
}

/// Every row of every table, as text; binary columns are in hex.
async fn dump(url: &str) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut connection).await.unwrap();
    let mut all = String::new();
    for table in tables {
        let rows =
            AssertSqlSafe(format!("SELECT coalesce(string_agg(t::text, E'\\n'), '') FROM \"{table}\" t"));
        let rows: String = sqlx::query_scalar(rows).fetch_one(&mut connection).await.unwrap();
        all.extend([&*table, ":\n", &rows, "\n"]);
    }
    connection.close().await.unwrap();
    all
}

/// Requests good and bad, each with something planted where it does not belong.
async fn provoke(serve: &Dev, api_key: &str, callback_url: &str, planted: &mut Planted) {
    let api = Api::new(&serve.url, Some(api_key));
    let mut sent = article("planted-1");
    sent["title"] = planted.plant("title", "titlemarker").into();
    sent["content_html"] =
        format!("<p>{} &amp; <b>bold</b></p>", planted.plant("text", "contentmarker")).into();
    sent["summary"] = planted.plant("summary", "summarymarker").into();
    sent["metadata"] = json!({"note": planted.plant("metadata", "metadatamarker")});
    let query = planted.plant("a callback's query", "callbackquerymarker");
    sent["callback_url"] = format!("{callback_url}?password={query}").into();
    api.publish(&sent).await.unwrap().ok();
    api.publish(&sent).await.unwrap().ok();
    api.published("planted-1").await;

    // A receiver that is not there: bound and dropped.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    sent["external_id"] = "planted-2".into();
    sent["callback_url"] = format!("http://{nobody}/{query}").into();
    api.publish(&sent).await.unwrap().ok();
    sent["external_id"] = "planted-3".into();
    let password = planted.plant("a callback's password", "callbackpasswordmarker");
    sent["callback_url"] = format!("http://user:{password}@127.0.0.1:1/").into();
    assert_eq!(api.publish(&sent).await.unwrap().status, 422);
    sent["callback_url"] = Value::Null;
    sent["content_html"] = json!(7);
    sent["group_code"] = "nobody".into();
    assert_eq!(api.publish(&sent).await.unwrap().status, 422);

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = |authorization: String, body: String| {
        let url = format!("{}/publish", serve.url);
        let request =
            client.post(url).header(AUTHORIZATION, authorization).header(CONTENT_TYPE, "application/json");
        async move { request.body(body).send().await.unwrap().status().as_u16() }
    };
    let right = format!("Bearer {api_key}");
    let broken = planted.plant("a body that is no JSON", "brokenmarker");
    assert_eq!(post(right.clone(), format!("{{\"title\": \"{broken}\", {broken}")).await, 400);
    let large = planted.plant("a body that is too large", "largemarker");
    assert_eq!(post(right, large.repeat(TOO_LARGE / large.len())).await, 413);
    for scheme in ["Bearer pik_", "Basic ", "Bearer  ", ""] {
        let wrong = planted.plant("a wrong key", "wrongkeymarker");
        assert_eq!(post(format!("{scheme}{wrong}"), "{}".to_owned()).await, 401, "{scheme}");
    }
    let parameter = planted.plant("a query", "parametermarker");
    assert_eq!(api.get(&format!("/tasks/planted-1?key={parameter}")).await.unwrap().status, 400);
    assert_eq!(api.get(&format!("/nowhere/{parameter}")).await.unwrap().status, 404);
}

/// Credentials that are refused, and some that are used in a call that fails: nothing that is answered shows them.
async fn provoke_by_an_account(serve: &Dev, api_key: &str, planted: &mut Planted) {
    let api = Api::new(&serve.url, Some(api_key));
    let account = "/accounts/http_bridge/robot";
    // A bridge that is not there: bound and dropped.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let endpoint =
        format!("http://{nobody}/articles?token={}", planted.plant("a bridge's query", "bridgequerymarker"));
    let bad = planted.plant("a bad secret", "badsecretmarker");
    let mut answers = Vec::new();
    for credentials in [
        json!({"secret": format!("whsec_{bad}")}),
        json!({"secret": bad}),
        json!({"secret": [bad]}),
        json!({"secret": {"whsec": bad}}),
        json!({"sekret": bad}),
        json!({"secret": null, "password": bad}),
        json!([bad]),
        json!(bad),
    ] {
        let body = json!({"settings": {"endpoint": endpoint}, "credentials": credentials});
        let refused = api.put(account, &body).await.unwrap();
        assert_eq!(refused.status, 422, "{credentials}: {}", refused.text());
        answers.push(refused.text());
    }
    let secret = SigningSecret::generate(&SystemClock).expose().to_string();
    let base64 = secret.trim_start_matches("whsec_");
    planted.plant_secret("a bridge's secret", base64, &BASE64_STANDARD.decode(base64).unwrap());
    let good = json!({"settings": {"endpoint": endpoint}, "credentials": {"secret": secret}});
    for _ in 0..2 {
        let put = api.put(account, &good).await.unwrap();
        assert_eq!(put.ok()["credentials_set"], true);
        answers.push(put.text());
    }
    put_group(&api, "bridged", &["http_bridge/robot"]).await;
    let mut sent = article("planted-4");
    sent["group_code"] = "bridged".into();
    api.publish(&sent).await.unwrap().ok();
    let task = async || api.task("planted-4").await.unwrap();
    eventually("the call fails for good", async || task().await.ok()["status"] == "failed").await;
    assert_eq!(task().await.ok()["publications"][0]["error"]["code"], "bridge_unreachable");
    answers.extend([task().await.text(), api.get("/tasks/planted-4/history").await.unwrap().text()]);
    // The endpoint is a setting, which its owner reads back.
    planted.assert_absent("what is answered", &answers.join("\n"), &["a bridge's query"]);
}

/// Credentials of platforms that are called with them, in each form that they go out in: nothing that is answered shows them,
/// nor what an operator is told.
async fn provoke_by_platforms(
    serve: &Dev,
    api_key: &str,
    settings: &[(&str, &str)],
    planted: &mut Planted,
) -> String {
    let api = Api::new(&serve.url, Some(api_key));
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let base_url = json!({"base_url": format!("http://{nobody}")});
    let password = planted.plant("an application password", "wpma rker wpma rker wpma rker");
    let joined = planted.plant("an application password", &password.replace(' ', ""));
    for password in [&password, &joined] {
        planted.plant("an application password", &BASE64_STANDARD.encode(format!("editor:{password}")));
    }
    let ghost = planted.plant("an admin key", &"0123456789abcdef".repeat(4));
    let token = planted.plant("a token", "sandboxtokenmarker");
    let mut answers = Vec::new();
    for (account, settings, credentials) in [
        ("wordpress/blog", &base_url, json!({"username": "editor", "application_password": password})),
        ("ghost/blog", &base_url, json!({"admin_api_key": format!("{}:{ghost}", "a".repeat(24))})),
        ("sandbox/box", &json!({"behaviour": "lose_answer"}), json!({"token": token})),
    ] {
        let body = json!({"settings": settings, "credentials": credentials});
        let put = api.put(&format!("/accounts/{account}"), &body).await.unwrap();
        assert_eq!(put.ok()["credentials_set"], true);
        answers.push(put.text());
    }
    put_group(&api, "platforms", &["wordpress/blog", "ghost/blog", "sandbox/box"]).await;
    let mut sent = article("planted-5");
    sent["group_code"] = "platforms".into();
    api.publish(&sent).await.unwrap().ok();
    let history = async || api.get("/tasks/planted-5/history").await.unwrap();
    eventually("each platform was asked", async || {
        let entries = history().await.ok()["entries"].as_array().unwrap().clone();
        let asked = |platform: &str| {
            entries.iter().any(|one| {
                one["platform"] == platform && ["try", "probe"].contains(&one["kind"].as_str().unwrap())
            })
        };
        ["wordpress", "ghost", "sandbox"].into_iter().all(asked)
    })
    .await;
    answers.push(history().await.text());
    answers.extend([api.task("planted-5").await.unwrap().text()]);
    for path in ["/accounts", "/sandbox/box/requests", "/sandbox/box/articles", "/platforms", "/metrics"] {
        answers.push(api.get(path).await.unwrap().text());
    }
    for account in ["wordpress/blog", "ghost/blog"] {
        answers.push(api.post(&format!("/accounts/{account}/check"), &json!({})).await.unwrap().text());
    }
    let told = answers.join("\n");
    planted.assert_absent("what is answered", &told, &["a bridge's query"]);
    let mut told = String::new();
    for account in ["wordpress/blog", "sandbox/box"] {
        let mut audit = program(&["audit", "demo", "--account", account, "--json"]);
        audit.envs(settings.iter().copied()).env("PUBLISH_LOG", "trace");
        audit.env("PUBLISH_OUTBOUND_ALLOW", "127.0.0.0/8").env("PUBLISH_ALLOW_HTTP", "true");
        let ended = run(audit).await;
        told.extend([String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr)]);
    }
    assert!(told.contains("strangers") && told.contains("nothing can be compared"), "{told}");
    told
}

/// What signs is replaced, and then the master key, while the service runs; what the operator is told.
async fn replace_secrets(
    url: &str,
    keys: (&MasterKey, &str),
    settings: &[(&str, &str)],
    planted: &mut Planted,
) -> String {
    let mut told = Vec::new();
    for arguments in [
        &["tenant", "set", "demo", "--signatures", "v1,v1a"][..],
        &["tenant", "rotate-signing-secret", "demo"],
        &["rotate-master-key"],
    ] {
        let mut command = program(arguments);
        command.envs(settings.iter().copied()).env("PUBLISH_MASTER_KEY", keys.1);
        let ended = run(command).await;
        assert!(ended.status.success() && ended.stderr.is_empty(), "{arguments:?} {ended:?}");
        told.push(String::from_utf8(ended.stdout).unwrap());
    }
    assert!(told[1].contains("whsec_") && told[1].contains("whpk_"), "{told:?}");
    assert!(told[2].contains("take the second one away"), "{told:?}");
    let store = Store::open(url, 1, std::sync::Arc::new(SystemClock)).unwrap();
    let demo = store.tenant_named("demo").await.unwrap().unwrap();
    // Under the new key alone, by now.
    let vault = Vault::new(&keys.0.clone().into());
    let live = store.signing_keys(demo.tenant_id, &vault).await.unwrap();
    assert_eq!(live.len(), 4);
    for one in live {
        match &one.key {
            // Shown once, when it was made.
            SigningKey::Secret(secret) if one.expires_at.is_none() => {
                assert!(told[1].contains(&**secret.expose()));
                planted.plant_secret("the rotated secret", &secret.expose()[6..], secret.bytes());
            }
            SigningKey::Secret(_) => {}
            SigningKey::Pair(pair) => {
                planted.plant_secret("the private key", &BASE64_STANDARD.encode(pair.seed()), pair.seed());
            }
        }
    }
    store.close().await;
    told.concat()
}

/// Each line of a request names the request, each line of a run its article, and JSON is one object a line.
fn assert_lines_name_what_they_belong_to(format: &str, stderr: &str) {
    let lines =
        |what: &'static str| stderr.lines().filter(move |line| line.contains(what)).collect::<Vec<_>>();
    let (answered, runs) = (lines("answered"), lines("run ended"));
    assert!(answered.len() > 10 && runs.len() >= 5, "{stderr}");
    // The sandbox has a column of that name.
    for line in answered.into_iter().filter(|line| !line.contains("answered_at")) {
        assert!(line.contains("request_id"), "{line}");
    }
    for line in runs {
        assert!(line.contains("external_id") && line.contains("task_id"), "{line}");
        assert!(
            ["planted-1", "planted-2", "planted-4", "planted-5", "planted-6"]
                .iter()
                .any(|id| line.contains(id)),
            "{line}"
        );
    }
    if format == "json" {
        for line in stderr.lines() {
            let object = serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
            assert!(object["level"].is_string() && object["timestamp"].is_string(), "{line}");
        }
    }
}

#[tokio::test]
async fn nothing_that_was_planted_shows_in_logs_in_its_death_or_in_the_database() {
    for (format, end) in [("text", Signal::ABORT), ("json", Signal::TERM)] {
        let (url, folder) = (database().await, Folder::new());
        let key = MasterKey::generate(&SystemClock);
        let mut planted = Planted(Vec::new());
        planted.plant_secret("master key", &key.expose(), &BASE64_STANDARD.decode(&*key.expose()).unwrap());
        // Trusted whatever it is; the second is in a parameter that is misspelt.
        let password = planted.plant("the database's password", "databasemarker");
        let with_password = format!("{}&pasword={password}", url.replacen('@', &format!(":{password}@"), 1));
        let settings = [("DATABASE_URL", &*with_password), ("PUBLISH_MASTER_KEY", &key.expose())];
        let new_key = MasterKey::generate(&SystemClock);
        let bytes = BASE64_STANDARD.decode(&*new_key.expose()).unwrap();
        planted.plant_secret("new master key", &new_key.expose(), &bytes);
        let both_keys = format!("{},{}", *new_key.expose(), *key.expose());
        let dev = Dev::start(&folder, &settings).await;
        let api_key = dev.env("PUBLISH_API_KEY").to_owned();
        let secret = dev.env("PUBLISH_SIGNING_SECRET").to_owned();
        planted.plant_secret("API key", &api_key, api_key.trim_start_matches("pik_").as_bytes());
        let base64 = secret.trim_start_matches("whsec_");
        planted.plant_secret("signing secret", base64, &BASE64_STANDARD.decode(base64).unwrap());
        let (status, _, stderr) = dev.stop(Signal::TERM).await;
        assert!(status.success());
        planted.assert_absent("what dev logs", &stderr, &[]);

        let receiver = Receiver::start(AT_THE_SECOND_TRY).await;
        let mut serve = program(&["serve"]);
        serve.envs(settings).env("PUBLISH_LISTEN", "127.0.0.1:0").env("RUST_BACKTRACE", "1");
        serve.env("PUBLISH_MASTER_KEY", &both_keys);
        serve.env("PUBLISH_LOG", "trace,html5ever::tokenizer=trace,hyper=trace,sqlx=trace,reqwest=trace");
        serve.env("PUBLISH_LOG_FORMAT", format).env("PUBLISH_BODY_LIMIT", "64KiB");
        serve.env("PUBLISH_OUTBOUND_ALLOW", "127.0.0.0/8").env("PUBLISH_ALLOW_HTTP", "true");
        serve.env("PUBLISH_CALLBACK_SCHEDULE", "0s,100ms").env("PUBLISH_RETRY_SCHEDULE", "100ms");
        serve
            .env("PUBLISH_SITE_ROOT", folder.dev().join("site"))
            .env("PUBLISH_SITE_URL", "https://example.org");
        let mut serve = Dev::begin(serve);
        serve.url = serve.said_after("publish-ingest is ready on ").await;
        provoke(&serve, &api_key, &receiver.url, &mut planted).await;
        provoke_by_an_account(&serve, &api_key, &mut planted).await;
        receiver.wait_for("the second try", |received| received.len() >= 2).await;
        let settings = [("DATABASE_URL", &*with_password), ("PUBLISH_MASTER_KEY", &*both_keys)];
        let audited = provoke_by_platforms(&serve, &api_key, &settings, &mut planted).await;
        let told = replace_secrets(&url, (&new_key, &both_keys), &settings, &mut planted).await;
        planted.assert_absent("what an operator is told", &told, &["the rotated secret"]);
        planted.assert_absent("what an audit says", &audited, &["title", "a bridge's query"]);
        // Signed by what is new; and what was stored under the old master key is used.
        let mut sent = article("planted-6");
        sent["callback_url"] = receiver.url.clone().into();
        let api = Api::new(&serve.url, Some(&api_key));
        api.publish(&sent).await.unwrap().ok();
        receiver.wait_for("a callback after it", |received| received.len() >= 4).await;
        let shown = api.get("/signing-secrets").await.unwrap().text();
        planted.assert_absent("what its owner reads", &shown, &["signing secret", "the rotated secret"]);
        eventually("the other callback is given up", async || dump(&url).await.contains("exhausted")).await;
        assert!(serve.leaves_no_core());
        let (status, stdout, stderr) = serve.stop(end).await;
        assert_eq!(status.success(), end == Signal::TERM, "{status}");
        assert_lines_name_what_they_belong_to(format, &stderr);
        planted.assert_absent("standard output", &stdout, &[]);
        planted.assert_absent("the log", &stderr, &[]);

        let dump = dump(&url).await;
        assert!(dump.contains("titlemarker") && dump.contains("callbackquerymarker"), "not all is searched");
        assert!(dump.contains("bridgequerymarker"), "not all is searched");
        let kept = ["title", "text", "summary", "metadata", "a callback's query", "a bridge's query"];
        planted.assert_absent("the database", &dump, &kept);
    }
}
