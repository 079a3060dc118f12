//! Named points at which the crash suite (`tests/torture`) ends or stops the process. Without the feature `faults`, which no
//! build for use has, a point is nothing.
//!
//! `PUBLISH_FAULT_AT=journal.written.draft:3:abort` ends the process when it comes to that point for the third time, without
//! any cleaning up; `…:stop` stops it there by SIGSTOP until somebody continues it. `PUBLISH_FAULT_BLIND=true` takes out the
//! search before an article is made, to show that the suite notices. `PUBLISH_FAULT_SETTLE=4` has every platform settled
//! within so many seconds, as the suite's platforms are.

/// Every point, as `place` or `place.what`.
pub const POINTS: [&str; 28] = [
    "accept.committed",
    "call.begun.draft",
    "call.begun.look",
    "call.begun.prepare",
    "call.begun.publish",
    "call.begun.remove",
    "call.ended.draft",
    "call.ended.look",
    "call.ended.prepare",
    "call.ended.publish",
    "call.ended.remove",
    "callback.recorded",
    "callback.sending",
    "callback.sent",
    "claim.committed",
    "journal.writing.draft",
    "journal.writing.look",
    "journal.writing.prepare",
    "journal.writing.publish",
    "journal.writing.remove",
    "journal.written.draft",
    "journal.written.look",
    "journal.written.prepare",
    "journal.written.publish",
    "journal.written.remove",
    "run.begun",
    "settle.writing",
    "settle.written",
];

#[cfg(not(feature = "faults"))]
mod off {
    /// A point, where nothing happens.
    #[inline]
    pub fn point(_: &str, _: &str) {}

    /// The settle time that all platforms are given: none.
    #[inline]
    #[must_use]
    pub fn settle_time() -> Option<std::time::Duration> {
        None
    }

    /// Whether the search before an article is made is taken out: it is not.
    #[inline]
    #[must_use]
    pub fn is_blind() -> bool {
        false
    }
}

#[cfg(not(feature = "faults"))]
pub use off::{is_blind, point, settle_time};

#[cfg(feature = "faults")]
pub use on::{is_blind, point, settle_time};

#[cfg(feature = "faults")]
mod on {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    /// How long the thread that stopped the process waits: another thread may be the one that hears the signal.
    const STOPS_WITHIN: Duration = Duration::from_millis(100);

    struct Armed {
        name: String,
        /// How often the point is still to be passed, this time included.
        left: AtomicU32,
        stops: bool,
    }

    /// What happens at this point: nothing, unless it is the one that was asked for.
    pub fn point(place: &str, what: &str) {
        static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
        let Some(armed) = ARMED.get_or_init(armed) else { return };
        let rest = armed.name.strip_prefix(place);
        let named = rest.is_some_and(|rest| rest.strip_prefix('.').unwrap_or(rest) == what);
        if !named || armed.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return;
        }
        if !armed.stops {
            std::process::abort();
        }
        let _ = kill_process(getpid(), Signal::STOP);
        let (_keep, never) = channel::<()>();
        let _ = never.recv_timeout(STOPS_WITHIN);
    }

    /// Whether the search before an article is made is taken out.
    #[must_use]
    pub fn is_blind() -> bool {
        static BLIND: OnceLock<bool> = OnceLock::new();
        *BLIND.get_or_init(|| std::env::var_os("PUBLISH_FAULT_BLIND").is_some_and(|value| value == "true"))
    }

    /// The settle time that all platforms are given, if any is.
    #[must_use]
    pub fn settle_time() -> Option<Duration> {
        static SETTLE: OnceLock<Option<Duration>> = OnceLock::new();
        *SETTLE.get_or_init(|| {
            let seconds = std::env::var_os("PUBLISH_FAULT_SETTLE")?.to_str()?.parse().ok()?;
            Some(Duration::from_secs(seconds))
        })
    }

    fn armed() -> Option<Armed> {
        let text = std::env::var_os("PUBLISH_FAULT_AT")?.into_string().unwrap_or_default();
        let parts = text.split(':').collect::<Vec<_>>();
        let armed = match parts[..] {
            [name, count, deed @ ("abort" | "stop")] if super::POINTS.contains(&name) => {
                let left = count.parse().ok().filter(|count| *count > 0);
                left.map(|left| Armed {
                    name: name.to_owned(),
                    left: AtomicU32::new(left),
                    stops: deed == "stop",
                })
            }
            _ => None,
        };
        if armed.is_none() {
            // A fault that is misspelt and never happens would look like a service that survives it.
            tracing::error!(text, "PUBLISH_FAULT_AT: write point:count:abort or point:count:stop");
            std::process::abort();
        }
        armed
    }
}
