//! What the `OpenAPI` document says of every answer: limits, and the headers that tell of them.

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::Type;
use utoipa::openapi::{Header, Object, OpenApi, RefOr};

use super::problem::errors;

const RETRY_AFTER: &str = "In how many seconds the same request may succeed.";

const RATE_LIMIT_POLICY: &str = "The limits of the tenant, as draft-ietf-httpapi-ratelimit-headers-10 writes them: `requests` and `articles` \
                                 (a day). Absent where there are none.";

const RATE_LIMIT: &str =
    "How they stand: `r` is what is left, `t` the seconds until all of it is there again.";

/// Completes the answers of every call.
pub(super) fn complete(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let all = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        all.into_iter().flatten().for_each(complete_call);
    }
}

fn complete_call(call: &mut Operation) {
    let answers = &mut call.responses.responses;
    for (status, answer) in errors(&[(431, "`head_too_large`: target and headers")]) {
        answers.entry(status).or_insert(answer);
    }
    // Who needs no key is no tenant.
    let of_tenant = answers.contains_key("401");
    for (status, answer) in answers {
        let RefOr::T(answer) = answer else { continue };
        if matches!(&**status, "429" | "503") {
            answer.headers.insert("Retry-After".to_owned(), header(Type::Integer, RETRY_AFTER));
        }
        if of_tenant && !matches!(&**status, "400" | "401" | "408" | "431" | "503") {
            answer.headers.insert("RateLimit-Policy".to_owned(), header(Type::String, RATE_LIMIT_POLICY));
            answer.headers.insert("RateLimit".to_owned(), header(Type::String, RATE_LIMIT));
        }
    }
}

fn header(kind: Type, description: &str) -> RefOr<Header> {
    HeaderBuilder::new().schema(Some(Object::with_type(kind))).description(Some(description)).build().into()
}
