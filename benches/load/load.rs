//! What is asked, and whether the answers are right.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::article::Articles;
use crate::client::Answer;
use crate::receiver::Book;

/// A number that is prime to every count of articles, so that its multiples wander over all of them.
const STRIDE: u64 = 1_000_003;

/// What is handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hand {
    /// An article that is not there.
    New,
    /// One that is there.
    Duplicate,
    /// New and duplicate in turn.
    Mixed,
    /// So many new ones in one call.
    Batch(u64),
}

/// Makes requests, and judges answers.
pub(crate) struct Load {
    /// One for each sender.
    articles: Arc<[Articles]>,
    hand: Hand,
    /// The number of the next new article, over all rounds.
    next: Arc<AtomicU64>,
    /// Those below it were accepted in earlier rounds.
    known: u64,
    asked: AtomicU64,
    /// Who is told of each new article that was accepted.
    book: Option<Book>,
}

/// What the answer must say.
#[derive(Debug)]
pub(crate) struct Asked {
    number: u64,
    of: u64,
    created: bool,
}

impl Load {
    pub(crate) fn new(articles: &Arc<[Articles]>, next: &Arc<AtomicU64>, hand: Hand) -> Self {
        let known = next.load(Ordering::Relaxed);
        Self {
            articles: articles.clone(),
            hand,
            next: next.clone(),
            known,
            asked: AtomicU64::new(0),
            book: None,
        }
    }

    pub(crate) fn told(self, book: Book) -> Self {
        Self { book: Some(book), ..self }
    }

    /// Senders hand in by turns.
    fn of(&self, number: u64) -> &Articles {
        &self.articles[usize::try_from(number).unwrap() % self.articles.len()]
    }

    /// Writes the next request.
    pub(crate) fn ask(&self, request: &mut Vec<u8>) -> Asked {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let hand = match self.hand {
            Hand::Mixed if asked.is_multiple_of(2) => Hand::New,
            Hand::Mixed => Hand::Duplicate,
            hand => hand,
        };
        match hand {
            Hand::Batch(of) => {
                let first = self.next.fetch_add(of, Ordering::Relaxed);
                self.of(first / of).write_batch(first..first + of, request);
                Asked { number: first, of, created: true }
            }
            Hand::New => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                self.of(number).write_one(number, request);
                Asked { number, of: 1, created: true }
            }
            Hand::Duplicate | Hand::Mixed => {
                let number = asked.wrapping_mul(STRIDE) % self.known.max(1);
                self.of(number).write_one(number, request);
                Asked { number, of: 1, created: false }
            }
        }
    }

    /// How many articles an answer stands for, or what is wrong with it.
    pub(crate) fn judge(&self, asked: &Asked, answer: &Answer<'_>) -> Result<u64, String> {
        let said = if asked.created { "\"created\":true" } else { "\"created\":false" };
        let right = match asked.of {
            1 => answer.holds(said),
            many => u64::try_from(answer.count(said)) == Ok(many),
        };
        if answer.status == 200 && right {
            if let Some(book) = &self.book {
                book.accepted(asked.number);
            }
            return Ok(asked.of);
        }
        let body = String::from_utf8_lossy(answer.body).chars().take(400).collect::<String>();
        Err(format!("asked for {asked:?}, answered {} {body}", answer.status))
    }
}
