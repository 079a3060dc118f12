//! Tags, categories and images of an article.

use publish_ingest::connector::{Connector as _, Verdict};
use serde_json::json;

use super::blog::{Blog, member, rejected};
use crate::server::marker;

/// A PNG of one pixel, as a `data:` URL.
const PIXEL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

#[tokio::test]
async fn tags_and_categories_are_made_once_and_used_by_name() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let own = marker();
    let names = [format!("R & D {own}"), format!("C++ {own}"), format!("C# {own}"), format!("a < b {own}")];
    let mut job = blog.job("Terms");
    job.content.tags = names.to_vec();
    job.settings["categories"] = json!([format!("News & views {own}")]);
    assert!(blog.connector.prepares(&job));
    let ready = blog.connector.prepare(&job).await.unwrap();
    let again = blog.connector.prepare(&job).await.unwrap();
    assert_eq!(ready, again);
    assert_eq!(blog.sql(&format!("select count(*) from wp_terms where name like '%{own}'")), "5");
    job.prepared = ready.ready;
    let id = blog.drafted(&mut job).await;
    let used = blog.sql(&format!(
        "select group_concat(name order by name separator '|') from wp_terms join wp_term_taxonomy using (term_id)
         join wp_term_relationships using (term_taxonomy_id) where object_id = {id}"
    ));
    let expected = [&names[3], &names[2], &names[1], &format!("News & views {own}"), &names[0]];
    let expected = expected.map(|name| name.replace('&', "&amp;").replace('<', "&lt;")).join("|");
    assert_eq!(used, expected);
}

#[tokio::test]
async fn who_may_not_make_categories_uses_those_that_are_there() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let (author, own) = (blog.new_user("author"), marker());
    let mut job = blog.job_of(&author, "Categories");
    job.settings["categories"] = json!([format!("R & D {own}")]);
    assert_eq!(rejected(blog.connector.prepare(&job).await.unwrap_err()), "not_permitted");
    let mut administrators = blog.job("Categories");
    administrators.settings = job.settings.clone();
    let made = blog.connector.prepare(&administrators).await.unwrap();
    let used = blog.connector.prepare(&job).await.unwrap();
    assert_eq!(member(&used, "categories"), member(&made, "categories"));
}

#[tokio::test]
async fn a_cover_is_uploaded_once_for_all_articles_that_have_it() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    // Of the site's own files.
    let cover = format!("{}/wp-includes/images/wlw/wp-watermark.png", blog.base_url());
    let mut jobs = [blog.job("Covered"), blog.job("Covered, too")];
    for job in &mut jobs {
        job.content.cover_url = Some(cover.clone());
    }
    let (one, other) = tokio::join!(blog.connector.prepare(&jobs[0]), blog.connector.prepare(&jobs[1]));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(member(&one, "cover").is_u64());
    assert_eq!(member(&one, "cover"), member(&other, "cover"));
    assert_eq!(blog.connector.prepare(&jobs[0]).await.unwrap(), one, "and after a lost answer it is found");
    let title = blog.sql(&format!("select post_title from wp_posts where ID = {}", member(&one, "cover")));
    assert!(title.starts_with("pi-"), "{title}");
    assert_eq!(blog.sql(&format!("select count(*) from wp_posts where post_title = '{title}'")), "1");
    jobs[0].prepared = one.ready.clone();
    let id = blog.drafted(&mut jobs[0]).await;
    let thumbnail = blog.sql(&format!(
        "select meta_value from wp_postmeta where post_id = {id} and meta_key = '_thumbnail_id'"
    ));
    assert_eq!(thumbnail, member(&one, "cover").to_string());
}

#[tokio::test]
async fn images_of_the_text_stay_where_they_are_unless_the_account_says_otherwise() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut job = blog.job("Pictures");
    job.content.content_html = format!("<p><img src=\"{PIXEL}\" alt=\"a pixel\"></p>");
    assert!(!blog.connector.prepares(&job));
    job.settings["images"] = json!("upload");
    job.prepared = blog.connector.prepare(&job).await.unwrap().ready;
    let id = blog.drafted(&mut job).await;
    let content = blog.column(&id, "post_content");
    assert!(content.contains("/wp-content/uploads/") && !content.contains("data:"), "{content}");
    assert!(matches!(blog.connector.publish(&job).await, Verdict::Done(_)));
}

#[tokio::test]
async fn an_image_that_is_not_taken_fails_before_anything_is_made() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut job = blog.job("Not taken");
    // WordPress 6.1 knows no AVIF.
    let avif = "data:image/avif;base64,AAAAIGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZk1BMUI=";
    job.content.content_html = format!("<p>x</p><img src=\"{avif}\">");
    job.settings["images"] = json!("upload");
    assert_eq!(rejected(blog.connector.prepare(&job).await.unwrap_err()), "image_refused");
    job.settings["broken_images"] = json!("omit");
    let prepared = blog.connector.prepare(&job).await.unwrap();
    assert_eq!(prepared.warnings.iter().map(|why| &*why.code).collect::<Vec<_>>(), ["image_omitted"]);
    job.prepared = prepared.ready;
    let id = blog.drafted(&mut job).await;
    assert!(!blog.column(&id, "post_content").contains("<img"));
    let mut contributors = blog.job_of(&blog.user("contributor"), "Not allowed");
    contributors.content.content_html = format!("<img src=\"{PIXEL}\"><p>{}</p>", marker());
    contributors.content.cover_url = Some(format!("{}/wp-includes/images/rss.png", blog.base_url()));
    assert_eq!(rejected(blog.connector.prepare(&contributors).await.unwrap_err()), "not_permitted");
}
