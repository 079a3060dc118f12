//! What people and machines do to a site meanwhile.

use std::time::Duration;

use publish_ingest::connector::{Connector as _, Login, Removal, Sighting, Verdict};
use rustix::process::Signal;

use super::blog::{Blog, Plugin, ROOMY, rejected};
use crate::server::clock;

#[tokio::test]
async fn what_a_person_put_in_the_trash_is_not_published_again_in_silence() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    for public in [false, true] {
        let mut job = blog.job("Thrown away");
        let id = blog.drafted(&mut job).await;
        if public {
            assert!(matches!(blog.connector.publish(&job).await, Verdict::Done(_)));
        }
        blog.php(&format!("wp_trash_post({id});"));
        assert_eq!(blog.find(&job).await, Sighting::absent(), "nothing to be swept away");
        assert_eq!(rejected(blog.connector.draft(&job).await), "in_trash");
        assert_eq!(rejected(blog.connector.publish(&job).await), "in_trash");
        assert_eq!(blog.connector.remove(&job).await, Removal::Gone);
        assert_eq!(blog.column(&id, "post_status"), "trash", "a person's trash is left as it is");
        blog.php(&format!("wp_untrash_post({id});"));
        assert!(matches!(blog.connector.publish(&job).await, Verdict::Done(_)), "restored, it is published");
        blog.php(&format!("wp_delete_post({id}, true);"));
        assert_eq!(blog.count(&job), 0);
        let Verdict::Transient(failure) = blog.connector.publish(&job).await else { panic!() };
        assert_eq!(failure.code, "draft_vanished");
        blog.drafted(&mut job).await;
        assert_eq!(blog.count(&job), 1, "deleted for good, it can be made again");
    }
}

#[tokio::test]
async fn what_was_scheduled_or_made_private_on_the_site_is_not_called_published() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut job = blog.job("Held");
    let id = blog.drafted(&mut job).await;
    blog.sql(&format!(
        "update wp_posts set post_date = '2041-01-01', post_date_gmt = '2041-01-01' where ID = {id}"
    ));
    assert_eq!(rejected(blog.connector.publish(&job).await), "held_back");
    assert_eq!(blog.column(&id, "post_status"), "future");
    assert_eq!(blog.seen(&job).await, [(id.clone(), false)]);
    assert_eq!(rejected(blog.connector.publish(&job).await), "held_back", "nor the second time");
    assert!(matches!(blog.connector.remove(&job).await, Removal::Unknown(_)));
    blog.php(&format!("wp_update_post(['ID' => {id}, 'post_status' => 'private', 'post_date' => '2020-01-01', 'edit_date' => true]);"));
    assert_eq!(rejected(blog.connector.publish(&job).await), "held_back");
    assert_eq!(blog.column(&id, "post_status"), "private");
}

#[tokio::test]
async fn a_plugin_that_holds_back_what_is_to_be_public_is_told() {
    let blog = Blog::shared();
    let _alone = blog.alone().await;
    let mut job = blog.job("Reviewed");
    let id = blog.drafted(&mut job).await;
    let _plugin = Plugin::put(
        &blog,
        "add_filter('wp_insert_post_data', function ($data) {
             if ($data['post_status'] === 'publish') { $data['post_status'] = 'pending'; }
             return $data;
         });",
    );
    assert_eq!(rejected(blog.connector.publish(&job).await), "held_back");
    assert_eq!(blog.column(&id, "post_status"), "pending");
}

#[tokio::test]
async fn a_draft_that_a_person_has_worked_on_is_left_alone() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    for (role, user) in [("administrator", blog.administrator()), ("author", blog.new_user("author"))] {
        let mut job = blog.job_of(&user, "Worked on");
        job.content.content_html =
            "<p class='a'>One & two<br/></p>\n<img src='https://h.example/a.png'>".to_owned();
        job.content.summary = Some("In short: a < b".to_owned());
        for work in [
            "'post_status' => 'pending'",
            "'post_title' => 'A better title'",
            "'post_content' => $post->post_content . '<p>two hours of work</p>'",
            "'post_excerpt' => 'At length'",
            "'post_author' => 1 + (int) ($post->post_author == 1)",
        ] {
            job.draft_id = None;
            let id = blog.drafted(&mut job).await;
            blog.php(&format!("$post = get_post({id}); wp_update_post(wp_slash(['ID' => {id}, {work}]));"));
            let removal = blog.connector.remove(&job).await;
            assert!(matches!(removal, Removal::Unknown(_)), "{work} {removal:?}");
            assert_eq!(blog.sql(&format!("select count(*) from wp_posts where ID = {id}")), "1");
            blog.php(&format!("wp_delete_post({id}, true);"));
        }
        job.draft_id = None;
        let id = blog.drafted(&mut job).await;
        assert_eq!(blog.connector.remove(&job).await, Removal::Gone, "as it was made, by an {role}");
        assert_eq!(blog.column(&id, "post_status"), "");
    }
}

