//! The answers are those of a `WordPress` 6.1.9, as it gave them, but where a name says otherwise.

use std::time::Duration;

use super::*;

fn answered(status: u16, retry_after: Option<&str>, body: &str) -> Heard {
    let retry_after = retry_after.map(str::to_owned);
    let (content_type, location, cut, elapsed) = (None, None, false, Duration::ZERO);
    let answer =
        Answer { status, retry_after, content_type, location, head: body.into(), cut, date: None, elapsed };
    heard(Ok(answer), DateTime::UNIX_EPOCH)
}

fn error(status: u16, code: &str, message: &str) -> Heard {
    let body = format!(r#"{{"code":"{code}","message":"{message}","data":{{"status":{status}}}}}"#);
    answered(status, None, &body)
}

fn enveloped(status: u16, code: &str, data: &str) -> Heard {
    let body = format!(
        r#"{{"body":{{"code":"{code}","message":"m","data":{data}}},"status":{status},"headers":[]}}"#
    );
    unwrapped(answered(200, None, &body)).0
}

fn is_expired(heard: &Heard) -> bool {
    let by_all = [
        matches!(heard.clone().verdict(), Verdict::LoginExpired(_)),
        matches!(heard.clone().sighting(), Sighting::LoginExpired(_)),
        matches!(heard.clone().login(), Login::Expired(_)),
    ];
    assert!(by_all == [true; 3] || by_all == [false; 3], "{heard:?}");
    by_all[0]
}

fn rejected(heard: Heard) -> String {
    match heard.verdict() {
        Verdict::Rejected(failure) => failure.code.into_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_wrong_or_revoked_password_is_an_expired_login_wherever_it_shows() {
    for (code, message) in [
        ("rest_not_logged_in", "You are not currently logged in."),
        ("rest_cannot_create", "Sorry, you are not allowed to create posts as this user."),
        ("rest_cannot_edit", "Sorry, you are not allowed to edit this post."),
        ("rest_cannot_delete", "Sorry, you are not allowed to delete this post."),
        ("rest_forbidden_context", "Sorry, you are not allowed to edit posts in this post type."),
    ] {
        let heard = error(401, code, message);
        assert!(is_expired(&heard), "{code}");
        assert!(heard.sentence().contains(code), "the tenant is told {code}");
    }
}

#[test]
fn status_any_without_a_login_is_an_expired_login_although_it_is_a_400() {
    let data = r#"{"status":400,"params":{"status":"Status is forbidden."},"details":{"status":
        {"code":"rest_forbidden_status","message":"Status is forbidden.","data":{"status":401}}}}"#;
    assert!(is_expired(&enveloped(400, "rest_invalid_param", data)));
    let bare = format!(r#"{{"code":"rest_invalid_param","message":"m","data":{data}}}"#);
    assert!(is_expired(&answered(400, None, &bare)));
    let too_low = data.replace("401", "403");
    let heard = enveloped(400, "rest_invalid_param", &too_low);
    assert!(!is_expired(&heard) && rejected(heard) == "not_permitted");
}

#[test]
fn a_role_that_is_too_low_is_a_rejection_and_no_expired_login() {
    for code in ["rest_cannot_publish", "rest_cannot_create", "rest_cannot_edit", "rest_cannot_assign_term"] {
        let heard = error(403, code, "Sorry, you are not allowed to publish posts in this post type.");
        assert!(!is_expired(&heard), "{code}");
        assert_eq!(rejected(heard), "not_permitted", "{code}");
    }
}

#[test]
fn a_firewalls_page_is_a_rejection_and_no_expired_login() {
    let page = "<html><head><title>403 Forbidden</title></head><body>Blocked</body></html>";
    for status in [401, 403, 406] {
        let heard = answered(status, None, page);
        assert!(!is_expired(&heard), "{status}");
        assert!(matches!(heard.clone().sighting(), Sighting::CannotTell(_)));
        assert_eq!(rejected(heard), "platform_blocked");
    }
    // A plugin's answer in the form of WordPress's, of a code that is none of its.
    let heard = error(401, "security_plugin_says_no", "m");
    assert!(!is_expired(&heard) && rejected(heard) == "platform_blocked");
}

#[test]
fn no_message_shows_html_or_a_code_that_could_hold_it() {
    for heard in [
        answered(403, None, "<b>secret</b>"),
        answered(403, None, r#"{"code":"<b>secret</b>","message":"<b>secret</b>"}"#),
        answered(500, None, r#"{"code":"rest_x","message":"<b>secret</b>"}"#),
        answered(418, None, &format!(r#"{{"code":"{}secret"}}"#, "x".repeat(60))),
    ] {
        let said = heard.sentence();
        assert!(!said.contains('<') && !said.contains("secret"), "{said}");
    }
}

#[test]
fn maintenance_proves_that_nothing_was_done() {
    let told = r#"{"code":"wp_die","message":"Briefly unavailable for scheduled maintenance. Check back in a minute.","data":{"status":503},"additional_errors":[]}"#;
    let page = r#"<body id="error-page"><div class="wp-die-message">Briefly unavailable for scheduled maintenance. Check back in a minute.</div></body>"#;
    for body in [told, page] {
        let heard = answered(503, Some("600"), body);
        let Verdict::Transient(failure) = heard.clone().verdict() else { panic!("{heard:?}") };
        assert_eq!(failure.code, "maintenance");
        assert!(matches!(heard.sighting(), Sighting::CannotTell(_)));
    }
    for (retry_after, body) in [
        (None, told),
        (Some("30"), told),
        (Some("600"), "<h1>503 Service Unavailable</h1>"),
        (Some("600"), r#"{"code":"other","message":"m"}"#),
    ] {
        let heard = answered(503, retry_after, body);
        assert!(matches!(heard.verdict(), Verdict::Unknown(_)), "another's 503 proves nothing: {body}");
    }
}

#[test]
fn a_database_that_is_down_leaves_a_write_unknown_and_a_look_undecided() {
    let told = r#"{"code":"wp_die","message":"<h1>Error establishing a database connection<\/h1>","data":{"status":500},"additional_errors":[]}"#;
    let page = r#"<body id="error-page"><div class="wp-die-message"><h1>Error establishing a database connection</h1></div></body>"#;
    for body in [told, page] {
        let heard = answered(500, None, body);
        assert!(matches!(heard.clone().verdict(), Verdict::Unknown(_)));
        assert!(matches!(heard.clone().sighting(), Sighting::CannotTell(_)));
        assert!(matches!(heard.login(), Login::CannotTell(_)));
    }
}

#[test]
fn a_term_that_exists_is_used() {
    let told = r#"{"code":"term_exists","message":"A term with the name provided already exists in this taxonomy.","data":{"status":400,"term_id":2},"additional_data":[2,2]}"#;
    assert_eq!(answered(400, None, told), Heard::TermExists(2));
    assert_eq!(answered(400, None, &told.replace(":2}", ":\"2\"}")), Heard::TermExists(2));
    let nameless = error(400, "term_exists", "m");
    assert!(matches!(nameless.verdict(), Verdict::Unknown(_)));
}

#[test]
fn an_error_of_a_create_is_a_rejection_only_if_it_comes_before_any_write() {
    let bad = r#"{"code":"rest_invalid_param","message":"Invalid parameter(s): tags","data":{"status":400,"params":{"tags":"tags[0] is not of type integer."},"details":{"tags":{"code":"rest_invalid_type","message":"m","data":{"param":"tags[0]"}}}}}"#;
    assert_eq!(rejected(answered(400, None, bad)), "refused_by_platform");
    assert_eq!(rejected(error(400, "rest_missing_callback_param", "m")), "refused_by_platform");
    // Written after the post itself.
    for (status, code) in [
        (400, "rest_invalid_featured_media"),
        (500, "db_insert_error"),
        (500, "rest_meta_database_error"),
        (400, "rest_new_one"),
        (409, "rest_new_one"),
        (502, "rest_new_one"),
    ] {
        assert!(matches!(error(status, code, "m").verdict(), Verdict::Unknown(_)), "{code}");
    }
    for status in [301, 400, 404, 408, 413, 500, 502, 503, 504, 520, 524] {
        assert!(matches!(answered(status, None, "<h1>?</h1>").verdict(), Verdict::Unknown(_)), "{status}");
    }
}

#[test]
fn a_file_of_a_type_that_is_not_taken_is_refused_for_good_although_it_is_a_500() {
    for (status, code) in [(500, "rest_upload_sideload_error"), (400, "rest_upload_no_data")] {
        let heard = error(status, code, "Sorry, you are not allowed to upload this file type.");
        let Heard::FileRefused(why) = heard else { panic!("{heard:?}") };
        assert!(why.contains(code), "{why}");
    }
}

#[test]
fn a_pause_is_kept_as_long_as_it_is_asked_for() {
    for (field, wait) in
        [(Some("90"), Some(90)), (Some("Thu, 01 Jan 1970 00:01:00 GMT"), Some(60)), (None, None)]
    {
        let heard = answered(429, field, "<h1>Too Many Requests</h1>");
        let Verdict::RateLimited(pause) = heard.clone().verdict() else { panic!("{heard:?}") };
        assert_eq!(pause.wait, wait.map(Duration::from_secs));
        assert!(matches!(heard.sighting(), Sighting::RateLimited(_)));
    }
}

#[test]
fn a_post_that_is_gone_is_made_again() {
    let heard = error(404, "rest_post_invalid_id", "Invalid post ID.");
    assert_eq!(heard, Heard::Gone);
    let Verdict::Transient(failure) = heard.verdict() else { panic!() };
    assert_eq!(failure.code, "draft_vanished");
}

#[test]
fn an_address_without_wordpress_is_told_as_one() {
    for heard in [
        error(404, "rest_no_route", "No route was found matching the URL and request method."),
        answered(404, None, "<!DOCTYPE html>"),
        answered(301, None, ""),
    ] {
        assert!(matches!(heard.clone().sighting(), Sighting::CannotTell(_)), "{heard:?}");
        let Login::Unfit(failure) = heard.login() else { panic!() };
        assert_eq!(failure.code, "no_rest_api");
    }
    let answer = Answer {
        date: None,
        status: 301,
        retry_after: None,
        content_type: None,
        location: Some("https://www.blog.example/wp-json/wp/v2/posts?x=1".to_owned()),
        head: Vec::new(),
        cut: false,
        elapsed: Duration::ZERO,
    };
    assert!(of_answer(&answer, DateTime::UNIX_EPOCH).sentence().contains("to https://www.blog.example: set"));
}

#[test]
fn what_is_no_answer_is_unknown_unless_it_was_never_sent() {
    let now = DateTime::UNIX_EPOCH;
    let timeout = heard(Err(CallError::Timeout(Duration::from_secs(1))), now);
    assert!(matches!(timeout.verdict(), Verdict::Unknown(_)));
    let unsent = heard(Err(CallError::NoRoots), now);
    assert!(matches!(unsent.verdict(), Verdict::Transient(_)));
    let policy = crate::outbound::Policy { allow: Vec::new(), allow_http: false, ports: None };
    let refusal = policy.check_url("http://blog.example").unwrap_err();
    assert_eq!(rejected(heard(Err(CallError::Refused(refusal)), now)), "address_not_allowed");
}

#[test]
fn a_success_that_cannot_be_read_is_unknown() {
    assert_eq!(answered(201, None, r#"{"id":4}"#), Heard::Told(serde_json::json!({"id": 4})));
    let notices = "<br />\n<b>Notice</b>: Undefined index in plugin.php\n{\"id\":4}";
    assert!(matches!(answered(201, None, notices).verdict(), Verdict::Unknown(_)));
    let answer = Answer {
        date: None,
        status: 200,
        retry_after: None,
        content_type: None,
        location: None,
        head: b"[]".to_vec(),
        cut: true,
        elapsed: Duration::ZERO,
    };
    assert!(matches!(of_answer(&answer, DateTime::UNIX_EPOCH), Heard::Unclear(_)));
}

#[test]
fn an_envelope_tells_how_many_there_are() {
    let told =
        r#"{"body":[],"status":200,"headers":{"X-WP-Total":1,"X-WP-TotalPages":1,"Allow":"GET, POST"}}"#;
    assert_eq!(unwrapped(answered(200, None, told)), (Heard::Told(serde_json::json!([])), Some(1)));
    assert!(matches!(unwrapped(answered(200, None, "[]")).0.sighting(), Sighting::CannotTell(_)));
    assert!(is_expired(&unwrapped(error(401, "rest_not_logged_in", "m")).0));
}
