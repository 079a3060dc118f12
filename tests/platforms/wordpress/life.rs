//! An article from its first look to its page.

use publish_ingest::connector::{Connector as _, Listing, Removal, Sighting, Verdict};

use super::blog::{Blog, Plugin};
use crate::server::clock;

#[tokio::test]
async fn an_article_is_made_found_published_and_found_again() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut job = blog.job("A < B & \"C\": Größe");
    job.content.summary = Some("One & <two>".to_owned());
    assert_eq!(blog.find(&job).await, Sighting::absent());
    assert!(!blog.connector.prepares(&job));
    let id = blog.drafted(&mut job).await;
    assert_eq!(blog.seen(&job).await, [(id.clone(), false)]);
    let verdict = blog.connector.publish(&job).await;
    let Verdict::Done(remote) = &verdict else { panic!("{verdict:?}") };
    let url = format!("{}/a-b-c-grosse-{}/", blog.base_url(), job.marker);
    assert_eq!((&remote.url, remote.remote_id.as_ref()), (&url, Some(&id)));
    assert_eq!(blog.find(&job).await, Sighting::published(remote.clone()));
    // Publishing it once more changes nothing.
    let before =
        blog.sql(&format!("select post_date, post_name, post_content from wp_posts where ID = {id}"));
    assert_eq!(blog.connector.publish(&job).await, verdict);
    assert_eq!(
        blog.sql(&format!("select post_date, post_name, post_content from wp_posts where ID = {id}")),
        before
    );
    assert_eq!(blog.count(&job), 1);
    let page = page(&remote.url).await;
    assert!(page.contains("A &lt; B &amp; "), "the title is text: {page}");
    assert!(page.contains("<p>One\ntwo &amp; three.</p>"), "a line break stays one: {page}");
    assert!(blog.column(&id, "post_excerpt").contains("One &amp; &lt;two&gt;"));
}

async fn page(url: &str) -> String {
    use publish_ingest::outbound::{Call, Limits, Method};
    let limits = Limits { deadline: super::blog::ROOMY, answer_bytes: 1 << 20 };
    let call = Call { method: Method::Get, url, headers: &[], body: Vec::new(), limits };
    String::from_utf8(crate::server::client().send(call).await.unwrap().head).unwrap()
}

#[tokio::test]
async fn to_publish_what_is_public_once_more_is_harmless() {
    // What two holders at once do: each asks for it without having seen that the other did.
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut job = blog.job("Twice");
    let id = blog.drafted(&mut job).await;
    let (one, other) = tokio::join!(blog.connector.publish(&job), blog.connector.publish(&job));
    assert_eq!(one, other);
    let row = format!("select post_date, post_name, post_content, post_status from wp_posts where ID = {id}");
    let before = blog.sql(&row);
    blog.php(&format!(
        "wp_set_current_user(1);
         $request = new WP_REST_Request('POST', '/wp/v2/posts/{id}');
         $request->set_param('status', 'publish');
         if (rest_do_request($request)->get_status() !== 200) {{ exit(1); }}"
    ));
    assert_eq!(blog.sql(&row), before);
    assert_eq!(blog.seen(&job).await, [(id, true)]);
    assert_eq!(blog.count(&job), 1);
}

#[tokio::test]
async fn titles_of_any_script_and_length_are_found_again() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    for title in ["你好，世界", "Ünïcödé ’quoted’ 😀", &"long title ".repeat(23), &"字".repeat(300)]
    {
        let mut job = blog.job(title.trim());
        let id = blog.drafted(&mut job).await;
        let slug = blog.column(&id, "post_name");
        assert!(slug.is_ascii() && slug.ends_with(&job.marker), "{slug}");
        assert!(matches!(blog.connector.publish(&job).await, Verdict::Done(_)), "{title}");
        job.draft_id = None;
        assert_eq!(blog.seen(&job).await, [(id, true)], "{title}");
    }
}

#[tokio::test]
async fn each_mark_alone_is_enough() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut job = blog.job("Marks");
    let id = blog.drafted(&mut job).await;
    job.draft_id = None;
    blog.sql(&format!("update wp_posts set post_name = 'a-nicer-name-{}' where ID = {id}", &job.marker[..8]));
    assert_eq!(blog.seen(&job).await, [(id.clone(), false)], "by its content");
    blog.sql(&format!(
        "update wp_posts set post_content = 'x', post_name = 'marks-{}' where ID = {id}",
        job.marker
    ));
    assert_eq!(blog.seen(&job).await, [(id.clone(), false)], "by its slug");
    blog.sql(&format!("update wp_posts set post_name = 'another' where ID = {id}"));
    assert_eq!(blog.find(&job).await, Sighting::absent());
    job.draft_id = Some(id.clone());
    assert!(matches!(blog.find(&job).await, Sighting::CannotTell(_)), "an id and a title prove nothing");
    let text = "<p>One\ntwo &amp; three.</p>";
    blog.sql(&format!("update wp_posts set post_content = '{text}' where ID = {id}"));
    assert_eq!(blog.seen(&job).await, [(id.clone(), false)], "by its id, its title and its text");
    blog.sql(&format!("update wp_posts set post_title = 'Of another' where ID = {id}"));
    assert!(matches!(blog.find(&job).await, Sighting::CannotTell(_)), "an id alone proves nothing");
}

