//! Long sequences with larger numbers, drawn by proptest's state machine from the reference model's own states and held, verb
//! by verb, against the real store. The seeds stand here, so every run is the same; what fails is shrunk.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use serde::Serialize;

use super::Found;
use super::bench::Bench;
use super::ground::Ground;
use super::world::{Subject, Trouble, counted_as};
use crate::audit::audit;
use crate::model::{self, CEILING, FIXTURE, Limits, NAME_BYTES, Phase, Request, State, Token, Usage, Verb};
use crate::process::NotMeasured;

const SEEDS: [u8; 8] = [1, 2, 3, 5, 8, 13, 21, 34];
/// From each seed.
const SEQUENCES: u32 = 20;
/// Moves of one sequence.
const LENGTH: std::ops::RangeInclusive<usize> = 60..=180;
/// Sequences that shrinking a failing one may play.
const SHRINKING: u32 = 5_000;

#[derive(Default, Serialize)]
struct Summary {
    sequences: u64,
    verbs: u64,
    generations_set_by_hand: u64,
    openings: u64,
    answers: BTreeMap<String, u64>,
}

impl Summary {
    fn add(&mut self, other: &Summary) {
        self.sequences += other.sequences;
        self.verbs += other.verbs;
        self.generations_set_by_hand += other.generations_set_by_hand;
        self.openings += other.openings;
        for (answer, count) in &other.answers {
            *self.answers.entry(answer.clone()).or_default() += count;
        }
    }
}

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let mut summary = Summary::default();
    let mut broken = Vec::new();
    for of_one_seed in ground.for_each(&SEEDS, |&seed| sequences(ground, seed))? {
        match of_one_seed {
            Ok(one) => summary.add(&one),
            Err(counterexample) => broken.push(counterexample),
        }
    }
    Found::new(&summary, broken)
}

/// The inner error is the smallest counterexample.
fn sequences(ground: &Ground<'_>, seed: u8) -> Result<Result<Summary, String>, NotMeasured> {
    // All that an environment variable could change is said here.
    let config = Config {
        cases: SEQUENCES,
        max_shrink_iters: SHRINKING,
        max_shrink_time: 0,
        failure_persistence: None,
        fork: false,
        timeout: 0,
        verbose: 0,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]));
    let summary = RefCell::new(Summary::default());
    let unmeasured = RefCell::new(None);
    let outcome = runner.run(&Reference::sequential_strategy(LENGTH), |(world, moves, seen)| {
        match play(ground, &world, &moves, seen.as_deref()) {
            Ok(one) => {
                summary.borrow_mut().add(&one);
                Ok(())
            }
            Err(Failure::Disagrees(how)) => Err(TestCaseError::fail(how)),
            Err(Failure::NotMeasured(why)) => {
                let reason = TestCaseError::fail(why.what.clone());
                unmeasured.borrow_mut().get_or_insert(why);
                Err(reason)
            }
        }
    });
    if let Some(why) = unmeasured.into_inner() {
        return Err(why);
    }
    match outcome {
        Ok(()) => Ok(Ok(summary.into_inner())),
        Err(TestError::Abort(why)) => Err(NotMeasured { what: format!("seed {seed}: {why}") }),
        Err(TestError::Fail(why, (world, moves, _))) => {
            let mut told =
                format!("seed {seed}: the store and the model part on an empty store with\n{:?}\n", world.limits);
            moves.iter().for_each(|one| told.push_str(&format!("{one:?}\n")));
            Ok(Err(format!("{told}{why}")))
        }
    }
}

/// What the model knows, and may do next.
#[derive(Clone, Debug)]
struct World {
    limits: Limits,
    state: State,
}

#[derive(Clone, Debug)]
enum Move {
    Ask(Verb),
    /// By plain SQL: no run of verbs gets there.
    SetGeneration {
        request_id: String,
        generation: i64,
    },
    Reopen,
}

struct Reference;

impl ReferenceStateMachine for Reference {
    type State = World;
    type Transition = Move;

    fn init_state() -> BoxedStrategy<World> {
        limits().prop_map(|limits| World { limits, state: State::default() }).boxed()
    }

    fn transitions(world: &World) -> BoxedStrategy<Move> {
        prop_oneof![
            80 => verb(world).prop_map(Move::Ask),
            1 => Just(Move::Reopen),
            3 => set_generation(world),
        ]
        .boxed()
    }

    fn apply(mut world: World, one: &Move) -> World {
        match one {
            Move::Ask(verb) => {
                if let Ok((after, _)) = model::step(&world.limits, &world.state, verb) {
                    world.state = after;
                }
            }
            Move::SetGeneration { request_id, generation } => {
                let task = world.state.tasks.iter_mut().find(|task| task.request.id == *request_id);
                if let Some(task) = task {
                    task.generation = *generation;
                }
            }
            Move::Reopen => {}
        }
        world
    }

