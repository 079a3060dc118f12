//! What a platform shows of an account, held against what was recorded of it. Pure.
//!
//! First all that the platform shows is taken in, then all that was recorded: what is published meanwhile is then recorded
//! at the latest when it is asked for, and is no stranger.

use std::collections::HashMap;

use serde::Serialize;

use crate::connector::Listed;
use crate::store::Recorded;
use crate::task::state::Status;

/// The most articles of an account that are compared: with id, mark, title and address of each, about 500 MB.
pub const LISTED_MAX: usize = 1_000_000;

/// How many findings of a kind are told one by one; the others are counted.
pub const TOLD_MAX: usize = 1_000;

/// Findings of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// How many there are.
    pub count: usize,
    /// The first of them.
    pub found: Vec<Finding>,
}

impl Findings {
    fn tell(&mut self, finding: impl FnOnce() -> Finding) {
        self.count += 1;
        if self.found.len() < TOLD_MAX {
            self.found.push(finding());
        }
    }
}

/// An article of which something is to be told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The caller's id of it, where it is known.
    pub external_id: Option<String>,
    /// Its state with us, where it is known.
    pub status: Option<Status>,
    /// The mark it carries, or should.
    pub marker: Option<String>,
    /// Where it stands, or should: of a double, all places.
    pub urls: Vec<String>,
    /// The platform's ids of it.
    pub remote_ids: Vec<String>,
    /// Its title on the platform.
    pub title: Option<String>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How many articles the platform shows, drafts too.
    pub listed: usize,
    /// How many publications were recorded.
    pub recorded: usize,
    /// One mark that is public more than once.
    pub doubles: Findings,
    /// Recorded as published, and not public on the platform.
    pub losses: Findings,
    /// On the platform, with no mark of ours, or one that we do not know.
    pub strangers: Findings,
    /// Public on the platform, and recorded as failed.
    pub unrecorded: Findings,
    /// Drafts on the platform of what has ended.
    pub left_over_drafts: Findings,
    /// What has not ended with us.
    pub unfinished: Findings,
}

impl Report {
    /// Whether the promise was broken: an article is there twice, or not at all.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.doubles.count + self.losses.count > 0
    }
}

/// The platform shows more than can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the account has more than {LISTED_MAX} articles, which is the most that one audit compares")]
pub struct TooMany;

/// A comparison under way.
#[derive(Debug, Default)]
pub struct Audit {
    marked: HashMap<String, Vec<Listed>>,
    /// What carries no mark, by the platform's id.
    unmarked: HashMap<String, Listed>,
    report: Report,
}

impl Audit {
    /// Takes in an article that the platform shows.
    pub fn listed(&mut self, listed: Listed) -> Result<(), TooMany> {
        if self.report.listed == LISTED_MAX {
            return Err(TooMany);
        }
        self.report.listed += 1;
        match &listed.marker {
            Some(marker) => self.marked.entry(marker.clone()).or_default().push(listed),
            None => drop(self.unmarked.insert(listed.id.clone(), listed)),
        }
        Ok(())
    }

    /// Takes in what was recorded of a publication, after all that the platform shows.
    pub fn recorded(&mut self, recorded: &Recorded) {
        let report = &mut self.report;
        report.recorded += 1;
        let seen = recorded.marker.as_ref().and_then(|marker| self.marked.remove(marker)).unwrap_or_default();
        let (public, drafts) = seen.into_iter().partition::<Vec<_>, _>(|one| one.url.is_some());
        let of = |listed: &[Listed]| finding(Some(recorded), listed);
        if public.len() > 1 {
            report.doubles.tell(|| of(&public));
        }
        match recorded.status {
            Status::Success if public.is_empty() => {
                // A mark can be taken off on the platform; its own id cannot.
                let known = recorded.remote_id.as_ref().and_then(|id| self.unmarked.remove(id));
                if known.is_none_or(|one| one.url.is_none()) {
                    let kind = if recorded.settled { &mut report.losses } else { &mut report.unfinished };
                    kind.tell(|| of(&[]));
                }
            }
            Status::Failed if !public.is_empty() => report.unrecorded.tell(|| of(&public)),
            Status::Success | Status::Failed => {}
            Status::Draft | Status::Submitted | Status::Running | Status::LoginExpired => {
                report.unfinished.tell(|| of(&public));
            }
        }
        // What has not ended may still need its draft.
        if matches!(recorded.status, Status::Success | Status::Failed) {
            for draft in &drafts {
                report.left_over_drafts.tell(|| of(std::slice::from_ref(draft)));
            }
        }
    }

