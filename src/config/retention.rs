//! The settings of removal by age.

use clap::Args;

use super::{Bad, BadSetting};
use crate::retention::keep::{self, Keep};
use crate::retry::Schedule;

/// For how long things are kept, as it was given.
#[derive(Debug, Clone, Args)]
pub struct GivenKeep {
    /// How long content, attempts and transitions are kept after a task has ended, at least 192h; or off. Keys and outcomes
    /// stay for ever
    #[arg(long, env = "PUBLISH_KEEP", default_value = "2160h", value_name = "DURATION|off")]
    keep: String,

    /// How long events are kept, with their callbacks and tries, at least 2160h; or off
    #[arg(long, env = "PUBLISH_KEEP_EVENTS", default_value = "2160h", value_name = "DURATION|off")]
    keep_events: String,
}

impl GivenKeep {
    /// What is kept, beside callbacks by that schedule; none: the usual one. Of what is wrong, all.
    pub fn read_alone(&self, schedule: Option<&Schedule>) -> Result<Keep, Vec<BadSetting>> {
        let mut bad = Bad(Vec::new());
        let keep = self.read(schedule, &mut bad);
        keep.ok_or(bad.0)
    }

    /// As [`Self::read_alone`], among other settings.
    pub(super) fn read(&self, schedule: Option<&Schedule>, bad: &mut Bad) -> Option<Keep> {
        let pending = schedule.map_or(keep::PENDING_MAX, keep::pending);
        let contents = bad.read("PUBLISH_KEEP", keep::contents(&self.keep));
        let events = bad.read("PUBLISH_KEEP_EVENTS", keep::events(&self.keep_events, pending));
        Some(Keep { contents: contents?, events: events?, pending })
    }
}
