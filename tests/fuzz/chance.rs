//! How cases are made: from a valid text by some changes, or from nothing.

use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

/// The longest case, in bytes: far beyond every limit on a field but the body's, and a body's length is no parser's matter.
const CASE_MAX_BYTES: usize = 16 * 1024;

/// How often a token is repeated at most: deeper than any parser follows.
const REPEATS_MAX: usize = 400;

/// What parsers have stumbled over, whatever they read.
const TOKENS: &[&[u8]] = &[
    b"\0",
    b"\r\n",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\\udc00\\ud800",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xae",
    b"e\xcc\x81",
    b"\xef\xbc\x91",
    b"\xf0\x9f\xa6\x80",
    b"\xe2\x80\x8b",
    b"{",
    b"}",
    b"[",
    b"]",
    b"[[",
    b"{\"a\":",
    b":",
    b",",
    b"-",
    b"-0",
    b"0",
    b"1e999",
    b"-1e-999",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"340282366920938463463374607431768211456",
    b"0.1e1",
    b"null",
    b"true",
    b"NaN",
    b" ",
    b"\t",
    b"%",
    b"%00",
    b"%2e%2e",
    b"..",
    b".",
    b"/",
    b"@",
    b"#",
    b"?",
    b"&",
    b"=",
    b"+",
    b";",
    b"<",
    b"'",
    b"$",
];

/// Chance that a seed repeats.
pub(crate) struct Dice(SmallRng);

impl Dice {
    /// Of one case: of the run's seed, what is tried, and a number.
    pub(crate) fn of_case(seed: u64, name: &str, case: u64) -> Self {
        let name =
            name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(SmallRng::seed_from_u64(name.wrapping_add(case.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
    }

    /// A number below, of at least 1.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.random_range(0..limit)
    }

    /// Whether it comes to pass, once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn one<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    fn byte(&mut self) -> u8 {
        self.0.random()
    }

    /// Bytes of no meaning, or characters, or tokens.
    fn noise(&mut self, tokens: &[&[u8]]) -> Vec<u8> {
        let length = self.below(200);
        match self.below(3) {
            0 => {
                let mut bytes = vec![0; length];
                self.0.fill_bytes(&mut bytes);
                bytes
            }
            1 => (0..length)
                .filter_map(|_| char::from_u32(self.0.random::<u32>() >> 11))
                .collect::<String>()
                .into(),
            _ => (0..length / 4).flat_map(|_| self.token(tokens)).copied().collect(),
        }
    }

    fn token<'a>(&mut self, tokens: &[&'a [u8]]) -> &'a [u8] {
        if tokens.is_empty() || self.once_in(2) { self.one(TOKENS) } else { self.one(tokens) }
    }

    /// A case: one of the valid texts with a few changes, seldom none; or noise. `tokens` are words of its language.
    pub(crate) fn case(&mut self, texts: &[&[u8]], tokens: &[&[u8]]) -> Vec<u8> {
        if self.once_in(8) {
            return self.noise(tokens);
        }
        let mut case = self.one(texts).to_vec();
        for _ in 0..self.below(7) {
            self.change(&mut case, texts, tokens);
        }
        case.truncate(CASE_MAX_BYTES);
        case
    }

    fn change(&mut self, case: &mut Vec<u8>, texts: &[&[u8]], tokens: &[&[u8]]) {
        let at = self.below(case.len() + 1);
        let end = (at + self.below(24)).min(case.len());
        match self.below(10) {
            0 if at < case.len() => case[at] ^= 1 << self.below(8),
            1 if at < case.len() => case[at] = self.byte(),
            2 | 3 => {
                let token = self.token(tokens);
                case.splice(at..at, token.iter().copied());
            }
            // In the place of something.
            4 => {
                let token = self.token(tokens);
                case.splice(at..end, token.iter().copied());
            }
            5 => {
                case.drain(at..end);
            }
            6 => {
                let part = case[at..end].to_vec();
                let to = self.below(case.len() + 1);
                case.splice(to..to, part);
            }
            7 => {
                let other = self.one(texts);
                let from = self.below(other.len() + 1);
                case.truncate(at);
                case.extend(&other[from..]);
            }
            8 if self.once_in(4) => {
                let token = self.token(tokens);
                let many = token.repeat(self.below(REPEATS_MAX));
                case.splice(at..at, many);
            }
            9 if self.once_in(2) => case.truncate(at),
            // A digit in the place of a digit keeps numbers numbers.
            _ => {
                if let Some(digit) = case[at..].iter_mut().find(|byte| byte.is_ascii_digit()) {
                    *digit = b'0' + self.byte() % 10;
                }
            }
        }
    }
}
