//! What a bridge's report on a publication does. Pure.

use uuid::Uuid;

use super::run::Outcome;
use super::work::end;
use crate::connector::Remote;
use crate::connector::http_bridge::{Report, Reported};
use crate::store::{Published, ReportDoes, Standing};
use crate::task::state::Status;

/// What a report does to a publication of that fence that stands so.
///
/// A success is taken whenever it tells of the present round: it is a fact, and the only way out of an unknown outcome. All
/// else counts only while somebody waits for it.
#[must_use]
pub fn decide(reported: Reported, tenant_id: Uuid, standing: Standing, held: (Uuid, i32)) -> ReportDoes {
    let Standing { status, round, outcome_unknown, sent, held: being_sent } = standing;
    if reported.round != round {
        return ReportDoes::Nothing(format!(
            "the publication is in round {round}, not in round {}",
            reported.round
        ));
    }
    let outcome = match (status, reported.report) {
        (Status::Running, Report::Success(remote)) => {
            Outcome::Success { remote, found: false, strays: false }
        }
        // It may tell of an earlier try, while this one publishes.
        (Status::Running, Report::Failed(_) | Report::LoginExpired(_)) if being_sent => {
            return ReportDoes::NotNow;
        }
        (Status::Running, Report::Failed(failure)) => {
            Outcome::Failed { failure, retryable: true, reason: "reported_failed" }
        }
        (Status::Running, Report::LoginExpired(failure)) => {
            Outcome::LoginExpired { failure, in_doubt: false }
        }
        (Status::Submitted, Report::Success(remote)) if sent => {
            return confirms(remote);
        }
        (Status::Failed, Report::Success(remote)) if outcome_unknown => {
            return confirms(remote);
        }
        (status, _) => return ReportDoes::Nothing(format!("the publication is in the state {status}")),
    };
    ReportDoes::Ends(Box::new(end(tenant_id, held, outcome, Some("reported by a call".to_owned()))))
}

fn confirms(remote: Remote) -> ReportDoes {
    let (url, remote_id) = (remote.url, remote.remote_id);
    ReportDoes::Confirms(Published { url, remote_id, reason: "reported_published" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::Failure;

    fn does(standing: Standing, round: i32, report: Report) -> &'static str {
        match decide(Reported { round, report }, Uuid::nil(), standing, (Uuid::nil(), 1)) {
            ReportDoes::Ends(end) => end.to.as_str(),
            ReportDoes::Confirms(_) => "confirms",
            ReportDoes::Nothing(_) => "nothing",
            ReportDoes::NotNow => "not now",
        }
    }

    #[test]
    fn a_report_counts_in_its_round_and_while_it_is_waited_for() {
        let remote = Remote { url: "https://h/a".into(), remote_id: None };
        let success = Report::Success(remote);
        let failed = Report::Failed(Failure::new("c", "m"));
        let expired = Report::LoginExpired(Failure::new("c", "m"));
        let standing =
            |status, outcome_unknown, sent| Standing { status, round: 2, outcome_unknown, sent, held: false };
        let running = standing(Status::Running, false, true);
        assert_eq!(does(running, 2, success.clone()), "success");
        assert_eq!(does(running, 2, failed.clone()), "failed");
        assert_eq!(does(running, 2, expired.clone()), "login_expired");
        let being_sent = Standing { held: true, ..running };
        assert_eq!(does(being_sent, 2, success.clone()), "success");
        assert_eq!(does(being_sent, 2, failed.clone()), "not now");
        assert_eq!(does(being_sent, 2, expired.clone()), "not now");
        for round in [1, 3] {
            for report in [&success, &failed, &expired] {
                assert_eq!(does(running, round, report.clone()), "nothing");
            }
        }
        for status in Status::ALL.into_iter().filter(|status| *status != Status::Running) {
            for (outcome_unknown, sent) in [(false, false), (false, true), (true, true)] {
                let unknown = outcome_unknown && status == Status::Failed;
                let standing = standing(status, unknown, sent);
                let late = unknown || (status == Status::Submitted && sent);
                assert_eq!(does(standing, 2, success.clone()), if late { "confirms" } else { "nothing" });
                assert_eq!(does(standing, 2, failed.clone()), "nothing");
                assert_eq!(does(standing, 2, expired.clone()), "nothing");
            }
        }
    }
}
