//! Who may do what, and what a login says that works no more.

use publish_ingest::connector::{Connector as _, Login, Removal, Sighting, Verdict};
use serde_json::json;

use super::blog::{Blog, User, rejected};

/// Every request of a run in that name: each must say that the login is expired.
async fn assert_expired(blog: &Blog, user: &User) {
    let connector = &blog.connector;
    assert!(matches!(connector.check_login(&blog.access(user)).await, Login::Expired(_)));
    let mut job = blog.job_of(user, "Expired");
    job.content.tags = vec!["tag".to_owned()];
    let sighting = blog.find(&job).await;
    assert!(matches!(sighting, Sighting::LoginExpired(_)), "{sighting:?}");
    assert!(matches!(connector.prepare(&job).await, Err(Verdict::LoginExpired(_))));
    assert!(matches!(connector.draft(&job).await, Verdict::LoginExpired(_)));
    let mut theirs = blog.job("Theirs");
    let id = blog.drafted(&mut theirs).await;
    job.draft_id = Some(id.clone());
    let verdict = connector.publish(&job).await;
    assert!(matches!(verdict, Verdict::LoginExpired(_)), "{verdict:?}");
    assert!(matches!(connector.remove(&job).await, Removal::Unknown(_)));
    assert_eq!(blog.column(&id, "post_status"), "draft");
    assert_eq!(blog.count(&job), 0);
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_user_are_expired_logins() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let User(name, _) = blog.administrator();
    assert_expired(&blog, &User(name, "wrong wrong wrong wrong".to_owned())).await;
    assert_expired(&blog, &User("nobody".to_owned(), "wrong".to_owned())).await;
}

#[tokio::test]
async fn a_revoked_password_is_an_expired_login() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let user = blog.new_user("author");
    assert_eq!(blog.connector.check_login(&blog.access(&user)).await, Login::Works);
    let User(name, _) = &user;
    let code = format!(
        "WP_Application_Passwords::delete_all_application_passwords(get_user_by('login', '{name}')->ID);"
    );
    blog.php(&code);
    assert_expired(&blog, &user).await;
}

#[tokio::test]
async fn the_roles_that_can_publish_are_fit_and_a_contributor_is_not() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    for user in [blog.administrator(), blog.user("editor"), blog.new_user("author")] {
        assert_eq!(blog.connector.check_login(&blog.access(&user)).await, Login::Works);
    }
    for user in [blog.user("contributor"), blog.new_user("subscriber")] {
        let login = blog.connector.check_login(&blog.access(&user)).await;
        let Login::Unfit(failure) = login else { panic!("{login:?}") };
        assert!(failure.message.contains("publish_posts"), "{failure:?}");
    }
    let mut access = blog.access(&blog.administrator());
    access.settings = json!({"base_url": format!("{}/no-such-place", blog.base_url())});
    let login = blog.connector.check_login(&access).await;
    let Login::Unfit(failure) = login else { panic!("{login:?}") };
    assert_eq!(failure.code, "no_rest_api");
}

#[tokio::test]
async fn a_contributor_s_article_stays_a_draft_and_is_no_expired_login() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut job = blog.job_of(&blog.user("contributor"), "Only drafted");
    assert_eq!(blog.find(&job).await, Sighting::absent());
    let id = blog.drafted(&mut job).await;
    assert_eq!(rejected(blog.connector.publish(&job).await), "not_permitted");
    assert_eq!(blog.seen(&job).await, [(id, false)]);
    assert_eq!(blog.connector.remove(&job).await, Removal::Gone);
    assert_eq!(blog.count(&job), 0);
}

#[tokio::test]
async fn an_author_s_html_is_cleaned_and_keeps_both_marks() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    for role in ["author", "editor"] {
        let mut job = blog.job_of(&blog.new_user(role), "Cleaned & <safe>");
        job.content.content_html = "<p>x</p><script>alert(1)</script><!-- mine -->".to_owned();
        let id = blog.drafted(&mut job).await;
        let cleaned = !blog.column(&id, "post_content").contains("<script>");
        assert_eq!(cleaned, role == "author", "an editor of a single site may write scripts");
        job.draft_id = None;
        for mark in ["post_name = 'x'", "post_content = 'x'"] {
            let before = blog.sql(&format!("select post_name from wp_posts where ID = {id}"));
            blog.sql(&format!("update wp_posts set {mark} where ID = {id}"));
            assert_eq!(blog.seen(&job).await, [(id.clone(), false)], "{role} {mark}");
            blog.sql(&format!("update wp_posts set post_name = '{before}' where ID = {id}"));
        }
        job.draft_id = Some(id);
        assert!(matches!(blog.connector.publish(&job).await, Verdict::Done(_)), "{role}");
    }
}

#[tokio::test]
async fn what_another_user_made_is_not_taken_for_absent() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut job = blog.job_of(&blog.new_user("author"), "Of one author");
    let id = blog.drafted(&mut job).await;
    let mut other = blog.job_of(&blog.new_user("author"), "Of one author");
    other.marker.clone_from(&job.marker);
    let sighting = blog.find(&other).await;
    assert!(matches!(sighting, Sighting::CannotTell(_)), "{sighting:?}");
    let mut editors = blog.job_of(&blog.user("editor"), "Of one author");
    editors.marker.clone_from(&job.marker);
    assert_eq!(blog.seen(&editors).await, [(id, false)]);
}
