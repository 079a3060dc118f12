//! The operator's commands, and what never shows.

use publish_ingest::clock::SystemClock;
use publish_ingest::vault::MasterKey;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api::{Api, article};
use crate::operator::Shell;
use crate::program::{Dev, Folder, database, eventually, failure, program, refused, run};

#[tokio::test]
async fn tenants_and_keys_are_made_listed_and_ended_from_a_shell() {
    let folder = Folder::new();
    let shell = Shell::new().await;
    // Before anything has brought the schema up to date.
    let line = shell.failure(&["tenant", "list"]).await;
    assert!(line.contains("schema"), "{line}");
    let settings = [("DATABASE_URL", &*shell.url), ("PUBLISH_MASTER_KEY", &*shell.master_key)];
    let dev = Dev::start(&folder, &settings).await;

    let created = shell.json(&["tenant", "create", "acme"]).await;
    let secret = created["signing_secret"].as_str().unwrap();
    assert!(created["name"] == "acme" && secret.starts_with("whsec_"), "{created}");
    assert!(standardwebhooks::Webhook::new(secret).is_ok());
    let text = shell.text(&["tenant", "create", "b-2_c"]).await;
    assert!(text.contains("b-2_c") && text.contains("whsec_"), "{text}");
    let line = shell.failure(&["tenant", "create", "acme"]).await;
    assert!(line.contains("acme already"), "{line}");
    for bad in ["", "Acme", "-x", "a b", "a/b", "..", "é", &"x".repeat(64)] {
        assert_eq!(shell.exit_code(&["tenant", "create", "--", bad]).await, Some(2), "{bad:?}");
    }
    let tenants = shell.json(&["tenant", "list"]).await;
    let names = tenants["tenants"].as_array().unwrap().iter().map(|tenant| tenant["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["acme", "b-2_c", "demo"]);
    let text = shell.text(&["tenant", "list"]).await;
    assert!(text.lines().count() == 3 && !text.contains("whsec_"), "{text}");

    tenants_have_their_defaults(&shell).await;
    keys_open_what_their_scopes_say(&shell, &dev).await;
    let (_, _, stderr) = dev.stop(Signal::TERM).await;
    assert!(!stderr.contains(secret), "{stderr}");
}

async fn tenants_have_their_limits(shell: &Shell, before: &Value) {
    let limits = |tenant: &Value| ["rate", "burst", "articles_per_day"].map(|name| tenant[name].clone());
    assert_eq!(limits(before), [json!(null), json!(null), json!(null)]);
    let line = shell.failure(&["tenant", "set", "acme", "--burst", "9"]).await;
    assert!(line.contains("--rate"), "{line}");
    let told = shell.json(&["tenant", "set", "acme", "--rate", "5", "--articles-per-day", "1000"]).await;
    assert_eq!(limits(&told), [json!(5), json!(5), json!(1_000)]);
    let told = shell.text(&["tenant", "set", "acme", "--burst", "20"]).await;
    assert!(told.contains("rate 5/s  burst 20  articles_per_day 1000"), "{told}");
    assert!(shell.text(&["tenant", "list"]).await.contains(told.trim()));
    let told = shell.json(&["tenant", "set", "acme", "--no-rate", "--no-articles-per-day"]).await;
    assert_eq!(told, *before);
}

async fn tenants_have_their_defaults(shell: &Shell) {
    let acme = async || shell.json(&["tenant", "list"]).await["tenants"][0].clone();
    let before = acme().await;
    assert!(before["callback_url"].is_null() && before["on_duplicate"] == "return", "{before}");
    let url = "https://receiver.example/";
    let told = shell.text(&["tenant", "set", "acme", "--callback-url", url]).await;
    assert!(told.contains(url), "{told}");
    let told = shell.json(&["tenant", "set", "acme", "--on-duplicate", "reject"]).await;
    let set = acme().await;
    assert_eq!(told, set);
    assert!(set["callback_url"] == url && set["on_duplicate"] == "reject", "{set}");
    shell.text(&["tenant", "set", "acme", "--no-callback-url", "--on-duplicate", "return"]).await;
    assert_eq!(acme().await, before);
    let line = shell.failure(&["tenant", "set", "nobody", "--no-callback-url"]).await;
    assert!(line.contains("tenant list"), "{line}");
    tenants_have_their_limits(shell, &before).await;
    for wrong in [
        &["tenant", "set", "acme"][..],
        &["tenant", "set", "acme", "--callback-url", "receiver.example"],
        &["tenant", "set", "acme", "--rate", "0"],
        &["tenant", "set", "acme", "--rate", "2", "--no-rate"],
        &["tenant", "set", "acme", "--articles-per-day", "-1"],
        &["tenant", "set", "acme", "--callback-url", url, "--no-callback-url"],
        &["tenant", "set", "acme", "--on-duplicate", "ignore"],
    ] {
        assert_eq!(shell.exit_code(wrong).await, Some(2), "{wrong:?}");
    }
}

async fn keys_open_what_their_scopes_say(shell: &Shell, dev: &Dev) {
    let key = async |scopes: &str| {
        let made = shell.json(&["key", "create", "demo", "--scopes", scopes]).await;
        assert_eq!(made["tenant"], "demo");
        (made["api_key"].as_str().unwrap().to_owned(), made["key_id"].as_str().unwrap().to_owned())
    };
    let (publishes, _) = key("publish").await;
    let (reads, reads_id) = key("read").await;
    let (both, _) = key("read,publish").await;
    let foreign = shell.text(&["key", "create", "acme", "--scopes", "publish,read,manage"]).await;
    let api = |key: &str| dev.api().with_key(key);
    let statuses = async |api: Api| {
        let sent = api.publish(&article("scoped")).await.unwrap().status;
        (sent, api.task("scoped").await.unwrap().status)
    };
    assert_eq!(statuses(api(&both)).await, (200, 200));
    assert_eq!(statuses(api(&publishes)).await, (200, 403));
    assert_eq!(statuses(api(&reads)).await, (403, 200));
    // Another tenant's things are not there; its own group is not either.
    assert_eq!(statuses(api(foreign.trim())).await, (422, 404));
    assert_eq!(statuses(api("pik_x")).await, (401, 401));
    assert_eq!(statuses(Api::new(&dev.url, None)).await, (401, 401));

    assert_eq!(shell.text(&["key", "revoke", &reads_id]).await, "");
    eventually("a revoked key stops", async || statuses(api(&reads)).await == (401, 401)).await;
    assert_eq!(statuses(api(&both)).await, (200, 200));
    assert_eq!(shell.text(&["key", "revoke", &reads_id]).await, "");
    let listed = shell.json(&["key", "list"]).await;
    let keys = listed["keys"].as_array().unwrap();
    let revoked = keys.iter().filter(|key| !key["revoked_at"].is_null()).collect::<Vec<_>>();
    assert!(keys.len() == 5 && revoked.len() == 1 && revoked[0]["key_id"] == *reads_id, "{listed}");
    let text = shell.text(&["key", "list"]).await;
    assert!(text.lines().count() == 5 && text.matches("revoked").count() == 1, "{text}");
    assert!(!text.contains("pik_") && !listed.to_string().contains("pik_"));

    let nobody = "00000000-0000-7000-8000-000000000000";
    assert!(shell.failure(&["key", "revoke", nobody]).await.contains("key list"));
    assert!(shell.failure(&["key", "create", "nobody", "--scopes", "read"]).await.contains("tenant list"));
    for wrong in [
        &["key", "create", "demo"][..],
        &["key", "create", "demo", "--scopes", "write"],
        &["key", "create", "demo", "--scopes", ""],
        &["key", "revoke", "1"],
    ] {
        assert_eq!(shell.exit_code(wrong).await, Some(2), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_command_without_its_settings_says_which() {
    let url = database().await;
    let mut no_master_key = program(&["tenant", "create", "acme"]);
    no_master_key.env("DATABASE_URL", &url);
    let no_database = program(&["tenant", "list"]);
    for (command, missing) in [(no_master_key, "master-key"), (no_database, "DATABASE_URL")] {
        let output = run(command).await;
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && text.contains(missing), "{text}");
    }
    let mut bad_master_key = program(&["tenant", "create", "acme"]);
    bad_master_key.env("DATABASE_URL", &url).env("PUBLISH_MASTER_KEY", "aHVudGVyMg==");
    let told = refused(bad_master_key).await;
    assert!(told.len() == 1 && told[0].contains("PUBLISH_MASTER_KEY"), "{told:?}");
    assert!(!told[0].contains("aHVudGVyMg"), "{told:?}");
    // Under another key than the tenants before, it would be one that no service can work for.
    let folder = Folder::new();
    let dev = Dev::start(&folder, &[("DATABASE_URL", &url)]).await;
    let create = |key: &str| {
        let mut create = program(&["tenant", "create", "acme"]);
        create.env("DATABASE_URL", &url).env("PUBLISH_MASTER_KEY", key);
        create
    };
    let line = failure(create(&MasterKey::generate(&SystemClock).expose())).await;
    assert!(line.contains("another master key"), "{line}");
    let right = std::fs::read_to_string(folder.dev().join("master.key")).unwrap();
    assert!(run(create(right.trim())).await.status.success());
    assert!(dev.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn the_printed_openapi_document_is_the_one_that_is_served() {
    let output = run(program(&["openapi"])).await;
    assert!(output.status.success());
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(printed["openapi"].as_str().unwrap().starts_with("3.1"), "{}", printed["openapi"]);
    assert!(printed["paths"]["/publish"]["post"].is_object());
    let folder = Folder::new();
    let url = database().await;
    let dev = Dev::start(&folder, &[("DATABASE_URL", &url)]).await;
    assert_eq!(dev.api().get("/openapi.json").await.unwrap().ok(), printed);
    assert!(dev.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn no_log_holds_a_key_a_secret_or_an_articles_text() {
    let url = database().await;
    for (level, format) in [("info", "text"), ("trace", "json")] {
        let folder = Folder::new();
        let database = if level == "info" { url.clone() } else { self::database().await };
        let settings = [("DATABASE_URL", &*database), ("PUBLISH_LOG", level), ("PUBLISH_LOG_FORMAT", format)];
        let dev = Dev::start(&folder, &settings).await;
        let master_key = std::fs::read_to_string(folder.dev().join("master.key")).unwrap();
        let secret = dev.env("PUBLISH_SIGNING_SECRET").trim_start_matches("whsec_").to_owned();
        let key = dev.env("PUBLISH_API_KEY").to_owned();
        let mut article = article("logged");
        article["content_html"] = "<p>zanzibarmarker</p>".into();
        article["summary"] = "quokkamarker".into();
        article["metadata"] = serde_json::json!({"note": "axolotlmarker"});
        article["callback_url"] = format!("{}/dev/callbacks", dev.url).into();
        let api = dev.api();
        api.publish(&article).await.unwrap().ok();
        api.publish(&article).await.unwrap().ok();
        article["content_html"] = Value::Null;
        assert_eq!(api.publish(&article).await.unwrap().status, 422);
        assert_eq!(api.with_key("pik_wrongmarker").task("logged").await.unwrap().status, 401);
        api.published("logged").await;
        dev.said_after("callback verified").await;
        let (_, stdout, stderr) = dev.stop(Signal::TERM).await;
        assert!(stderr.contains("logged"), "nothing is logged at all");
        let welcome =
            stdout.find("publish-ingest is ready").unwrap()..stdout.find("callback verified").unwrap();
        let rest = format!("{}{}", &stdout[..welcome.start], &stdout[welcome.end..]);
        for (what, planted) in [
            ("key", &*key),
            ("signing secret", &secret),
            ("master key", master_key.trim()),
            ("text", "zanzibarmarker"),
            ("summary", "quokkamarker"),
            ("metadata", "axolotlmarker"),
            ("wrong key", "wrongmarker"),
        ] {
            let shown = stderr.lines().chain(rest.lines()).filter(|line| line.contains(planted));
            assert_eq!(shown.collect::<Vec<_>>(), Vec::<&str>::new(), "{what} at {level}");
        }
    }
}