    /// A hand at the database keeps to what the protocol allows: generations rise, and only of the outstanding.
    fn preconditions(world: &World, one: &Move) -> bool {
        match one {
            Move::Ask(_) | Move::Reopen => true,
            Move::SetGeneration { request_id, generation } => world.state.tasks.iter().any(|task| {
                task.request.id == *request_id && task.phase.is_outstanding() && task.generation < *generation
            }),
        }
    }
}

fn limits() -> impl Strategy<Value = Limits> {
    let count = || prop_oneof![8 => 1..=12_u64, 1 => Just(0), 2 => Just(i64::MAX as u64)];
    let bytes = || prop_oneof![8 => 100..=2_000_u64, 1 => Just(0), 2 => Just(i64::MAX as u64)];
    let usage = move || (count(), bytes()).prop_map(|(count, bytes)| Usage { count, bytes });
    let payload_bytes = prop_oneof![8 => 1..=600_u64, 1 => Just(0)];
    (usage(), usage(), payload_bytes).prop_map(|(global, tenant, payload_bytes)| Limits {
        global,
        tenant,
        payload_bytes,
        ..FIXTURE
    })
}

fn verb(world: &World) -> BoxedStrategy<Verb> {
    let state = &world.state;
    prop_oneof![
        8 => request(world).prop_map(Verb::Admit),
        6 => tick(state.tick).prop_map(|tick| Verb::Claim { tick }),
        4 => (token(state), tick(state.tick)).prop_map(|(token, tick)| Verb::Resolve { token, tick }),
        2 => (token(state), tick(state.tick)).prop_map(|(token, tick)| Verb::Quarantine { token, tick }),
        2 => token(state).prop_map(|token| Verb::Redrive { token }),
        2 => known_or_any_id(state).prop_map(|request_id| Verb::CancelUnstarted { request_id }),
        1 => known_or_any_id(state).prop_map(|request_id| Verb::Status { request_id }),
        1 => Just(Verb::Snapshot),
    ]
    .boxed()
}

/// New ones, the same again, and the same id with another tenant or body.
fn request(world: &World) -> BoxedStrategy<Arc<Request>> {
    let payload_bytes = world.limits.payload_bytes;
    let new =
        (id(), tenant(), payload(payload_bytes)).prop_map(|(id, tenant, payload)| Request::new(&id, &tenant, &payload));
    let known: Vec<Arc<Request>> = world.state.tasks.iter().map(|task| Arc::clone(&task.request)).collect();
    if known.is_empty() {
        return new.boxed();
    }
    let altered = (select(known.clone()), any::<bool>(), tenant(), payload(payload_bytes)).prop_map(
        |(known, other_tenant, tenant, payload)| match other_tenant {
            true => Request::new(&known.id, &tenant, &known.payload),
            false => Request::new(&known.id, &known.tenant, &payload),
        },
    );
    prop_oneof![7 => new, 1 => select(known), 1 => altered].boxed()
}

/// Few, so that they meet; odd ones; any text of up to the longest and one byte over; none.
fn id() -> BoxedStrategy<String> {
    prop_oneof![
        40 => (0..40).prop_map(|number| format!("job-{number}")),
        8 => select(vec!["k", "K", "k ", "k\t", "\u{e9}", "e\u{301}", "\0", "k\0", "k\0k", "'", "\u{202e}k"]).prop_map(str::to_owned),
        6 => text(1..=NAME_BYTES),
        1 => text(NAME_BYTES..=NAME_BYTES + 1),
        1 => Just(String::new()),
    ]
    .boxed()
}

fn tenant() -> BoxedStrategy<String> {
    prop_oneof![
        40 => select(vec!["a", "b", "A", "\u{e9}", "a\0"]).prop_map(str::to_owned),
        2 => text(1..=NAME_BYTES + 1),
        1 => Just(String::new()),
    ]
    .boxed()
}

fn payload(payload_bytes: u64) -> BoxedStrategy<String> {
    let limit = usize::try_from(payload_bytes).unwrap_or(usize::MAX).min(600);
    prop_oneof![
        4 => text(0..=limit.min(48)),
        2 => text(0..=limit),
        1 => text(limit.saturating_sub(1)..=limit + 1),
        1 => Just(String::new()),
    ]
    .boxed()
}

/// Text of exactly so many bytes: any characters, filled up to the last byte.
fn text(bytes: std::ops::RangeInclusive<usize>) -> BoxedStrategy<String> {
    let characters = prop::collection::vec(any::<char>(), 1..6);
    (bytes, characters)
        .prop_map(|(bytes, characters)| {
            let mut text = String::with_capacity(bytes);
            for character in characters.into_iter().cycle() {
                if text.len() + character.len_utf8() > bytes {
                    break;
                }
                text.push(character);
            }
            text.extend(std::iter::repeat_n('x', bytes - text.len()));
            text
        })
        .boxed()
}

