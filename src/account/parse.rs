//! Reading accounts and groups as callers send them.

use std::collections::HashSet;
use std::str::FromStr as _;

use chrono_tz::Tz;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{
    AccountInput, AccountKey, BadName, Credentials, DAILY_LIMIT_MAX, DISPLAY_NAME_MAX, GROUP_ACCOUNTS_MAX,
    GroupCode, GroupInput, MAX_IN_FLIGHT_DEFAULT, MAX_IN_FLIGHT_MAX, MIN_INTERVAL_MAX_SECONDS,
    SETTINGS_MAX_BYTES, bad_account_id, bad_platform,
};
use crate::fields::{FieldError, Fields, Invalid};
use crate::json::InvalidJson;

impl AccountInput {
    /// The fields that a body may have.
    pub(super) const FIELDS: [&str; 8] = [
        "display_name",
        "settings",
        "credentials",
        "min_interval_seconds",
        "max_in_flight",
        "daily_limit",
        "time_zone",
        "resume",
    ];

    /// Reads the body of `PUT /accounts/{platform}/{account_id}`. A field that is null counts as not sent.
    ///
    /// `check` is what the platform says of settings and credentials, where both could be read.
    pub fn parse(
        body: &[u8],
        key: &AccountKey,
        check: impl FnOnce(&Value, Option<&Credentials>) -> Vec<FieldError>,
    ) -> Result<Self, Invalid> {
        let mut fields = Fields::of_body(body, &Self::FIELDS)?;
        let display_name = fields.text("display_name", Some(DISPLAY_NAME_MAX), false)?;
        let told = fields.errors().len();
        let settings = fields.object("settings", SETTINGS_MAX_BYTES)?;
        let settings = settings.unwrap_or_else(|| Value::Object(Map::new()));
        let credentials = fields.object("credentials", SETTINGS_MAX_BYTES)?.map(Credentials::new);
        let readable = fields.errors().len() == told;
        let min_interval_seconds = fields.integer("min_interval_seconds", 0, MIN_INTERVAL_MAX_SECONDS);
        let max_in_flight = fields.integer("max_in_flight", 1, MAX_IN_FLIGHT_MAX);
        let daily_limit = fields.integer("daily_limit", 1, DAILY_LIMIT_MAX);
        let time_zone = time_zone(&mut fields)?;
        let resume = fields.boolean("resume");
        if readable {
            fields.extend(check(&settings, credentials.as_ref()));
        }
        if !fields.errors().is_empty() {
            return Err(Invalid::Fields(fields.into_errors()));
        }
        Ok(Self {
            display_name: display_name.unwrap_or_else(|| key.account_id().to_owned()),
            settings,
            credentials,
            min_interval_seconds: min_interval_seconds.unwrap_or(0),
            max_in_flight: max_in_flight.unwrap_or(MAX_IN_FLIGHT_DEFAULT),
            daily_limit,
            time_zone: time_zone.unwrap_or(Tz::UTC).name(),
            resume: resume.unwrap_or(true),
        })
    }
}

fn time_zone(fields: &mut Fields<'_>) -> Result<Option<Tz>, InvalidJson> {
    let Some(name) = fields.string("time_zone")? else { return Ok(None) };
    let zone = Tz::from_str(&name).ok();
    if zone.is_none() {
        fields.refuse("time_zone", "not_allowed", "send the IANA name of a time zone, such as Asia/Shanghai");
    }
    Ok(zone)
}

impl GroupInput {
    /// The fields that a body may have.
    pub(super) const FIELDS: [&str; 2] = ["title", "accounts"];

    /// Reads the body of `PUT /groups/{group_code}`. A field that is null counts as not sent.
    pub fn parse(body: &[u8], code: &GroupCode) -> Result<Self, Invalid> {
        let mut fields = Fields::of_body(body, &Self::FIELDS)?;
        let title = fields.text("title", Some(DISPLAY_NAME_MAX), false)?;
        fields.required("accounts");
        let accounts = AccountKey::list(&mut fields, GROUP_ACCOUNTS_MAX)?;
        if !fields.errors().is_empty() {
            return Err(Invalid::Fields(fields.into_errors()));
        }
        Ok(Self { title: title.unwrap_or_else(|| code.as_str().to_owned()), accounts })
    }
}

impl AccountKey {
    /// Reads the list `accounts` of a body: in order, none twice, and at most `most`.
    pub fn list(fields: &mut Fields<'_>, most: usize) -> Result<Vec<Self>, InvalidJson> {
        let Some(raw) = fields.get("accounts") else { return Ok(Vec::new()) };
        let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(raw.get()) else {
            fields.refuse("accounts", "wrong_type", "send a list of {\"platform\": …, \"account_id\": …}");
            return Ok(Vec::new());
        };
        if items.len() > most {
            fields.refuse("accounts", "too_long", format!("has more than {most} accounts"));
            return Ok(Vec::new());
        }
        let mut accounts = Vec::with_capacity(items.len());
        let mut seen = HashSet::new();
        for (at, raw) in items.into_iter().enumerate() {
            let pointer = format!("accounts/{at}");
            let mut item = Fields::within(format!("/{pointer}"), raw, &["platform", "account_id"])?;
            if raw.get().starts_with('{') {
                item.required("platform");
                item.required("account_id");
            }
            let account = Self::of_fields(&mut item)?;
            fields.extend(item.into_errors());
            let Some(account) = account else { continue };
            if seen.insert(account.clone()) {
                accounts.push(account);
            } else {
                fields.refuse(pointer, "not_allowed", format!("{account} stands in this list before"));
            }
        }
        Ok(accounts)
    }

    /// Reads `platform` and `account_id`; none where one is not sent, or breaks its rule, which is then told.
    pub fn of_fields(fields: &mut Fields<'_>) -> Result<Option<Self>, InvalidJson> {
        let platform = name(fields, "platform", bad_platform)?;
        let account_id = name(fields, "account_id", bad_account_id)?;
        Ok(platform.zip(account_id).map(|(platform, account_id)| Self { platform, account_id }))
    }
}

fn name(
    fields: &mut Fields<'_>,
    field: &str,
    bad: fn(&str) -> Option<BadName>,
) -> Result<Option<String>, InvalidJson> {
    let Some(text) = fields.string(field)? else { return Ok(None) };
    if let Some(bad) = bad(&text) {
        fields.refuse(field, "bad_format", bad.to_string());
        return Ok(None);
    }
    Ok(Some(text))
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
