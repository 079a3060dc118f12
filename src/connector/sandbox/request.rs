//! A request to the sandbox: taken in, done or not as the account's rules say, and answered, or not.

use std::time::Duration;

use serde_json::{Value, json};

use super::behaviour::{Befalls, Fault, Kind, Settings};
use super::{Sandbox, account};
use crate::account::Credentials;
use crate::connector::secrets::Secrets;
use crate::connector::{Access, Failure, Job, Pause, Sighting, Trace, Verdict};
use crate::store::{SandboxAbout, SandboxDone, SandboxNote, SandboxPlace, SandboxStanding, StoreError};

/// Why nothing can be said, where its tables cannot be reached.
pub(super) const UNREACHED: &str = "the sandbox could not be reached";

/// The code and the sentence for an account whose login has expired.
const LOGGED_OUT: (&str, &str) =
    ("logged_out", "the sandbox does not let this account in: put credentials, new ones or the same");

const ANSWER_LOST: &str = "the connection broke off before the answer came";

/// A request that the platform has taken in, and does.
pub(super) struct Call<'a> {
    pub(super) place: SandboxPlace<'a>,
    number: i64,
    befalls: Option<Befalls>,
    trace: Option<(&'a Trace, &'a Credentials)>,
}

/// Why a request came to nothing.
pub(super) enum Refusal {
    /// The account is not let in.
    LoggedOut(Failure),
    /// It is to be left alone.
    Pause(Pause),
    /// It is not taken.
    Rejected(Failure),
    /// Whoever asked cannot know whether it was done.
    Unknown(String),
}

impl Call<'_> {
    /// How much later than asked it is done.
    pub(super) fn delay(&self) -> Duration {
        self.lasts(Fault::Late)
    }

    fn fault(&self) -> Option<Fault> {
        self.befalls.map(|befalls| befalls.fault)
    }

    fn lasts(&self, fault: Fault) -> Duration {
        self.befalls.filter(|one| one.fault == fault).map_or(Duration::ZERO, |one| one.lasts)
    }
}

/// The article of a job.
pub(super) fn about(job: &Job) -> SandboxAbout<'_> {
    SandboxAbout { marker: &job.marker, external_id: &job.external_id, request_id: &job.request_id }
}

