//! What a bridge's report on a publication does, and a robot's heartbeat. Pure.

use uuid::Uuid;

use super::run::Outcome;
use super::steps::request_id;
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
    let Standing { status, outcome_unknown, sent, held: being_sent, .. } = standing;
    if let Some(why) = other_round(standing, reported.round) {
        return ReportDoes::Nothing(why);
    }
    // What one robot could not do says nothing of what another, who has it by now, is doing.
    let says_not_published = !matches!(reported.report, Report::Success(_));
    if status == Status::Running
        && standing.handed.is_some()
        && says_not_published
        && let Some(why) = other_lease(standing, reported.lease_id.as_deref(), held)
    {
        return ReportDoes::Nothing(why);
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

/// The name of the lease under which a robot has an article to itself: that of its try in the history.
#[must_use]
pub fn lease_id(publication_id: Uuid, fence: i32) -> String {
    request_id(publication_id, fence, 0)
}

/// Whether a publication is still with the robot that asks for another lease; if not, why.
pub fn beats(
    round: Option<i32>,
    lease: Option<&str>,
    standing: Standing,
    held: (Uuid, i32),
) -> Result<(), String> {
    let refusal = match standing.status {
        Status::Running if standing.handed.is_some() => round
            .and_then(|round| other_round(standing, round))
            .or_else(|| other_lease(standing, lease, held)),
        Status::Running => Some("the publication was sent, and not handed out".to_owned()),
        status => Some(format!("the publication is in the state {status}")),
    };
    refusal.map_or(Ok(()), Err)
}

fn other_round(standing: Standing, told: i32) -> Option<String> {
    let round = standing.round;
    (told != round).then(|| format!("the publication is in round {round}, not in round {told}"))
}

/// Why what a robot says is not of the lease that holds now. Where nothing was handed out twice, there is only one.
fn other_lease(
    standing: Standing,
    told: Option<&str>,
    (publication_id, fence): (Uuid, i32),
) -> Option<String> {
    match told {
        Some(told) if told == lease_id(publication_id, fence) => None,
        Some(_) => Some("the lease ran out, and the publication was handed out again".to_owned()),
        None if standing.handed.is_none_or(|times| times <= 1) => None,
        None => {
            Some("the publication was handed out more than once: name the lease_id of the job".to_owned())
        }
    }
}

fn confirms(remote: Remote) -> ReportDoes {
    let (url, remote_id) = (remote.url, remote.remote_id);
    ReportDoes::Confirms(Published { url, remote_id, reason: "reported_published" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::Failure;

    fn standing_in(status: Status) -> Standing {
        let sent = true;
        Standing { status, round: 2, outcome_unknown: false, sent, held: false, handed: None }
    }

    fn does(standing: Standing, round: i32, report: Report) -> &'static str {
        does_under(standing, round, report, None)
    }

    fn does_under(standing: Standing, round: i32, report: Report, lease_id: Option<&str>) -> &'static str {
        let reported = Reported { round, report, lease_id: lease_id.map(Into::into) };
        match decide(reported, Uuid::nil(), standing, (Uuid::nil(), 2)) {
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
            |status, outcome_unknown, sent| Standing { outcome_unknown, sent, ..standing_in(status) };
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

    #[test]
    fn a_robot_that_lost_its_lease_cannot_say_that_another_failed() {
        let remote = Remote { url: "https://h/a".into(), remote_id: None };
        let once = Standing { handed: Some(1), ..standing_in(Status::Running) };
        let twice = Standing { handed: Some(2), ..once };
        let (mine, older) = (lease_id(Uuid::nil(), 2), lease_id(Uuid::nil(), 1));
        for report in [Report::Failed(Failure::new("c", "m")), Report::LoginExpired(Failure::new("c", "m"))] {
            let does = |standing, lease: Option<&str>| does_under(standing, 2, report.clone(), lease);
            assert_ne!(does(once, None), "nothing");
            assert_eq!(does(twice, None), "nothing");
            for standing in [once, twice] {
                assert_ne!(does(standing, Some(&mine)), "nothing");
                assert_eq!(does(standing, Some(&older)), "nothing");
            }
            // An endpoint has no leases.
            assert_ne!(does(Standing { handed: None, ..twice }, None), "nothing");
        }
        // A success is a fact, whoever tells it.
        for lease in [None, Some(&*older)] {
            assert_eq!(does_under(twice, 2, Report::Success(remote.clone()), lease), "success");
        }
    }

    #[test]
    fn a_heartbeat_counts_while_the_article_is_with_its_robot() {
        let once = Standing { handed: Some(1), ..standing_in(Status::Running) };
        let twice = Standing { handed: Some(2), ..once };
        let (mine, older) = (lease_id(Uuid::nil(), 2), lease_id(Uuid::nil(), 1));
        let beats = |standing, round, lease| beats(round, lease, standing, (Uuid::nil(), 2)).is_ok();
        assert!(beats(once, None, None) && beats(once, Some(2), None));
        assert!(beats(twice, None, Some(&mine)) && beats(twice, Some(2), Some(&mine)));
        assert!(!beats(twice, Some(2), None) && !beats(twice, None, Some(&older)));
        assert!(!beats(once, Some(1), None) && !beats(once, Some(1), Some(&mine)));
        assert!(!beats(Standing { handed: None, ..once }, None, None));
        for status in Status::ALL.into_iter().filter(|status| *status != Status::Running) {
            assert!(!beats(Standing { status, ..once }, None, Some(&mine)), "{status}");
        }
    }
}