/// Mostly the present and what comes soon; rarely far ahead, at the ceiling and over it, or back.
fn tick(now: i64) -> BoxedStrategy<i64> {
    prop_oneof![
        200 => (0..=1_i64).prop_map(move |ahead| now + ahead),
        60 => (0..=6_i64).prop_map(move |ahead| now + ahead),
        10 => (0..=2_000_000_i64).prop_map(move |ahead| now + ahead),
        2 => CEILING - 12..=CEILING + 2,
        8 => (1..=3_i64).prop_map(move |back| now - back),
        2 => any::<i64>(),
    ]
    .boxed()
}

/// Mostly one that is held now; also late, early, invented and out of range.
fn token(state: &State) -> BoxedStrategy<Token> {
    let any_generation = prop_oneof![4 => 1..=4_i64, 1 => Just(0), 1 => Just(CEILING), 1 => Just(CEILING + 1)];
    let invented = (id(), any_generation).prop_map(|(request_id, generation)| Token { request_id, generation });
    let of = |task: &model::Task| Token { request_id: task.request.id.clone(), generation: task.generation };
    let tokens: Vec<Token> = state.tasks.iter().filter(|task| task.generation > 0).map(of).collect();
    let held = |task: &&model::Task| matches!(task.phase, Phase::Inflight { .. } | Phase::Quarantined);
    let held: Vec<Token> = state.tasks.iter().filter(held).map(of).collect();
    if held.is_empty() {
        return invented.boxed();
    }
    let beside = (select(tokens.clone()), select(vec![-1, 1]))
        .prop_map(|(token, by)| Token { generation: token.generation + by, ..token });
    prop_oneof![12 => select(held), 2 => select(tokens), 2 => beside, 1 => invented].boxed()
}

fn known_or_any_id(state: &State) -> BoxedStrategy<String> {
    let known: Vec<String> = state.tasks.iter().map(|task| task.request.id.clone()).collect();
    if known.is_empty() {
        return id();
    }
    prop_oneof![4 => select(known), 1 => id()].boxed()
}

fn set_generation(world: &World) -> BoxedStrategy<Move> {
    let known: Vec<String> = world.state.tasks.iter().map(|task| task.request.id.clone()).collect();
    if known.is_empty() {
        return Just(Move::Reopen).boxed();
    }
    (select(known), prop_oneof![2 => CEILING - 3..=CEILING, 1 => 1..=CEILING])
        .prop_map(|(request_id, generation)| Move::SetGeneration { request_id, generation })
        .boxed()
}

enum Failure {
    Disagrees(String),
    NotMeasured(NotMeasured),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Damaged(damage) => Failure::Disagrees(format!("heard     that the store is damaged: {damage}")),
            Trouble::Machine(why) => why.into(),
        }
    }
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Failure::NotMeasured(NotMeasured { what })
    }
}

/// One sequence on a store of its own. `seen` counts the moves made, which shrinking begins with.
fn play(ground: &Ground<'_>, world: &World, moves: &[Move], seen: Option<&AtomicUsize>) -> Result<Summary, Failure> {
    let path = ground.folder.database("sequence").map_err(Failure::NotMeasured)?;
    let played = play_at(&path, world, moves, seen);
    // Shrinking plays thousands.
    if let Some(folder) = path.parent() {
        let _ = fs::remove_dir_all(folder);
    }
    played
}

fn play_at(
    path: &std::path::Path,
    world: &World,
    moves: &[Move],
    seen: Option<&AtomicUsize>,
) -> Result<Summary, Failure> {
    let World { limits, mut state } = world.clone();
    let mut bench = Bench::clamp(path, &limits)?;
    let mut summary = Summary { sequences: 1, openings: 1, ..Summary::default() };
    for one in moves {
        if let Some(seen) = seen {
            seen.fetch_add(1, Ordering::SeqCst);
        }
        match one {
            Move::Ask(verb) => {
                let expected = model::step(&limits, &state, verb).map(|(after, answer)| {
                    state = after;
                    answer
                });
                let heard = bench.perform(verb)?;
                if heard != expected {
                    return Err(Failure::Disagrees(format!("heard     {heard:?}\nexpected  {expected:?}")));
                }
                summary.verbs += 1;
                *summary.answers.entry(counted_as(&heard)).or_default() += 1;
            }
            Move::SetGeneration { request_id, generation } => {
                bench.set_generation(request_id, *generation)?;
                if let Some(task) = state.tasks.iter_mut().find(|task| task.request.id == *request_id) {
                    task.generation = *generation;
                }
                summary.generations_set_by_hand += 1;
            }
            Move::Reopen => {
                bench.reopen()?;
                summary.openings += 1;
            }
        }
        let found = bench.whole_state()?;
        if found.as_ref() != Ok(&state) {
            return Err(Failure::Disagrees(format!("found     {found:?}\nexpected  {state:?}")));
        }
    }
    match audit(path)? {
        broken if broken.is_empty() => Ok(summary),
        broken => Err(Failure::Disagrees(broken.join("\n"))),
    }
}