impl Sandbox {
    /// Has the platform take in a request about an article; an error is what befalls it.
    pub(super) async fn ask<'a>(&self, job: &'a Job, kind: Kind) -> Result<Call<'a>, Refusal> {
        let Ok(settings) = account::read(&job.settings) else {
            let message = "the account's settings are not what the sandbox takes: put the account again";
            return Err(Refusal::Rejected(Failure::new("bad_settings", message)));
        };
        let place = SandboxPlace { tenant_id: job.tenant_id, account_id: &job.account_id };
        let trace = Some((&job.trace, &job.credentials));
        self.take_in(place, kind, Some(about(job)), &settings, trace).await
    }

    /// Has the platform take in a request about an account.
    pub(super) async fn ask_about<'a>(&self, access: &'a Access, kind: Kind) -> Result<Call<'a>, Refusal> {
        let settings = account::read(&access.settings).unwrap_or_default();
        let place = SandboxPlace { tenant_id: access.tenant_id, account_id: &access.account_id };
        self.take_in(place, kind, None, &settings, None).await
    }

    async fn take_in<'a>(
        &self,
        place: SandboxPlace<'a>,
        kind: Kind,
        about: Option<SandboxAbout<'a>>,
        settings: &Settings,
        trace: Option<(&'a Trace, &'a Credentials)>,
    ) -> Result<Call<'a>, Refusal> {
        let decide = |standing: &SandboxStanding| {
            let external_id = about.map_or("", |about| about.external_id);
            let befalls = settings.befalls(kind, external_id, standing);
            let note = SandboxNote {
                behaviour: befalls.map(|befalls| befalls.fault.as_str()),
                nth: Some(kind.nth(standing)).filter(|nth| *nth > 0),
                logs_out: befalls.is_some_and(|befalls| befalls.fault == Fault::LoginExpired),
            };
            (note, befalls)
        };
        let (number, befalls) = self.store.sandbox_request(place, kind.as_str(), about, decide).await?;
        let call = Call { place, number, befalls, trace };
        let takes = settings.latency + call.lasts(Fault::Slow);
        // Whoever gives up meanwhile hangs up, and the platform leaves it at that.
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        self.refuse(call, kind).await
    }

    /// What befalls a request that is not done.
    async fn refuse<'a>(&self, call: Call<'a>, kind: Kind) -> Result<Call<'a>, Refusal> {
        let (status, code, message) = match call.fault() {
            Some(Fault::LoginExpired) => (401, LOGGED_OUT.0, LOGGED_OUT.1),
            Some(Fault::RateLimit) => (429, "too_many_requests", "the sandbox asks for a pause"),
            Some(Fault::Reject) => {
                (422, "sandbox_rejected", "the sandbox rejects this article, as it is set to")
            }
            Some(Fault::Error) => (503, "unavailable", "the sandbox answered 503"),
            Some(Fault::Unsearchable) if kind == Kind::Find => {
                (503, "search_unavailable", "the search of the sandbox answered 503")
            }
            // It was found, or not, and nobody hears of it.
            Some(Fault::LoseAnswer) if kind == Kind::Find => {
                self.store.sandbox_answer(call.place, call.number, SandboxDone::default()).await?;
                return Err(Refusal::Unknown(ANSWER_LOST.to_owned()));
            }
            _ => return Ok(call),
        };
        self.answer(&call, status, &json!({"error": code}), SandboxDone::default()).await?;
        let failure = Failure::new(code, message);
        Err(match status {
            401 => Refusal::LoggedOut(failure),
            429 => Refusal::Pause(Pause { failure, wait: Some(call.lasts(Fault::RateLimit)) }),
            422 => Refusal::Rejected(failure),
            _ => Refusal::Unknown(failure.message),
        })
    }

    /// Answers a request, and notes what it came to.
    pub(super) async fn answer(
        &self,
        call: &Call<'_>,
        http_status: u16,
        body: &Value,
        done: SandboxDone,
    ) -> Result<(), StoreError> {
        let done = SandboxDone { http_status: Some(http_status), ..done };
        self.store.sandbox_answer(call.place, call.number, done).await?;
        if let Some((trace, credentials)) = call.trace {
            trace.note(http_status, body.to_string().as_bytes(), &Secrets::of(credentials));
        }
        Ok(())
    }

    /// Answers what was done to an article as it should be, or as it befalls.
    pub(super) async fn tell(
        &self,
        call: &Call<'_>,
        (http_status, effect, article_id): (u16, &'static str, i64),
        verdict: Verdict,
    ) -> Result<Verdict, Refusal> {
        let done = SandboxDone { http_status: None, effect: Some(effect), article_id: Some(article_id) };
        match call.fault() {
            Some(Fault::LoseAnswer | Fault::Late | Fault::Unsearchable) => {
                self.store.sandbox_answer(call.place, call.number, done).await?;
                Err(Refusal::Unknown(ANSWER_LOST.to_owned()))
            }
            Some(Fault::ErrorAfterAccepting) => {
                self.answer(call, 500, &json!({"error": "internal"}), done).await?;
                Err(Refusal::Unknown("the sandbox answered 500".to_owned()))
            }
            _ => {
                self.answer(call, http_status, &json!({"id": article_id}), done).await?;
                Ok(verdict)
            }
        }
    }
}

impl Refusal {
    /// The account is not let in.
    pub(super) fn logged_out() -> Self {
        Self::LoggedOut(Failure::new(LOGGED_OUT.0, LOGGED_OUT.1))
    }

    /// In a sentence.
    pub(super) fn told(self) -> String {
        match self {
            Self::LoggedOut(failure) | Self::Rejected(failure) => failure.message,
            Self::Pause(pause) => pause.failure.message,
            Self::Unknown(why) => why,
        }
    }
}

/// The operator hears why; the account's owner, only that the sandbox could not be reached.
impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "the tables of the sandbox cannot be reached");
        Self::Unknown(UNREACHED.to_owned())
    }
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::LoggedOut(failure) => Self::LoginExpired(failure),
            Refusal::Pause(pause) => Self::RateLimited(pause),
            Refusal::Rejected(failure) => Self::Rejected(failure),
            Refusal::Unknown(why) => Self::Unknown(why),
        }
    }
}

impl From<Refusal> for Sighting {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::LoggedOut(failure) => Self::LoginExpired(failure),
            Refusal::Pause(pause) => Self::RateLimited(pause),
            other => Self::CannotTell(other.told()),
        }
    }
}
