//! The platform's side: its articles, and the requests that it may still carry out.

use publish_ingest::connector::{Failure, Guarantee, Marked, Remote, Sighting, Verdict};

use super::database::Kind;

/// How often a platform says that it works on an article before it has finished: each try that waits is told apart.
const WORKS_MAX: u8 = 2;

/// What is asked of the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum What {
    /// To publish an article.
    Create,
    /// To make a draft of it.
    Draft,
    /// To publish that draft.
    Publish(u8),
    /// To remove that draft.
    Remove(u8),
}

impl What {
    /// As the journal names it.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Draft => Kind::Draft,
            Self::Create | Self::Publish(_) => Kind::Publish,
            Self::Remove(_) => Kind::Remove,
        }
    }
}

/// A request on its way, which can be carried out for that many ticks more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) what: What,
    pub(crate) left: i16,
}

/// An article that bears the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Article {
    pub(crate) id: u8,
    pub(crate) public: bool,
}

/// What the platform holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Platform {
    /// The oldest first.
    pub(crate) articles: Vec<Article>,
    /// The last id that was given.
    last_id: u8,
    /// The requests for which nobody waits any more.
    pub(crate) late: Vec<Request>,
    /// How often it said that it works on the article, until it has finished.
    pub(crate) works: Option<u8>,
}

impl Platform {
    /// How many articles are public.
    pub(crate) fn public(&self) -> usize {
        self.articles.iter().filter(|one| one.public).count()
    }

    /// That much later.
    pub(crate) fn age(&mut self, by: i16) {
        for request in &mut self.late {
            request.left -= by;
        }
        self.late.retain(|request| request.left > 0);
    }

    /// Nobody waits for this request any more; it may still be carried out.
    pub(crate) fn keep_late(&mut self, request: Request) {
        self.late.push(request);
        self.late.sort();
    }

    /// Answers a request that somebody waits for: it remembers what it works on, and finishes before it is asked a third time.
    pub(crate) fn answer(&mut self, what: What, guarantee: Guarantee) -> Verdict {
        match &mut self.works {
            Some(said) if *said < WORKS_MAX => {
                *said += 1;
                Verdict::Accepted
            }
            _ => self.carry_out(what, guarantee),
        }
    }

    /// Carries a request out, and says what came of it.
    pub(crate) fn carry_out(&mut self, what: What, guarantee: Guarantee) -> Verdict {
        match what {
            What::Create => {
                let published = self.articles.iter().find(|one| one.public);
                let id = match published {
                    // The second request with the key is dropped.
                    Some(one) if guarantee == Guarantee::NativeKey => one.id,
                    _ => self.add(true),
                };
                self.works = None;
                Verdict::Done(remote(id))
            }
            What::Draft => Verdict::Drafted(self.add(false).to_string()),
            What::Publish(id) => match self.articles.iter_mut().find(|one| one.id == id) {
                Some(one) => {
                    one.public = true;
                    Verdict::Done(remote(id))
                }
                None => Verdict::Transient(Failure::new("gone", "there is no such draft")),
            },
            // What is public is left alone; the sweeper asks for nothing but that the draft is gone.
            What::Remove(id) => {
                self.articles.retain(|one| one.id != id || one.public);
                Verdict::Accepted
            }
        }
    }

    /// What a look shows.
    pub(crate) fn sighting(&self, asks: bool) -> Sighting {
        if asks {
            return Sighting::SendToAsk;
        }
        let marked =
            |one: &Article| Marked { id: one.id.to_string(), public: one.public.then(|| remote(one.id)) };
        Sighting::Seen(self.articles.iter().map(marked).collect())
    }

    fn add(&mut self, public: bool) -> u8 {
        self.last_id += 1;
        self.articles.push(Article { id: self.last_id, public });
        self.last_id
    }
}

fn remote(id: u8) -> Remote {
    Remote { url: format!("https://h/{id}"), remote_id: Some(id.to_string()) }
}
