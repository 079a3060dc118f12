//! Accidents that users of other systems have reported, each with the tests that replay it here.

use std::fs;
use std::path::Path;

/// Where it was reported; what happened; the tests that hold it, as `file::function`, of `tests` or of `src`.
const ACCIDENTS: [(&str, &str, &[&str]); 29] = [
    (
        "Postiz PR 1813",
        "a timeout after the irreversible call ran it again",
        &[
            "database/bridge::whatever_becomes_of_the_answer_the_article_is_there_once_and_one_success_is_told",
        ],
    ),
    (
        "Postiz PR 1813",
        "only timeouts were taken for unknown; resets and 5xx were repeated",
        &[
            "database/bridge::whatever_becomes_of_the_answer_the_article_is_there_once_and_one_success_is_told",
        ],
    ),
    (
        "Postiz 1321",
        "something after the success failed, and the post was made again for ever",
        &["database/accidents::a_receiver_that_never_takes_the_news_publishes_nothing_again"],
    ),
    (
        "Postiz PR 1681",
        "a live post was marked as failed, and retried by hand",
        &["database/accidents::what_is_live_and_was_told_as_unknown_is_found_when_a_person_retries_it"],
    ),
    (
        "zernio-python PR 42",
        "a 409 was read as nothing went out, while the first was still publishing",
        &[
            "database/bridge::a_report_while_the_bridge_is_being_asked_again_frees_its_slot_and_the_answer_comes_too_late",
            "platforms/ghost::a_change_is_refused_to_who_read_an_older_post",
            "connector/ghost/tests::a_draft_that_others_change_is_read_again_and_given_up_after_a_while",
        ],
    ),
    (
        "Tusky 2951",
        "gateway timeouts and clients that retried: up to 11 copies",
        &[
            "process/callers::a_caller_who_goes_away_leaves_a_whole_article_or_none",
            "process/rivals::of_a_hundred_at_once_one_creates_and_all_get_the_same_task",
        ],
    ),
    (
        "Mastodon 30039",
        "the key was ignored for scheduled posts",
        &["database/accidents::a_scheduled_article_that_is_sent_again_is_the_same_and_is_published_once"],
    ),
    (
        "Mastodon 40399",
        "a replay with the same key gave a 500",
        &["database/contract::who_sends_the_creators_idempotency_key_gets_the_creators_answer"],
    ),
    (
        "Mastodon PR 37879",
        "a second request came before the first had ended",
        &["database/races::all_who_send_the_creators_key_at_once_are_the_creator"],
    ),
    (
        "WordPress-Android 9845, 13427",
        "a retry after a lost answer doubled posts, and media",
        &[
            "database/leases::what_was_published_before_a_crash_is_found_and_not_published_again",
            "platforms/wordpress/trouble::a_database_that_stands_still_leaves_a_create_unknown_and_it_is_found_later",
            "platforms/wordpress/media::a_cover_is_uploaded_once_for_all_articles_that_have_it",
        ],
    ),
    (
        "forem 1770",
        "two clicks, two articles",
        &["database/races::of_a_hundred_callers_at_once_one_creates_and_all_get_its_task"],
    ),
    (
        "Postiz PR 1841",
        "a published post was saved again, and so published again",
        &["database/accidents::a_new_version_of_what_is_published_publishes_nothing"],
    ),
    (
        "distillery PR 382",
        "a pipeline that ran again posted again",
        &["process/pipeline::a_pipeline_killed_again_and_again_hands_each_article_in_once"],
    ),
    (
        "svix 2181",
        "taken for lost after 45 s, while the request was given longer",
        &[
            "database/accidents::no_call_may_last_longer_than_what_holds_it",
            "database/leases::who_was_stopped_before_the_call_does_not_begin_it_later",
        ],
    ),
    (
        "River 1302",
        "who rescued had no fence",
        &["database/leases::a_holder_whose_lease_ran_out_can_change_nothing"],
    ),
    (
        "hexpm PR 1825",
        "a job of 47 minutes was rescued after 6, night after night",
        &["database/leases::writing_the_journal_renews_the_lease"],
    ),
    (
        "Postiz 1724",
        "queued for ever, and no way to look",
        &[
            "database/accidents::what_waits_says_since_when_and_what_for",
            "database/metrics::a_queue_shows_for_how_long_its_oldest_waits",
        ],
    ),
    (
        "Mixpost 150",
        "publishing for ever after a crash",
        &[
            "database/leases::what_was_not_published_before_a_crash_is_published_once",
            "process/crashes::a_service_killed_again_and_again_publishes_each_article_once",
        ],
    ),
    (
        "svix, dual write",
        "stored, and never dispatched",
        &["process/crashes::a_service_killed_again_and_again_publishes_each_article_once"],
    ),
    (
        "textbee 111",
        "a delivery lost before its first try was never tried again",
        &["database/callbacks::what_a_dispatcher_left_behind_is_sent_again"],
    ),
    (
        "svix 1511",
        "the worker was silent, and the API still said 202",
        &["database/metrics::a_queue_shows_for_how_long_its_oldest_waits"],
    ),
    (
        "River 1258",
        "5,133 jobs were running for 91 days",
        &["database/accidents::what_was_running_when_everybody_died_is_looked_up_after_91_days"],
    ),
    (
        "Oban 862",
        "a worker of the same name hid what the one before had left",
        &["database/accidents::a_worker_of_the_same_name_does_not_hide_what_was_left_behind"],
    ),
    (
        "outpost 881",
        "3 s without its broker ended the retry worker for good",
        &["database/outage::without_its_database_the_service_says_so_quickly_and_recovers_by_itself"],
    ),
    (
        "jetpack 31967",
        "an account added after scheduling was shown as selected, and skipped",
        &[
            "database/actions::accounts_are_added_to_what_has_ended_and_the_task_goes_on",
            "database/drafts::a_submit_takes_the_accounts_of_the_group_again",
        ],
    ),
    (
        "Postiz PR 1822",
        "a blip of the network was taken for a dead token",
        &["database/login_complaints::a_network_blip_is_not_taken_for_a_dead_token"],
    ),
    (
        "Postiz PR 2048",
        "2,457 tries a week on a dead channel",
        &[
            "database/login_complaints::a_dead_channel_is_asked_once_in_a_week_and_not_once_per_article",
            "database/login_complaints::a_login_that_dies_is_told_at_most_to_those_under_way_whichever_node_they_are_on",
        ],
    ),
    (
        "autoblue PR 44",
        "expired in silence, and the page said healthy",
        &["database/login_complaints::a_login_that_expired_in_silence_shows_wherever_somebody_looks"],
    ),
    (
        "Mixpost",
        "accounts that had succeeded posted again after one had failed",
        &[
            "database/login_complaints::accounts_that_succeeded_are_not_posted_to_again_when_one_lost_its_login",
            "database/retries::a_retry_after_a_failure_ends_in_success_with_a_round_and_an_event_of_its_own",
        ],
    ),
];

#[test]
fn each_accident_has_its_test() {
    let house = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (source, what, held_by) in ACCIDENTS {
        assert!(!held_by.is_empty(), "{source}: {what}");
        for name in held_by {
            let (file, function) = name.split_once("::").unwrap();
            let rooms = ["tests", "src"].map(|room| house.join(room).join(file).with_extension("rs"));
            let text = rooms.into_iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
            assert!(text.contains(&format!("fn {function}()")), "{source} ({what}): there is no {name}");
        }
    }
}
