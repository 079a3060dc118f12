//! What must hold in every state, and how a space is explored.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use publish_ingest::connector::Guarantee;
use publish_ingest::task::run::OPEN_TRIES_MAX;
use publish_ingest::task::state::Status;
use stateright::{Checker as _, HasDiscoveries, Model, Path, Property};

use super::hand::Doing;
use super::plan::Plan;
use super::world::{Act, World};

/// At most one article is public, ever.
pub(crate) const ONCE: &str = "published once";

/// What is told to be public is.
pub(crate) const TRUE_SUCCESS: &str = "success is public";

/// What is told not to be public is not, and does not become so.
pub(crate) const TRUE_FAILURE: &str = "failed is not public";

/// Nothing fails unless its platform refused it, or nobody can tell.
pub(crate) const NOT_GIVEN_UP: &str = "nothing is given up";

/// Who lost its fence writes nothing.
pub(crate) const FENCED: &str = "a loser writes nothing";

/// What is never answered is not sent again and again without a rest.
pub(crate) const RESTS: &str = "a run does not hammer";

/// Where nothing goes wrong any more, it ends.
pub(crate) const ENDS: &str = "it comes to an end";

/// How many steps lead to an end where nothing goes wrong any more: five times what was ever seen.
const WAY_MAX: usize = 300;

impl Model for Plan {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        vec![World::begin(self)]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        world.acts(self, acts);
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        Some(world.after(self, act))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut laws = vec![
            Property::always(ONCE, |_, world: &World| world.platform.public() <= 1),
            Property::always(TRUE_SUCCESS, |_, world: &World| {
                world.database.status != Status::Success || world.platform.public() > 0
            }),
            Property::always(TRUE_FAILURE, |_, world: &World| {
                let told = world.database.status == Status::Failed && !world.database.unknown;
                !told || world.platform.public() == 0
            }),
            Property::always(NOT_GIVEN_UP, |plan: &Self, world: &World| {
                let allowed = if world.database.unknown {
                    plan.guarantee == Guarantee::AtMostOnce || world.left.days < plan.budget.days
                } else {
                    world.left.odd < plan.budget.odd
                };
                world.database.status != Status::Failed || allowed
            }),
            Property::always(FENCED, |_, world: &World| !world.stale),
            Property::always(RESTS, |_, world: &World| {
                let most = OPEN_TRIES_MAX + world.database.tries;
                world.hands.iter().all(|hand| match &hand.doing {
                    Doing::Runs(run) => i64::from(run.unknown) <= most,
                    _ => true,
                })
            }),
            Property::always(ENDS, leads_to_an_end),
        ];
        laws.retain(|law| Some(law.name) != self.ends);
        laws
    }
}

/// Whether the publication ends if nothing goes wrong from here on. Asked of every state, this finds the loops that a search
/// for states with no way on does not; a way is walked only to where an earlier one passed.
fn leads_to_an_end(plan: &Plan, world: &World) -> bool {
    let mut ending = plan.ending.lock().unwrap();
    let (mut way, mut at) = (Vec::new(), world.clone());
    while way.len() < WAY_MAX {
        let mut hasher = DefaultHasher::new();
        at.hash(&mut hasher);
        let here = hasher.finish();
        if at.has_ended() || ending.contains(&here) {
            ending.extend(way);
            return true;
        }
        way.push(here);
        at = at.after(plan, at.fair());
    }
    false
}

/// Explores all of a space: none of the laws is broken, and what can be reached is told.
pub(crate) fn holds(plan: Plan) -> String {
    let name = plan.name();
    let checker = plan.checker().spawn_bfs().join();
    let broken = checker.discoveries();
    if let Some((law, path)) = broken.into_iter().next() {
        panic!("{name}: \"{law}\" is broken:\n{}", tell(path));
    }
    let (unique, depth) = (checker.unique_state_count(), checker.max_depth());
    format!("{name}: {unique} states, {depth} deep")
}

/// Explores a space in which that law is broken: the shortest way there.
pub(crate) fn breaks(plan: Plan, law: &'static str) -> String {
    let name = plan.name();
    let found = HasDiscoveries::AnyOf([law].into());
    let checker = plan.checker().finish_when(found).spawn_bfs().join();
    let path = checker.discovery(law).unwrap_or_else(|| panic!("{name}: \"{law}\" is not broken"));
    format!("{name}: \"{law}\" is broken:\n{}", tell(path))
}

fn tell(path: Path<World, Act>) -> String {
    let mut told = String::new();
    let states = path.into_vec();
    let later = states.iter().skip(1).map(|(world, _)| world);
    for ((_, act), world) in states.iter().zip(later) {
        let Some(act) = act else { continue };
        writeln!(told, "    {act:?}{}", world.whereabouts(*act)).unwrap();
    }
    let (last, _) = states.last().unwrap();
    writeln!(told, "    => {:?}, and the publication is {}", last.platform.articles, last.database.status)
        .unwrap();
    told
}
