//! Which warnings of a publication are kept.

use crate::connector::Failure;
use crate::store::Warning;

/// How many warnings are kept of a publication: who mends these sees the rest, and a row stays a row of a few KiB.
const WARNINGS_MAX: usize = 20;

/// The warnings that are kept, the first [`WARNINGS_MAX`], and how many there are more.
pub(super) fn kept(warnings: Vec<Failure>) -> Vec<Warning> {
    let more = warnings.len().saturating_sub(WARNINGS_MAX);
    let warning = |one: Failure| Warning { code: one.code.into_owned(), detail: one.message };
    let mut kept = warnings.into_iter().take(WARNINGS_MAX).map(warning).collect::<Vec<_>>();
    if more > 0 {
        let detail = format!("{more} more of the same kind: look at the article itself");
        kept.push(Warning { code: "more_warnings".to_owned(), detail });
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_warnings_the_first_are_kept_and_the_rest_counted() {
        let many = |count| (0..count).map(|n| Failure::new("image_omitted", n.to_string())).collect();
        assert_eq!(kept(many(0)), []);
        assert_eq!(kept(many(WARNINGS_MAX)).len(), WARNINGS_MAX);
        let kept = kept(many(WARNINGS_MAX + 5));
        assert_eq!(
            (kept.len(), &*kept[0].detail, &*kept[WARNINGS_MAX].code),
            (WARNINGS_MAX + 1, "0", "more_warnings")
        );
        assert!(kept[WARNINGS_MAX].detail.starts_with("5 more"), "{kept:?}");
    }
}
