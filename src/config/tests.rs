use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    given: Given,
}

const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fn given(arguments: &[&str]) -> Given {
    Program::try_parse_from(std::iter::once("x").chain(arguments.iter().copied())).unwrap().given
}

/// The settings; or what is told, line by line. The folder `/good` can be written to, no other.
fn read(runs: Runs, arguments: &[&str]) -> Result<Settings, Vec<String>> {
    let looks = Looks {
        database_url: &|url| {
            if url.starts_with("postgres:") { Ok(()) } else { Err("no database".to_owned()) }
        },
        site_root: &|root| if root == Path::new("/good") { Ok(()) } else { Err("no folder".to_owned()) },
    };
    let read = Settings::read(&given(arguments), runs, &looks);
    read.map_err(|bad| bad.iter().map(ToString::to_string).collect())
}

fn serve(arguments: &[&str]) -> Result<Settings, Vec<String>> {
    read(Runs::Serve, &[&["--database-url", "postgres://h/d", "--master-key", KEY], arguments].concat())
}

#[test]
fn lists_and_sizes_are_read() {
    let networks = |text: &str| text.parse::<Networks>().map(|list| list.0.len());
    assert_eq!(networks(""), Ok(0));
    assert_eq!(networks("127.0.0.0/8, ::1/128 ,10.1.2.3"), Ok(3));
    assert!(networks("10.0.0.0/33").is_err() && networks("a,").is_err());
    let ports = |text: &str| text.parse::<Ports>().map(|list| list.0);
    assert_eq!(ports(" "), Ok(vec![]));
    assert_eq!(ports("443, 8000 - 8999,65535,1-1"), Ok(vec![443..=443, 8000..=8999, 65_535..=65_535, 1..=1]));
    for bad in ["0", "65536", "9-8", "443,", "-", "80-", "x", "443;80", "1-2-3", "+80"] {
        assert!(ports(bad).is_err(), "{bad:?}");
    }
    let size = |text: &str| text.parse::<Size>().map(|size| size.0);
    assert_eq!(size("2 MiB"), Ok(2 * 1024 * 1024));
    assert_eq!((size("10"), size("3KiB")), (Ok(10), Ok(3072)));
    for bad in ["", "0", "x", "1 GB", "-1", "99999999999999999999"] {
        assert!(size(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn roles_are_any_of_the_three_and_at_least_one() {
    let roles = |text: &str| text.parse::<Roles>().map(|roles| (roles.api, roles.worker, roles.dispatcher));
    assert_eq!(roles("api,worker,dispatcher"), Ok((true, true, true)));
    assert_eq!(roles(" worker , dispatcher"), Ok((false, true, true)));
    assert_eq!(roles("dispatcher,dispatcher"), Ok((false, false, true)));
    for bad in ["", " ", "api,", "API", "all", "api worker"] {
        assert!(roles(bad).is_err(), "{bad:?}");
    }
    assert_eq!(Roles::ALL.to_string().parse(), Ok(Roles::ALL));
}

#[test]
fn a_wrong_setting_is_refused_with_what_to_write() {
    for (arguments, name, hint) in [
        (["--lease", "1s"], "PUBLISH_LEASE", "at least 2s"),
        (["--lease", ""], "PUBLISH_LEASE", "30s"),
        (["--keep", "191h"], "PUBLISH_KEEP", "write 192h or more"),
        (["--keep", "90d"], "PUBLISH_KEEP", "or off"),
        (["--keep-events", "2159h"], "PUBLISH_KEEP_EVENTS", "write 2160h or more"),
        (["--callback-timeout", "0s"], "PUBLISH_CALLBACK_TIMEOUT", "longer than 0"),
        (["--callback-schedule", ""], "PUBLISH_CALLBACK_SCHEDULE", "at least one try"),
        (["--retry-schedule", "soon"], "PUBLISH_RETRY_SCHEDULE", "30s"),
        (["--listen", "localhost:80"], "PUBLISH_LISTEN", "127.0.0.1:8080"),
        (["--roles", "api,cook"], "PUBLISH_ROLES", "\"cook\" is no role"),
        (["--roles", ""], "PUBLISH_ROLES", "api, worker, dispatcher"),
        (["--outbound-allow", "10.0.0.0/8;::1"], "PUBLISH_OUTBOUND_ALLOW", "fd00::/8"),
        (["--outbound-ports", "443-80"], "PUBLISH_OUTBOUND_PORTS", "8000-8999"),
        (["--allow-http", "yes"], "PUBLISH_ALLOW_HTTP", "true or false"),
        (["--body-limit", "2GB"], "PUBLISH_BODY_LIMIT", "MiB"),
        (["--connections", "0"], "PUBLISH_CONNECTIONS", "at least 1"),
        (["--connections-per-address", "many"], "PUBLISH_CONNECTIONS_PER_ADDRESS", "whole number"),
        (["--head-timeout", "0s"], "PUBLISH_HEAD_TIMEOUT", "longer than 0"),
        (["--idle-timeout", "x"], "PUBLISH_IDLE_TIMEOUT", "30s"),
        (["--body-timeout", "0s"], "PUBLISH_BODY_TIMEOUT", "longer than 0"),
        (["--answer-timeout", ""], "PUBLISH_ANSWER_TIMEOUT", "30s"),
        (["--body-memory", "63MiB"], "PUBLISH_BODY_MEMORY", "64MiB"),
        (["--log", "loud"], "PUBLISH_LOG", "trace"),
        (["--log-format", "xml"], "PUBLISH_LOG_FORMAT", "text or json"),
    ] {
        for runs in [Runs::Dev, Runs::Serve] {
            let given =
                [&["--database-url", "postgres://h/d", "--master-key", KEY][..], &arguments[..]].concat();
            let told = read(runs, &given).unwrap_err();
            assert!(told.len() == 1 && told[0].starts_with(&format!("{name}: ")), "{told:?}");
            assert!(told[0].contains(hint), "{told:?}");
        }
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let told =
        read(Runs::Serve, &["--lease", "1s", "--roles", "cook", "--log-format", "xml", "--site-url", "x"]);
    let told = told.unwrap_err();
    let names = told.iter().map(|line| line.split(':').next().unwrap()).collect::<Vec<_>>();
    let wrong = [
        "DATABASE_URL",
        "PUBLISH_ROLES",
        "PUBLISH_MASTER_KEY",
        "PUBLISH_SITE_ROOT",
        "PUBLISH_SITE_URL",
        "PUBLISH_LEASE",
        "PUBLISH_LOG_FORMAT",
    ];
    assert_eq!(names, wrong);
}

#[test]
fn serve_needs_a_database_and_a_master_key_and_dev_does_not() {
    for empty in [&[][..], &["--database-url", "", "--master-key", ""]] {
        let told = read(Runs::Serve, empty).unwrap_err();
        assert!(told.len() == 2 && told[1].contains("openssl rand -base64 32"), "{told:?}");
        let settings = read(Runs::Dev, empty).unwrap();
        assert!(settings.database_url.is_none() && settings.master_key.is_none());
    }
    let settings = serve(&[]).unwrap();
    assert!(settings.database_url.is_some() && settings.master_key.is_some());
}

#[test]
fn a_site_is_a_folder_that_can_be_written_to_and_the_url_it_is_served_at() {
    let both = ["--site-root", "/good", "--site-url", "https://example.org/articles"];
    assert!(serve(&both).is_ok());
    assert!(serve(&["--site-root", "", "--site-url", ""]).unwrap().site_root.is_none());
    for (arguments, name) in [
        (&both[..2], "PUBLISH_SITE_URL: "),
        (&both[2..], "PUBLISH_SITE_ROOT: "),
        (&["--site-root", "/bad", "--site-url", "https://example.org"], "PUBLISH_SITE_ROOT: no folder"),
        (&["--site-root", "/good", "--site-url", "not a url"], "PUBLISH_SITE_URL: write an http"),
    ] {
        let told = serve(arguments).unwrap_err();
        assert!(told.len() == 1 && told[0].starts_with(name), "{told:?}");
        let dev = read(Runs::Dev, arguments);
        assert_eq!(dev.is_ok(), !arguments.contains(&"not a url"));
    }
    // Only a worker writes there.
    let unseen = ["--roles", "api", "--site-root", "/bad", "--site-url", "https://example.org"];
    assert!(serve(&unseen).is_ok());
}

#[test]
fn a_list_set_to_empty_text_is_empty_and_not_the_default() {
    let settings = serve(&["--retry-schedule", "", "--outbound-allow", ""]).unwrap();
    assert_eq!(settings.retry_schedule.wait(0), None);
    assert_eq!(settings.outbound_allow, Some(Networks(Vec::new())));
    assert_eq!(serve(&["--outbound-ports", ""]).unwrap().outbound_ports, Some(Ports(Vec::new())));
    let settings = serve(&[]).unwrap();
    assert_eq!(
        (settings.retry_schedule.wait(0), settings.outbound_allow),
        (Some(Duration::from_secs(5)), None)
    );
    assert_eq!((settings.roles, settings.lease), (Roles::ALL, Duration::from_secs(30)));
    assert_eq!(settings.listen, "127.0.0.1:8080".parse().unwrap());
    assert_eq!(settings.inbound, Limits::DEFAULT);
}

#[test]
fn the_articles_of_a_statement_are_as_many_as_is_best_unless_fewer_are_asked_for() {
    let rows = |text| serve(&["--accept-rows", text]).map(|settings| settings.accept_rows);
    for best in [serve(&[]).unwrap().accept_rows, rows("").unwrap()] {
        assert_eq!(best, None);
    }
    assert_eq!((rows("1").unwrap(), rows("128").unwrap()), (NonZeroUsize::new(1), NonZeroUsize::new(128)));
    for wrong in ["0", "129", "many"] {
        assert_eq!(rows(wrong).unwrap_err(), ["PUBLISH_ACCEPT_ROWS: write a whole number from 1 to 128"]);
    }
}

#[test]
fn secrets_do_not_show() {
    let right = ["--master-key", KEY, "--database-url", "postgres://u:hunter2@h/d"];
    let shown = format!("{:?} {:?}", given(&right), read(Runs::Serve, &right));
    assert!(!shown.contains("hunter2") && !shown.contains(KEY), "{shown}");
    for wrong in ["hunter2", &format!("{KEY},{KEY}"), &KEY[1..]] {
        let told =
            read(Runs::Dev, &["--master-key", wrong, "--database-url", "mysql://hunter2"]).unwrap_err();
        assert!(told.len() == 2 && !told.concat().contains("hunter2"), "{told:?}");
        assert!(!told.concat().contains(&KEY[1..]), "{told:?}");
    }
    let told = read(Runs::Dev, &["--master-key", &format!("{KEY},{KEY}")]).unwrap_err();
    assert!(told[0].contains("both master keys are the same"), "{told:?}");
}
