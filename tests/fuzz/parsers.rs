//! The parsers, each with its texts and its share of the cases, on all processors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use publish_ingest::clock::{Clock as _, SystemClock};

use crate::chance::Dice;
use crate::{laws, texts};

/// Cases that one thread takes at a time.
const PART: u64 = 1_000;

type Texts = Vec<&'static [u8]>;

struct Parser {
    name: &'static str,
    /// Of a hundred cases, so many: more for what is quick.
    share: u64,
    law: fn(&[u8]) -> bool,
    texts: Texts,
    words: Texts,
}

fn parsers() -> Vec<Parser> {
    let of = |name, share, law: fn(&[u8]) -> bool, texts: &[&'static [u8]], words: &[&'static [u8]]| Parser {
        name,
        share,
        law,
        texts: texts.to_vec(),
        words: words.to_vec(),
    };
    let signatures = laws::SIGNATURES.iter().map(String::as_bytes).collect::<Texts>();
    let cursors = [texts::CURSORS, &[laws::CURSOR.as_bytes()]].concat();
    let secrets = [texts::SECRETS, texts::KEYS].concat();
    vec![
        of("json", 12, laws::json, texts::JSON, &[]),
        of("article", 8, laws::article, texts::ARTICLES, texts::ADDRESS_WORDS),
        of("article of a batch", 5, laws::article_of_a_batch, texts::ARTICLES_OF_A_BATCH, &[]),
        of("patch", 7, laws::patch, texts::PATCHES, &[]),
        of("account", 7, laws::account, texts::ACCOUNTS, &[]),
        of("group", 7, laws::group, texts::GROUPS, &[]),
        of("Retry-After", 15, laws::wait, texts::RETRY_AFTER, texts::RETRY_AFTER_WORDS),
        of("signature", 8, laws::signature, &signatures, texts::SIGNATURE_WORDS),
        of("secret and key", 8, laws::secret, &secrets, texts::SIGNATURE_WORDS),
        of("cursor", 11, laws::cursors, &cursors, &[]),
        of("address", 12, laws::address, texts::ADDRESSES, texts::ADDRESS_WORDS),
    ]
}

/// Gives the wanted parsers their shares, or one case; whether all kept their laws.
pub(crate) fn run(seed: u64, cases: u64, only: Option<u64>, wanted: impl Fn(&str) -> bool) -> bool {
    let (mut sound, mut all) = (true, 0);
    let begun = SystemClock.instant();
    for parser in parsers().iter().filter(|parser| wanted(parser.name)) {
        let here = SystemClock.instant();
        let range = match only {
            Some(case) => case..case + 1,
            None => 0..cases * parser.share / 100,
        };
        all += range.end - range.start;
        let (kept, taken) = parser.feed(seed, range.clone());
        let seconds = SystemClock.instant().duration_since(here).as_secs_f64();
        println!("{:>20} {:>10} cases {seconds:>7.1} s, {taken} taken", parser.name, range.end - range.start);
        sound &= kept;
    }
    let seconds = SystemClock.instant().duration_since(begun).as_secs_f64();
    println!("{:>20} {all:>10} cases {seconds:>7.1} s", "in all");
    sound
}

impl Parser {
    /// Cases of these numbers, until one fails; whether none did, and how many the parser took.
    fn feed(&self, seed: u64, range: std::ops::Range<u64>) -> (bool, u64) {
        let (next, taken, failed) = (AtomicU64::new(range.start), AtomicU64::new(0), AtomicBool::new(false));
        let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !failed.load(Ordering::Relaxed) {
                        let first = next.fetch_add(PART, Ordering::Relaxed);
                        if first >= range.end {
                            return;
                        }
                        for case in first..range.end.min(first + PART) {
                            match self.try_one(seed, case) {
                                Some(was_taken) => taken.fetch_add(was_taken.into(), Ordering::Relaxed),
                                None => return failed.store(true, Ordering::Relaxed),
                            };
                        }
                    }
                });
            }
        });
        (!failed.into_inner(), taken.into_inner())
    }

    /// Whether the parser took it; none if it broke its law.
    fn try_one(&self, seed: u64, number: u64) -> Option<bool> {
        let case = Dice::of_case(seed, self.name, number).case(&self.texts, &self.words);
        let taken = catch_unwind(AssertUnwindSafe(|| (self.law)(&case)));
        if taken.is_err() {
            println!("FAILED: --seed {seed} --only '{}' --case {number}: {}", self.name, case.escape_ascii());
        }
        taken.ok()
    }
}