    /// What was found: what nobody recorded is of others.
    #[must_use]
    pub fn end(mut self) -> Report {
        let mut marked = self.marked.into_values().collect::<Vec<_>>();
        marked.sort_by(|a, b| a[0].marker.cmp(&b[0].marker));
        for same in &marked {
            let public = same.iter().filter(|one| one.url.is_some()).cloned().collect::<Vec<_>>();
            if public.len() > 1 {
                self.report.doubles.tell(|| finding(None, &public));
            }
        }
        let mut unmarked = self.unmarked.into_values().collect::<Vec<_>>();
        unmarked.sort_by(|a, b| a.id.cmp(&b.id));
        for stranger in marked.into_iter().flatten().chain(unmarked) {
            self.report.strangers.tell(|| finding(None, &[stranger]));
        }
        self.report
    }
}

fn finding(recorded: Option<&Recorded>, listed: &[Listed]) -> Finding {
    let own = |of: fn(&Recorded) -> &Option<String>| recorded.and_then(|one| of(one).clone());
    let mut urls = listed.iter().filter_map(|one| one.url.clone()).collect::<Vec<_>>();
    let mut remote_ids = listed.iter().map(|one| one.id.clone()).collect::<Vec<_>>();
    if listed.is_empty() {
        urls.extend(own(|one| &one.url));
        remote_ids.extend(own(|one| &one.remote_id));
    }
    let marker = own(|one| &one.marker).or_else(|| listed.first().and_then(|one| one.marker.clone()));
    Finding {
        external_id: recorded.map(|one| one.external_id.clone()),
        status: recorded.map(|one| one.status),
        marker,
        urls,
        remote_ids,
        title: listed.first().map(|one| one.title.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(id: &str, marker: Option<&str>, public: bool) -> Listed {
        let url = public.then(|| format!("https://h/{id}"));
        Listed { id: id.to_owned(), marker: marker.map(Into::into), title: format!("T {id}"), url }
    }

    fn recorded(external_id: &str, marker: &str, status: Status) -> Recorded {
        let remote_id = (status == Status::Success).then(|| format!("id of {external_id}"));
        Recorded {
            external_id: external_id.to_owned(),
            marker: Some(marker.to_owned()),
            status,
            url: remote_id.as_ref().map(|id| format!("https://h/{id}")),
            remote_id,
            settled: true,
        }
    }

    fn compared(shown: Vec<Listed>, known: &[Recorded]) -> Report {
        let mut audit = Audit::default();
        for one in shown {
            audit.listed(one).unwrap();
        }
        for one in known {
            audit.recorded(one);
        }
        audit.end()
    }

    /// The counts: doubles, losses, strangers, unrecorded, left-over drafts, unfinished.
    fn counts(report: &Report) -> [usize; 6] {
        let Report { doubles, losses, strangers, unrecorded, left_over_drafts, unfinished, .. } = report;
        [doubles, losses, strangers, unrecorded, left_over_drafts, unfinished].map(|kind| kind.count)
    }

    #[test]
    fn where_all_is_as_recorded_nothing_is_found() {
        let shown = vec![listed("1", Some("m1"), true), listed("2", Some("m2"), true)];
        let report = compared(
            shown,
            &[
                recorded("a", "m1", Status::Success),
                recorded("b", "m2", Status::Success),
                recorded("c", "m3", Status::Failed),
            ],
        );
        assert_eq!((counts(&report), report.listed, report.recorded), ([0; 6], 2, 3));
        assert!(!report.is_broken());
    }

    #[test]
    fn one_mark_that_is_public_twice_is_a_double_whether_we_know_it_or_not() {
        let twice = || vec![listed("1", Some("m1"), true), listed("2", Some("m1"), true)];
        let report = compared(twice(), &[recorded("a", "m1", Status::Success)]);
        assert_eq!(counts(&report), [1, 0, 0, 0, 0, 0]);
        let double = &report.doubles.found[0];
        assert_eq!(
            (double.external_id.as_deref(), &*double.remote_ids),
            (Some("a"), &["1".into(), "2".into()][..])
        );
        assert!(report.is_broken());
        let report = compared(twice(), &[]);
        assert_eq!(counts(&report), [1, 0, 2, 0, 0, 0]);
    }

    #[test]
    fn what_was_published_and_is_not_public_is_lost() {
        let known = [recorded("a", "m1", Status::Success)];
        for shown in [vec![], vec![listed("1", Some("m2"), true)]] {
            let strangers = shown.len();
            let report = compared(shown, &known);
            assert_eq!(counts(&report), [0, 1, strangers, 0, 0, 0]);
            assert_eq!(report.losses.found[0].urls, ["https://h/id of a"]);
            assert!(report.is_broken());
        }
        // It has become a draft again.
        assert_eq!(counts(&compared(vec![listed("1", Some("m1"), false)], &known)), [0, 1, 0, 0, 1, 0]);
        // It was recorded after the platform had been asked.
        let late = Recorded { settled: false, ..known[0].clone() };
        assert_eq!(counts(&compared(vec![], &[late])), [0, 0, 0, 0, 0, 1]);
        // Its mark was taken off.
        assert_eq!(counts(&compared(vec![listed("id of a", None, true)], &known)), [0; 6]);
        assert_eq!(counts(&compared(vec![listed("id of a", None, false)], &known)), [0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn what_nobody_recorded_is_a_stranger() {
        let shown = vec![listed("1", None, true), listed("2", None, false), listed("3", Some("mx"), true)];
        let report = compared(shown, &[]);
        assert_eq!(counts(&report), [0, 0, 3, 0, 0, 0]);
        let ids = report.strangers.found.iter().map(|one| one.remote_ids[0].as_str()).collect::<Vec<_>>();
        assert_eq!(ids, ["3", "1", "2"]);
        assert!(!report.is_broken());
    }

    #[test]
    fn drafts_are_left_over_when_their_publication_has_ended() {
        let draft = || vec![listed("1", Some("m1"), false)];
        for status in Status::ALL {
            let report = compared(draft(), &[recorded("a", "m1", status)]);
            let ended = matches!(status, Status::Success | Status::Failed);
            assert_eq!(report.left_over_drafts.count, usize::from(ended), "{status}");
            assert_eq!(report.unfinished.count, usize::from(!ended), "{status}");
        }
    }

    #[test]
    fn what_is_public_and_has_failed_with_us_is_told() {
        let report = compared(vec![listed("1", Some("m1"), true)], &[recorded("a", "m1", Status::Failed)]);
        assert_eq!(counts(&report), [0, 0, 0, 1, 0, 0]);
        assert_eq!(report.unrecorded.found[0].urls, ["https://h/1"]);
    }

    #[test]
    fn a_flood_of_findings_is_counted_and_told_in_part() {
        let shown = (0..TOLD_MAX + 5).map(|n| listed(&n.to_string(), None, true)).collect();
        let report = compared(shown, &[]);
        assert_eq!((report.strangers.count, report.strangers.found.len()), (TOLD_MAX + 5, TOLD_MAX));
    }
}