#[tokio::test]
async fn a_plugin_that_breaks_after_the_write_is_found_to_have_published() {
    let blog = Blog::shared();
    let _alone = blog.alone().await;
    let (mut after, mut before) = (blog.job("Broken after"), blog.job("Broken before"));
    blog.drafted(&mut after).await;
    blog.drafted(&mut before).await;
    let broken = |hook: &str| {
        Plugin::put(
            &blog,
            &format!(
                "add_action('{hook}', function () {{ if ($_SERVER['REQUEST_METHOD'] === 'POST') {{ throw new Error('broken'); }} }});"
            ),
        )
    };
    let plugin = broken("publish_post");
    let verdict = blog.connector.publish(&after).await;
    assert!(matches!(verdict, Verdict::Done(_)), "{verdict:?}");
    drop(plugin);
    let _plugin = broken("pre_post_update");
    let Verdict::Transient(failure) = blog.connector.publish(&before).await else { panic!() };
    assert_eq!(failure.code, "platform_error");
}

#[tokio::test]
async fn maintenance_is_a_passing_fault_and_proves_that_nothing_was_done() {
    let blog = Blog::shared();
    let _alone = blog.alone().await;
    let mut job = blog.job("Maintained");
    blog.drafted(&mut job).await;
    let file = blog.site().join(".maintenance");
    std::fs::write(&file, "<?php $upgrading = time();").unwrap();
    let looked = blog.find(&job).await;
    let drafted = blog.connector.draft(&blog.job("Never made")).await;
    let published = blog.connector.publish(&job).await;
    let login = blog.connector.check_login(&blog.access(&blog.administrator())).await;
    std::fs::remove_file(file).unwrap();
    assert!(matches!(looked, Sighting::CannotTell(_)), "{looked:?}");
    for verdict in [drafted, published] {
        let Verdict::Transient(failure) = verdict else { panic!("{verdict:?}") };
        assert_eq!(failure.code, "maintenance");
    }
    assert!(matches!(login, Login::CannotTell(_)), "{login:?}");
    assert!(matches!(blog.connector.publish(&job).await, Verdict::Done(_)));
}

#[tokio::test]
async fn a_database_that_stands_still_leaves_a_create_unknown_and_it_is_found_later() {
    let blog = Blog::shared();
    let _alone = blog.alone().await;
    let mut job = blog.job("Late");
    // When the request has come as far as the write.
    let database = blog.server.told["database_pids"][0].as_i64().unwrap();
    let plugin = Plugin::put(
        &blog,
        &format!(
            "add_filter('rest_pre_insert_post', function ($post) {{ posix_kill({database}, 19); return $post; }});"
        ),
    );
    job.until = clock().instant() + Duration::from_secs(5);
    let verdict = blog.connector.draft(&job).await;
    drop(plugin);
    blog.server.signal("database_pids", Signal::CONT);
    assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
    // The site carries it out all the same; a look is all that there is to wait by.
    let deadline = clock().instant() + ROOMY;
    job.until = deadline;
    while blog.seen(&job).await.is_empty() {
        assert!(clock().instant() < deadline, "the site has lost the request");
    }
    assert_eq!(blog.count(&job), 1);
}

#[tokio::test]
async fn a_database_that_is_gone_is_no_proof_of_absence() {
    let blog = Blog::shared();
    let _alone = blog.alone().await;
    let mut job = blog.job("Down");
    blog.drafted(&mut job).await;
    let drop_in = blog.site().join("wp-content/db.php");
    let nobody = "<?php $wpdb = new wpdb(DB_USER, DB_PASSWORD, DB_NAME, 'localhost:/nowhere');";
    std::fs::write(&drop_in, nobody).unwrap();
    let looked = blog.find(&job).await;
    let drafted = blog.connector.draft(&blog.job("Never made")).await;
    std::fs::remove_file(drop_in).unwrap();
    assert!(matches!(looked, Sighting::CannotTell(_)), "{looked:?}");
    // Nothing was asked for: the trash could not be looked into.
    assert!(matches!(drafted, Verdict::Transient(_)), "{drafted:?}");
    assert!(matches!(blog.connector.publish(&job).await, Verdict::Done(_)));
}

#[tokio::test]
async fn a_database_that_goes_away_at_the_write_leaves_a_create_unknown() {
    let blog = Blog::shared();
    let _alone = blog.alone().await;
    let job = blog.job("Half");
    // What core does when a query finds no connection.
    let plugin = Plugin::put(
        &blog,
        "add_filter('rest_pre_insert_post', function ($post) { require_once ABSPATH . WPINC . '/functions.php'; dead_db(); });",
    );
    let verdict = blog.connector.draft(&job).await;
    drop(plugin);
    assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
    assert_eq!(blog.find(&job).await, Sighting::absent());
}

#[tokio::test]
async fn nothing_is_begun_when_its_time_is_over() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut job = blog.job("Too late");
    let id = blog.drafted(&mut job).await;
    job.until = clock().instant();
    assert!(matches!(blog.find(&job).await, Sighting::CannotTell(_)));
    assert!(matches!(blog.connector.publish(&job).await, Verdict::Transient(_)));
    assert!(matches!(blog.connector.draft(&job).await, Verdict::Transient(_)));
    assert_eq!((blog.count(&job), blog.column(&id, "post_status").as_str()), (1, "draft"));
}
