//! The commands that call the service: accounts, groups and tasks from a shell.

use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api::article;
use crate::program::{Dev, Folder, database, eventually, failure, program, run};

/// A caller's shell, with the service and a key at hand, and no database.
struct Shell<'a>(&'a Dev);

impl Shell<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program(arguments);
        command.env("PUBLISH_URL", &self.0.url).env("PUBLISH_API_KEY", self.0.env("PUBLISH_API_KEY"));
        command
    }

    async fn text(&self, arguments: &[&str]) -> String {
        let output = run(self.command(arguments)).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        let text = self.text(&[arguments, &["--json"]].concat()).await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"))
    }

    async fn failure(&self, arguments: &[&str]) -> String {
        failure(self.command(arguments)).await
    }
}

#[tokio::test]
async fn accounts_groups_and_tasks_are_managed_from_a_shell() {
    let folder = Folder::new();
    let url = database().await;
    let dev = Dev::start(&folder, &[("DATABASE_URL", &url)]).await;
    let shell = Shell(&dev);
    let settings = ["--setting", "site=blog", "--display-name", "My blog", "--max-in-flight", "2"];
    let put = shell.json(&[&["account", "put", "static_site", "blog"][..], &settings].concat()).await;
    assert_eq!((&put["settings"], &put["max_in_flight"]), (&json!({"site": "blog"}), &json!(2)));
    assert_eq!((&put["resumed"], &put["left"]), (&json!(0), &json!(0)));
    let all = shell.json(&["account", "list"]).await;
    assert_eq!(all["accounts"].as_array().unwrap().len(), 2);
    let text = shell.text(&["account", "list"]).await;
    assert_eq!(text.lines().next(), Some("static_site/blog  active  My blog"));
    let text = shell.text(&["account", "show", "static_site", "blog"]).await;
    assert!(text.contains("max_in_flight  2\n") && text.contains("time_zone  UTC\n"), "{text}");

    // All but the credentials stays as it is.
    let before = shell.json(&["account", "show", "static_site", "blog"]).await;
    let none = folder.path().join("none.json");
    std::fs::write(&none, "{}").unwrap();
    let renew = ["account", "renew", "static_site", "blog"];
    let renewed = shell.text(&[&renew[..], &["--credentials-file", none.to_str().unwrap()]].concat()).await;
    assert_eq!(renewed, "static_site/blog  active  My blog; resumed 0, left 0\n");
    let kept = |account: &Value| {
        let mut account = account.clone();
        account.as_object_mut().unwrap().retain(|name, _| name != "updated_at" && name != "credentials_set");
        account
    };
    let after = shell.json(&["account", "show", "static_site", "blog"]).await;
    assert_eq!((kept(&after), &after["credentials_set"]), (kept(&before), &json!(true)));

    let text = shell.text(&["account", "check", "static_site", "blog"]).await;
    assert_eq!(text, "static_site/blog  active  My blog  works; resumed 0, left 0\n");
    assert_eq!(shell.json(&["account", "check", "static_site", "blog"]).await["check"]["result"], "works");
    assert!(shell.failure(&["account", "check", "static_site", "none"]).await.contains("GET /accounts"));

    let group = ["group", "put", "mine", "--account", "static_site/blog", "--account", "static_site/demo"];
    assert_eq!(shell.text(&group).await, "mine  mine  static_site/blog, static_site/demo\n");
    assert_eq!(shell.json(&["group", "show", "mine"]).await["accounts"][1]["account_id"], "demo");
    assert_eq!(shell.json(&["group", "list"]).await["groups"].as_array().unwrap().len(), 2);

    let article = json!({"external_id": "post 1/é", "group_code": "mine", "title": "T\u{7}", "content_html": "<p>x</p>"});
    dev.api().publish(&article).await.unwrap().ok();
    dev.api().published("post 1/é").await;
    let text = shell.text(&["task", "show", "post 1/é"]).await;
    assert!(text.starts_with("post 1/é  success  T \n  static_site/blog  success  http://"), "{text:?}");
    assert_eq!(shell.json(&["task", "show", "post 1/é"]).await["counts"]["success"], 2);
    let output = run(shell.command(&["task", "retry", "post 1/é"])).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (told, line) = (text(output.stdout), text(output.stderr));
    assert!(told.starts_with("skipped  static_site/blog  success: it is published"), "{told}");
    assert!(output.status.code() == Some(1) && line.contains("nothing was retried"), "{line}");
    let text = shell.text(&["task", "show", "post 1/é", "--history"]).await;
    assert!(text.contains("transition  static_site/blog  submitted running claimed"), "{text}");
    assert!(shell.json(&["task", "show", "post 1/é", "--history"]).await["entries"].is_array());

    assert_eq!(shell.text(&["group", "delete", "mine"]).await, "");
    let told = shell.text(&["account", "delete", "static_site", "blog"]).await;
    assert!(told.contains("taken out of the groups"), "{told}");
    assert!(
        shell
            .failure(&["account", "show", "static_site", "blog"])
            .await
            .contains("not_found: there is no such account")
    );
    assert!(shell.failure(&["group", "delete", "mine"]).await.contains("GET /groups"));
    assert!(shell.failure(&["task", "show", "none"]).await.contains("no task"));
    let line = shell
        .failure(&["account", "put", "static_site", "x", "--settings", r#"{"site": "..", "a": 1}"#])
        .await;
    assert!(line.contains("/settings/a: ") && line.contains("; /settings/site: "), "{line}");
    assert!(dev.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn callbacks_are_listed_and_sent_again_from_a_shell() {
    let folder = Folder::new();
    let url = database().await;
    let dev = Dev::start(&folder, &[("DATABASE_URL", &url)]).await;
    let shell = Shell(&dev);
    let mut article = article("told");
    article["callback_url"] = format!("{}/dev/callbacks", dev.url).into();
    dev.api().publish(&article).await.unwrap().ok();
    dev.said_after("callback verified: publication.success told").await;
    let delivered = ["callback", "list", "--status", "delivered", "--external-id", "told"];
    let mut listed = String::new();
    eventually("the callback is delivered", async || {
        listed = shell.text(&delivered).await;
        listed.contains("  delivered  publication.success  told  static_site  demo  1  2")
    })
    .await;
    let event_id = listed.split("  ").next().unwrap();
    let text = shell.text(&["callback", "show", event_id]).await;
    assert!(
        text.starts_with(&format!("{event_id}  delivered  http://")) && text.lines().count() == 2,
        "{text}"
    );
    assert_eq!(shell.json(&["callback", "replay", event_id]).await["event_id"], event_id);
    let tried = async |tries: usize| {
        let shown = shell.json(&["callback", "show", event_id]).await;
        shown["tries"].as_array().unwrap().len() == tries && shown["status"] == "delivered"
    };
    eventually("it is sent again", async || tried(2).await).await;
    let range = ["callback", "replay", "--since", "2020-01-01T00:00:00Z", "--status", "delivered"];
    let text = shell.text(&range).await;
    assert!(text.ends_with("  running  0 of 1\n"), "{text}");
    let replay_id = text.split("  ").next().unwrap();
    eventually("the replay is done", async || {
        shell.text(&["callback", "progress", replay_id]).await == format!("{replay_id}  done  1 of 1\n")
    })
    .await;
    eventually("it is sent a third time", async || tried(3).await).await;
    assert!(shell.failure(&["callback", "show", "none"]).await.contains("no callback of this event_id"));
    assert!(shell.failure(&["callback", "progress", "none"]).await.contains("no replay of this replay_id"));
    assert!(dev.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn credentials_come_from_a_file_or_standard_input_and_do_not_show() {
    let folder = Folder::new();
    let url = database().await;
    let dev = Dev::start(&folder, &[("DATABASE_URL", &url), ("PUBLISH_LOG", "trace")]).await;
    let shell = Shell(&dev);
    let put = ["account", "put", "static_site", "demo", "--setting", "site=demo", "--credentials-file"];
    let file = folder.path().join("credentials.json");
    let name = file.to_str().unwrap();
    std::fs::write(&file, "{}").unwrap();
    assert_eq!(shell.json(&[&put[..], &[name]].concat()).await["credentials_set"], true);
    let mut piped = shell.command(&[&put[..], &["-", "--json"]].concat());
    std::fs::write(&file, r#"{"token": "quokkamarker"}"#).unwrap();
    piped.stdin(Stdio::from(std::fs::File::open(&file).unwrap()));
    // This platform takes none, and nobody repeats what they were.
    let line = failure(piped).await;
    assert!(line.contains("/credentials/token") && !line.contains("quokkamarker"), "{line}");
    std::fs::write(&file, "quokkamarker").unwrap();
    let line = shell.failure(&[&put[..], &[name]].concat()).await;
    assert!(line.contains("no JSON object") && !line.contains("quokkamarker"), "{line}");
    let line = shell.failure(&[&put[..], &["/nowhere"]].concat()).await;
    assert!(line.contains("cannot read credentials from /nowhere"), "{line}");
    let (_, stdout, stderr) = dev.stop(Signal::TERM).await;
    assert!(!stdout.contains("quokkamarker") && !stderr.contains("quokkamarker"));
}

#[tokio::test]
async fn a_service_that_is_not_named_or_not_there_is_told() {
    for (settings, missing) in [
        (&[][..], "PUBLISH_URL"),
        (&[("PUBLISH_URL", "http://127.0.0.1:9")], "PUBLISH_API_KEY"),
        (&[("PUBLISH_URL", ""), ("PUBLISH_API_KEY", "k")], "PUBLISH_URL"),
    ] {
        let mut command = program(&["account", "list"]);
        command.envs(settings.iter().copied());
        let output = run(command).await;
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && text.contains(missing), "{text}");
    }
    let mut command = program(&["group", "list"]);
    // A port that is taken, by one who does not listen.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = taken.local_addr().unwrap();
    command.env("PUBLISH_URL", format!("http://{address}")).env("PUBLISH_API_KEY", "hunter2");
    let line = failure(command).await;
    assert!(line.contains("does not answer") && !line.contains("hunter2"), "{line}");
    for wrong in [
        &["account", "put", "static_site"][..],
        &["account", "put", "static_site", "x", "--setting", "site"],
        &["account", "put", "static_site", "x", "--settings", "[]"],
        &["group", "put", "g", "--account", "blog"],
        &["task", "retry", "a", "--confirmed-not-published"],
    ] {
        assert_eq!(run(program(wrong)).await.status.code(), Some(2), "{wrong:?}");
    }
}
