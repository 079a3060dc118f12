//! How often a node that has nothing to do asks whether there is something.
//!
//! What is accepted, settled or asked for on the node itself wakes its walks at once. The polls are for what other nodes
//! wrote, and for what becomes due: each question also tells what will be due before the next.

use std::time::Duration;

use crate::config::Roles;
use crate::store::Queue;

/// Of publications: with the jitter, what another node accepted starts within a second.
const PUBLICATIONS: Duration = Duration::from_millis(800);

/// Of callbacks, where the node itself writes events, and so do others that have dispatchers of their own.
const CALLBACKS: Duration = Duration::from_millis(2_500);

/// Of callbacks, where only other nodes write events.
const CALLBACKS_OF_OTHERS: Duration = Duration::from_millis(800);

/// Of replays, which are no hurry: one that goes on is asked for at every step.
const REPLAYS: Duration = Duration::from_secs(5);

/// How long a walk sleeps, about, when nothing is due and nobody wakes it.
pub(super) fn poll(queue: Queue, roles: Roles) -> Duration {
    match queue {
        Queue::Publications => PUBLICATIONS,
        Queue::Callbacks if roles.worker => CALLBACKS,
        Queue::Callbacks => CALLBACKS_OF_OTHERS,
        Queue::Replays => REPLAYS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callback::watch;
    use crate::retry::jittered;

    #[test]
    fn an_idle_node_asks_below_two_a_second_and_starts_what_others_accepted_within_one() {
        let [worker, dispatcher] =
            [true, false].map(|worker| Roles { api: true, worker, dispatcher: !worker });
        for roles in [Roles::ALL, worker, dispatcher] {
            let queues = [
                (Queue::Publications, roles.worker),
                (Queue::Callbacks, roles.dispatcher),
                (Queue::Replays, roles.dispatcher),
            ];
            let asked = queues.into_iter().filter(|(_, walks)| *walks);
            let rates = asked.map(|(queue, _)| poll(queue, roles).as_secs_f64().recip());
            let all = rates.sum::<f64>() + watch::LOOK.as_secs_f64().recip();
            assert!(all < 2.0, "{all} a second");
        }
        assert!(jittered(PUBLICATIONS, 1.0) < Duration::from_secs(1));
        assert!(jittered(CALLBACKS_OF_OTHERS, 1.0) < Duration::from_secs(1));
    }
}
