//! The fields of accounts and groups in the `OpenAPI` document, with the limits that [`super::parse`] enforces.

use serde_json::json;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, SchemaType, Type};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::{
    ACCOUNT_ID_MAX, AccountInput, DAILY_LIMIT_MAX, DISPLAY_NAME_MAX, GROUP_ACCOUNTS_MAX, GroupInput,
    MAX_IN_FLIGHT_DEFAULT, MAX_IN_FLIGHT_MAX, MIN_INTERVAL_MAX_SECONDS, PLATFORM_MAX,
};

/// The body of `PUT /accounts/{platform}/{account_id}` in the `OpenAPI` document. It is read by [`AccountInput::parse`].
#[derive(Debug, Clone, Copy)]
pub struct AccountRequest;

/// The body of `PUT /groups/{group_code}` in the `OpenAPI` document. It is read by [`GroupInput::parse`].
#[derive(Debug, Clone, Copy)]
pub struct GroupRequest;

impl ToSchema for AccountRequest {}

impl PartialSchema for AccountRequest {
    fn schema() -> RefOr<Schema> {
        let mut object = ObjectBuilder::new()
            .description(Some(
                "An account as it is to be; what is not sent takes its default, but credentials are kept. Unknown \
                 fields are refused.",
            ))
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .examples([json!({"display_name": "My blog", "settings": {"site": "blog"}})]);
        for name in AccountInput::FIELDS {
            object = object.property(name, account_field(name));
        }
        object.into()
    }
}

fn account_field(name: &str) -> Schema {
    let (kind, description) = match name {
        "display_name" => (Type::String, "For people; at most 200 characters. Default: the account_id."),
        "settings" => {
            (Type::Object, "As the platform defines them; see GET /platforms. At most 16 KiB of JSON.")
        }
        "credentials" => (
            Type::Object,
            "What logs in, as the platform defines it; see GET /platforms. Never read back; kept when not sent. Sent to \
             an account whose login has expired, they renew it. At most 16 KiB of JSON.",
        ),
        "min_interval_seconds" => (Type::Integer, "The least time between two starts."),
        "max_in_flight" => (Type::Integer, "How many publications it may have in hand at once."),
        "daily_limit" => (Type::Integer, "The most publications a day, in its time zone. Default: none."),
        "time_zone" => (Type::String, "The IANA name of the zone in which its days begin. Default: UTC."),
        _ => (Type::Boolean, "Whether what waits for the login goes on when it is renewed."),
    };
    let field = ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([kind, Type::Null]))
        .description(Some(description));
    let field = match name {
        "display_name" => field.max_length(Some(DISPLAY_NAME_MAX)),
        "settings" | "credentials" => field.additional_properties(Some(AdditionalProperties::FreeForm(true))),
        "min_interval_seconds" => {
            field.minimum(Some(0)).maximum(Some(MIN_INTERVAL_MAX_SECONDS)).default(Some(json!(0)))
        }
        "max_in_flight" => field
            .minimum(Some(1))
            .maximum(Some(MAX_IN_FLIGHT_MAX))
            .default(Some(json!(MAX_IN_FLIGHT_DEFAULT))),
        "daily_limit" => field.minimum(Some(1)).maximum(Some(DAILY_LIMIT_MAX)),
        "resume" => field.default(Some(json!(true))),
        _ => field.examples([json!("Asia/Shanghai")]),
    };
    field.into()
}

impl ToSchema for GroupRequest {}

impl PartialSchema for GroupRequest {
    fn schema() -> RefOr<Schema> {
        let name = |pattern: &str, max| {
            ObjectBuilder::new()
                .schema_type(Type::String)
                .pattern(Some(pattern))
                .min_length(Some(1))
                .max_length(Some(max))
        };
        let account = ObjectBuilder::new()
            .property("platform", name("^[a-z0-9_]{1,32}$", PLATFORM_MAX))
            .property("account_id", name("^[A-Za-z0-9._@-]{1,128}$", ACCOUNT_ID_MAX))
            .required("platform")
            .required("account_id")
            .additional_properties(Some(AdditionalProperties::FreeForm(false)));
        let [title, accounts] = GroupInput::FIELDS;
        ObjectBuilder::new()
            .description(Some("A group as it is to be. Unknown fields are refused."))
            .property(
                title,
                ObjectBuilder::new()
                    .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
                    .max_length(Some(DISPLAY_NAME_MAX))
                    .description(Some("For people; at most 200 characters. Default: the group_code.")),
            )
            .property(
                accounts,
                ArrayBuilder::new()
                    .items(account)
                    .max_items(Some(GROUP_ACCOUNTS_MAX))
                    .description(Some("In order, none twice. Articles accepted before keep their accounts.")),
            )
            .required(accounts)
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .examples([
                json!({"title": "Blogs", "accounts": [{"platform": "static_site", "account_id": "blog"}]}),
            ])
            .into()
    }
}