#[tokio::test]
async fn a_site_that_rewrites_slugs_loses_no_article() {
    let blog = Blog::shared();
    let _alone = blog.alone().await;
    let _plugin = Plugin::put(
        &blog,
        "add_filter('wp_insert_post_data', function ($data) { $data['post_name'] = 'nice-' . uniqid(); return $data; });",
    );
    let mut job = blog.job("Rewritten");
    let id = blog.drafted(&mut job).await;
    assert!(!blog.column(&id, "post_name").contains(&job.marker), "the plugin works");
    job.draft_id = None;
    assert_eq!(blog.seen(&job).await, [(id.clone(), false)]);
    job.draft_id = Some(id.clone());
    assert!(matches!(blog.connector.publish(&job).await, Verdict::Done(_)));
    job.draft_id = None;
    assert_eq!(blog.seen(&job).await, [(id, true)]);
}

#[tokio::test]
async fn a_site_that_loses_both_marks_is_told_of_after_its_first_draft() {
    let blog = Blog::shared();
    let _alone = blog.alone().await;
    let loses = "add_filter('wp_insert_post_data', function ($data) {
        $data['post_name'] = 'nice-' . uniqid();
        $data['post_content'] = preg_replace('/<!--.*?-->/s', '', $data['post_content']);
        return $data;
    });";
    let notice = "add_filter('rest_pre_serve_request', function ($served, $result, $request) {
        if ($request->get_method() === 'POST') { echo '<br />Notice: x'; }
        return $served;
    }, 10, 3);";
    let forces = "add_filter('wp_insert_post_data', function ($data) {
        if ($data['post_type'] === 'post') { $data['post_status'] = 'publish'; }
        return $data;
    });";
    let posts = || blog.sql("select count(*) from wp_posts where post_type = 'post'").parse::<u32>().unwrap();
    for (title, code, public) in [
        ("Lost", loses.to_owned(), false),
        ("Lost without an answer", format!("{loses} {notice}"), false),
        ("Lost, public and without an answer", format!("{loses} {forces} {notice}"), true),
    ] {
        let _plugin = Plugin::put(&blog, &code);
        let mut job = blog.job(title);
        job.submitted_at = clock().now();
        let before = posts();
        let Verdict::Rejected(failure) = blog.connector.draft(&job).await else { panic!("{title}") };
        assert_eq!(failure.code, "marks_lost");
        // Named, and left: a post without a mark may be anybody's.
        assert_eq!(posts(), before + 1);
        let made = blog.sql(&format!("select ID, post_status from wp_posts where post_title = '{title}'"));
        let (id, status) = made.split_once('\t').unwrap();
        assert!(failure.message.contains(&format!("delete post {id},")), "{}", failure.message);
        assert_eq!(status == "publish", public, "{title}");
    }
    // Public at once, and the answer says which: it is not made again.
    let _plugin = Plugin::put(&blog, &format!("{loses} {forces}"));
    let verdict = blog.connector.draft(&blog.job("Lost and public")).await;
    assert!(matches!(verdict, Verdict::Done(_)), "{verdict:?}");
}

#[tokio::test]
async fn an_article_that_was_read_from_another_post_is_not_taken_for_it() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut original = blog.job("Original text");
    let id = blog.drafted(&mut original).await;
    let mut synced = blog.job("Synced text");
    synced.content.content_html =
        format!("{}<p>more</p>", blog.column(&id, "post_content").replace("\\n", "\n"));
    assert!(synced.content.content_html.contains(&original.marker));
    let copy = blog.drafted(&mut synced).await;
    assert!(matches!(blog.connector.publish(&synced).await, Verdict::Done(_)));
    assert_eq!(blog.seen(&original).await, [(id, false)]);
    assert_eq!((blog.count(&original), blog.count(&synced)), (1, 1), "no mark of the other is left");
    // As it was sent before marks of others were taken out.
    let both = format!(
        "<p>x</p><!-- publish-ingest:{} --><!-- publish-ingest:{} -->",
        original.marker, synced.marker
    );
    blog.sql(&format!("update wp_posts set post_content = '{both}' where ID = {copy}"));
    original.draft_id = None;
    assert_eq!(blog.seen(&original).await.len(), 1);
}

