//! The static site, served at `/site`.

use std::path::PathBuf;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use tower::ServiceExt as _;
use tower_http::services::{ServeDir, ServeFile};

use super::DEMO;
use crate::connector::static_site::CONTENT_SECURITY_POLICY;
use crate::http::{Kind, Problem};

/// The longest name in a site, in characters: a tenant's, a site's, or a page's with its ending.
const NAME_MAX: usize = 100;

pub(super) fn routes(root: PathBuf) -> Router {
    Router::new()
        .route("/site", get(Redirect::permanent("/site/")))
        .route("/site/", get(page))
        .route("/site/{*page}", get(page))
        .with_state(root)
        .layer(middleware::map_response(guard))
}

async fn page(State(root): State<PathBuf>, mut request: Request) -> Response {
    let path = request.uri().path().strip_prefix("/site").unwrap_or_default().to_owned();
    if path == "/" {
        let index = root.join(DEMO).join(DEMO).join("index.html");
        if !index.exists() {
            return "Nothing is published yet.\n".into_response();
        }
        // The demo site's index; its links are absolute.
        return served(ServeFile::new(index).oneshot(request).await);
    }
    // Files that are just being written begin with a dot; no name of ours is long, or needs to be encoded.
    let foreign = |part: &str| part.starts_with('.') || part.contains('%') || part.len() > NAME_MAX;
    if path.split('/').any(foreign) {
        return not_found();
    }
    let Ok(uri) = Uri::try_from(path) else { return not_found() };
    *request.uri_mut() = uri;
    served(ServeDir::new(root).oneshot(request).await)
}

fn served<E>(answer: Result<Response<tower_http::services::fs::ServeFileSystemResponseBody>, E>) -> Response {
    match answer {
        Ok(answer) if answer.status() != 404 => answer.map(Body::new),
        _ => not_found(),
    }
}

fn not_found() -> Response {
    Problem::new(Kind::NotFound, "there is no such page").into_response()
}

/// Scripts in an article never run, whatever they are disguised as.
async fn guard(mut response: Response) -> Response {
    let headers = response.headers_mut();
    // What the server of files cannot know: the pages' encoding, and that the only XML is a feed.
    let exact = match headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes) {
        Some(b"text/html") => Some("text/html; charset=utf-8"),
        Some(b"text/xml") => Some("application/atom+xml; charset=utf-8"),
        _ => None,
    };
    headers.extend(exact.map(|exact| (header::CONTENT_TYPE, HeaderValue::from_static(exact))));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