#[tokio::test]
async fn an_id_that_was_given_twice_is_the_newer_articles_although_the_titles_are_equal() {
    let blog = Blog::shared();
    let _alone = blog.alone().await;
    let (mut first, mut second) = (blog.job("Weekly news"), blog.job("Weekly news"));
    let id = blog.drafted(&mut first).await;
    // The site's database of the night before.
    blog.sql(&format!("delete from wp_posts where ID >= {id}; alter table wp_posts auto_increment = {id}"));
    second.content.content_html = "<p>Another issue</p>".to_owned();
    assert_eq!(blog.drafted(&mut second).await, id);
    assert!(matches!(blog.connector.publish(&second).await, Verdict::Done(_)));
    assert_eq!(blog.find(&first).await, Sighting::absent());
    assert!(matches!(blog.connector.publish(&first).await, Verdict::Transient(_)));
    assert!(matches!(blog.connector.remove(&first).await, Removal::Unknown(_)));
    assert_eq!(blog.column(&id, "post_status"), "publish");
}

#[tokio::test]
async fn of_two_creates_at_once_the_older_is_published_and_the_other_removed() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let (mut one, mut other) = (blog.job("At once"), blog.job("At once"));
    other.marker.clone_from(&one.marker);
    tokio::join!(blog.drafted(&mut one), blog.drafted(&mut other));
    let seen = blog.seen(&one).await;
    assert_eq!(seen.len(), 2);
    let ids = seen.iter().map(|(id, _)| id.parse::<u64>().unwrap()).collect::<Vec<_>>();
    assert!(ids[0] < ids[1]);
    one.draft_id = Some(seen[0].0.clone());
    assert!(matches!(blog.connector.publish(&one).await, Verdict::Done(_)));
    assert_eq!(blog.connector.remove(&one).await, Removal::Public);
    other.draft_id = Some(seen[1].0.clone());
    assert_eq!(blog.connector.remove(&other).await, Removal::Gone);
    assert_eq!(blog.connector.remove(&other).await, Removal::Gone, "and again");
    assert_eq!(blog.seen(&one).await, [(seen[0].0.clone(), true)]);
    assert_eq!(blog.count(&one), 1);
}

#[tokio::test]
async fn two_that_became_public_at_once_are_both_seen() {
    // The second gets a number at its slug's end.
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let (mut one, mut other) = (blog.job("Both"), blog.job("Both"));
    other.marker.clone_from(&one.marker);
    for job in [&mut one, &mut other] {
        let id = blog.drafted(job).await;
        blog.sql(&format!("update wp_posts set post_content = 'without a mark' where ID = {id}"));
        assert!(matches!(blog.connector.publish(job).await, Verdict::Done(_)));
    }
    one.draft_id = None;
    assert_eq!(blog.seen(&one).await.len(), 2);
}

#[tokio::test]
async fn a_copy_that_a_person_made_is_left_alone_and_a_quotation_is_no_mark() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut job = blog.job("Original");
    let id = blog.drafted(&mut job).await;
    let insert = |content: &str| {
        let code = format!(
            "echo wp_insert_post(wp_slash(['post_title' => 'A copy', 'post_status' => 'draft',
            'post_name' => uniqid('copy-'), 'post_content' => {content}]));"
        );
        blog.php(&code)
    };
    insert(&format!("'They publish with the mark {} in it.'", job.marker));
    let copy = insert(&format!("get_post({id})->post_content"));
    assert_eq!(blog.seen(&job).await, [(id, false), (copy.clone(), false)], "and not the quotation");
    job.draft_id = Some(copy.clone());
    assert!(matches!(blog.connector.remove(&job).await, Removal::Unknown(_)));
    assert_eq!(blog.column(&copy, "post_status"), "draft");
}

#[tokio::test]
async fn an_operator_sees_what_the_site_holds_with_our_marks() {
    let blog = Blog::shared();
    let _peace = blog.in_peace().await;
    let mut jobs = Vec::new();
    for at in 0..11 {
        let mut job = blog.job(&format!("Listed {at}"));
        blog.drafted(&mut job).await;
        jobs.push(job);
    }
    assert!(matches!(blog.connector.publish(&jobs[0]).await, Verdict::Done(_)));
    let access = blog.access(&blog.administrator());
    let (mut listed, mut next) = (Vec::new(), None);
    loop {
        let listing = blog.connector.list(&access, next).await;
        let Listing::Page { articles, next: more } = listing else { panic!("{listing:?}") };
        listed.extend(articles);
        next = more;
        if next.is_none() {
            break;
        }
    }
    for (at, job) in jobs.iter().enumerate() {
        let ours = listed.iter().filter(|one| one.marker.as_ref() == Some(&job.marker)).collect::<Vec<_>>();
        assert_eq!(ours.len(), 1, "{at}");
        assert_eq!((Some(&ours[0].id), ours[0].url.is_some()), (job.draft_id.as_ref(), at == 0));
    }
}
