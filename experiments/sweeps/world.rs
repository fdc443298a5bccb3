//! A world small enough to visit whole: every state that the model can reach in it, every verb with every argument in
//! every one of these states, on the model and on a subject; answers and whole state must agree.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Display};
use std::io;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use serde::Serialize;

use crate::model::{self, Answer, Error, Full, Limits, Request, State, Token, Usage, Verb};

/// What can be said in the world. Everything in it is a matter of these few words.
pub struct World {
    pub limits: Limits,
    /// Which requests are there to be admitted. Those with one id are identical, conflicting or look alike.
    pub requests: Vec<Arc<Request>>,
    /// Given to every verb that takes one.
    pub ticks: Vec<i64>,
    /// Tokens carry generations from 1 to here. A state in which a task has a higher one is reached and compared,
    /// but not left: claim, quarantine and redrive could go round for ever.
    pub generations: i64,
    /// Verbs that are asked besides.
    pub besides: Vec<Verb>,
}

impl World {
    /// Two tenants, three ids; look-alike, empty and multibyte payloads; limits so tight that each of the four budgets refuses.
    /// Ticks: where a lease begins, one before it runs out, where it runs out.
    pub fn small() -> World {
        World {
            limits: Limits {
                global: Usage { count: 2, bytes: 6 },
                tenant: Usage { count: 1, bytes: 4 },
                payload_bytes: 5,
                lease_ticks: 5,
            },
            requests: vec![
                Request::new("k", "a", "\u{e9}"),
                Request::new("k", "a", "e\u{301}"),
                Request::new("k", "b", "\u{e9}"),
                Request::new("K", "a", ""),
                Request::new("k ", "b", "😀"),
                Request::new("k ", "b", "12345"),
                Request::new("k ", "b", "123456"),
            ],
            ticks: vec![0, 4, 5],
            generations: 2,
            besides: refused_everywhere(),
        }
    }

    /// Four ids, room for three, one more tick and one more generation: minutes, on request.
    pub fn large() -> World {
        let mut world = World::small();
        world.limits.global = Usage { count: 3, bytes: 8 };
        world.limits.tenant = Usage { count: 2, bytes: 5 };
        world.requests.push(Request::new("K\t", "b", "x"));
        world.ticks.push(10);
        world
    }

    /// Every verb with every argument.
    pub fn verbs(&self) -> Vec<Verb> {
        let mut ids: Vec<&str> = self.requests.iter().map(|request| request.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        let token = |id: &str, generation| Token { request_id: id.to_owned(), generation };
        let mut verbs: Vec<Verb> = self.requests.iter().cloned().map(Verb::Admit).collect();
        verbs.extend(self.ticks.iter().map(|&tick| Verb::Claim { tick }));
        for id in ids {
            for generation in 1..=self.generations {
                for &tick in &self.ticks {
                    verbs.push(Verb::Resolve { token: token(id, generation), tick });
                    verbs.push(Verb::Quarantine { token: token(id, generation), tick });
                }
                verbs.push(Verb::Redrive { token: token(id, generation) });
            }
            verbs.push(Verb::CancelUnstarted { request_id: id.to_owned() });
            verbs.push(Verb::Status { request_id: id.to_owned() });
        }
        verbs.push(Verb::Snapshot);
        verbs.extend(self.besides.iter().cloned());
        verbs
    }

    fn is_left(&self, state: &State) -> bool {
        state.tasks.iter().all(|task| task.generation <= self.generations)
    }
}

/// Input that is refused before anything is read, and so in every state.
fn refused_everywhere() -> Vec<Verb> {
    let token = |generation| Token { request_id: "k".to_owned(), generation };
    vec![
        Verb::Admit(Request::new("", "a", "")),
        Verb::Admit(Request::new("k", &"a".repeat(model::NAME_BYTES + 1), "\u{e9}")),
        Verb::Claim { tick: -1 },
        Verb::Claim { tick: model::CEILING - 4 },
        Verb::Resolve { token: token(1), tick: model::CEILING + 1 },
        Verb::Quarantine { token: token(0), tick: 5 },
        Verb::Redrive { token: token(model::CEILING + 1) },
        Verb::CancelUnstarted { request_id: String::new() },
    ]
}

/// What is held against the model.
pub trait Subject: Send {
    /// A state of the subject, to come back to.
    type Saved: Send + Sync;

    /// What it remembers, saved.
    ///
    /// # Errors
    /// A sentence if it can't be told: the sweep is then not measured.
    fn save(&mut self) -> Result<Self::Saved, String>;

    /// Back to a state that it was in before.
    ///
    /// # Errors
    /// As [`Subject::save`].
    fn restore(&mut self, saved: &Self::Saved) -> Result<(), String>;

    /// Performs one verb.
    ///
    /// # Errors
    /// What the model doesn't know.
    fn perform(&mut self, verb: &Verb) -> Result<Result<Answer, Error>, Trouble>;

    /// All that it remembers. The inner error: it contradicts itself, which convicts it.
    ///
    /// # Errors
    /// As [`Subject::save`].
    fn whole_state(&mut self) -> Result<Result<State, String>, String>;
}

/// An error that the model doesn't know, with its sentence.
#[derive(Debug)]
pub enum Trouble {
    /// The subject finds itself damaged, which convicts it.
    Damaged(String),
    /// Such as a busy or failing disk: the sweep is then not measured.
    Machine(String),
}

/// What was visited. Pinned, so that the world can't shrink unseen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub states: u64,
    /// Verbs performed and compared.
    pub transitions: u64,
    /// Of the transitions: how often each answer or error was heard.
    pub answers: BTreeMap<String, u64>,
}

#[derive(Debug)]
pub enum Failure {
    Disagrees(Box<Disagreement>),
    /// Neither pass nor fail.
    NotMeasured(String),
}

/// The subject and the model part. No shorter path leads to it, so there is nothing to shrink.
#[derive(Debug)]
pub struct Disagreement {
    /// From the empty store.
    pub path: Vec<Verb>,
    pub verb: Verb,
    /// The outer error: the subject's sentence on its own damage.
    pub heard: Result<Result<Answer, Error>, String>,
    pub expected: Result<Answer, Error>,
    /// All that the subject remembers afterwards, or how it contradicts itself.
    pub found: Result<State, String>,
    pub expected_state: State,
}

impl Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotMeasured(why) => write!(out, "not measured: {why}"),
            Failure::Disagrees(disagreement) => {
                let Disagreement { path, verb, heard, expected, found, expected_state } = disagreement.as_ref();
                writeln!(out, "the subject and the model part after these verbs on an empty store:")?;
                for verb in path.iter().chain([verb]) {
                    writeln!(out, "  {verb:?}")?;
                }
                match heard {
                    Ok(heard) => writeln!(out, "  heard     {heard:?}")?,
                    Err(damage) => writeln!(out, "  heard     that it is damaged: {damage}")?,
                }
                writeln!(out, "  expected  {expected:?}")?;
                writeln!(out, "  found     {found:?}")?;
                write!(out, "  expected  {expected_state:?}")
            }
        }
    }
}

/// A state on its way to be left, and how the subject came there.
struct Visit<Saved> {
    state: State,
    /// The visit it came from and the verb that led here; the first has none.
    from: Option<(usize, usize)>,
    /// `None` once it has been left, or if it is not to be left.
    saved: Option<Saved>,
}

/// What leaving one state by all verbs showed: the states not seen at the beginning of its round, by verb.
struct Left<Saved> {
    new: Vec<(usize, State, Saved)>,
    answers: BTreeMap<String, u64>,
}

/// All that was left in one round, by the visit that was left.
type Round<Saved> = Vec<(usize, Left<Saved>)>;

/// Visits the whole world breadth first, with as many subjects as are given, each in a thread of its own.
/// All subjects must be empty.
///
/// # Errors
/// The first disagreement, by breadth; or why it could not be measured.
pub fn explore<S: Subject>(world: &World, mut subjects: Vec<S>) -> Result<Summary, Failure> {
    let verbs = world.verbs();
    let Some(first) = subjects.first_mut() else {
        return Err(Failure::NotMeasured("no subject; give one for each thread".to_owned()));
    };
    let saved = first.save().map_err(Failure::NotMeasured)?;
    let mut visits = vec![Visit { state: State::default(), from: None, saved: Some(saved) }];
    let mut known = HashMap::from([(State::default(), 0)]);
    let mut summary = Summary { states: 1, transitions: 0, answers: BTreeMap::new() };
    let mut round = 0..1;
    while !round.is_empty() {
        for (from, left) in leave_all(world, &verbs, &mut subjects, &visits, round.clone(), &known)? {
            for (answer, count) in left.answers {
                summary.transitions += count;
                *summary.answers.entry(answer).or_default() += count;
            }
            for (verb, state, saved) in left.new {
                let next = visits.len();
                known.entry(state).or_insert_with_key(|state| {
                    let saved = world.is_left(state).then_some(saved);
                    visits.push(Visit { state: state.clone(), from: Some((from, verb)), saved });
                    next
                });
            }
        }
        for visit in &mut visits[round.clone()] {
            visit.saved = None;
        }
        round = round.end..visits.len();
    }
    summary.states = visits.len() as u64;
    Ok(summary)
}

/// One round, shared out among the subjects; its results in the order of the visits, so that every run is the same.
fn leave_all<S: Subject>(
    world: &World,
    verbs: &[Verb],
    subjects: &mut [S],
    visits: &[Visit<S::Saved>],
    round: std::ops::Range<usize>,
    known: &HashMap<State, usize>,
) -> Result<Round<S::Saved>, Failure> {
    let threads = subjects.len();
    let shares: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = subjects
            .iter_mut()
            .enumerate()
            .map(|(share, subject)| {
                let mine = round.clone().skip(share).step_by(threads);
                thread::Builder::new().spawn_scoped(scope, move || {
                    let left = |index| (index, leave(world, verbs, subject, visits, index, known));
                    mine.map(left).collect::<Vec<_>>()
                })
            })
            .collect();
        let joined = |worker: io::Result<ScopedJoinHandle<'_, _>>| match worker {
            Ok(worker) => worker.join().map_err(|_| "a thread of the sweep panicked".to_owned()),
            Err(error) => Err(format!("no thread can be started ({error}); raise the limit of processes (ulimit -u)")),
        };
        workers.into_iter().map(joined).collect()
    });
    let mut left = Vec::new();
    for share in shares {
        left.extend(share.map_err(Failure::NotMeasured)?);
    }
    left.sort_by_key(|(index, _)| *index);
    left.into_iter().map(|(index, left)| left.map(|left| (index, left))).collect()
}

fn leave<S: Subject>(
    world: &World,
    verbs: &[Verb],
    subject: &mut S,
    visits: &[Visit<S::Saved>],
    index: usize,
    known: &HashMap<State, usize>,
) -> Result<Left<S::Saved>, Failure> {
    let mut left = Left { new: Vec::new(), answers: BTreeMap::new() };
    let Visit { state: before, saved: Some(saved), .. } = &visits[index] else { return Ok(left) };
    subject.restore(saved).map_err(Failure::NotMeasured)?;
    for (number, verb) in verbs.iter().enumerate() {
        let (expected_state, expected) = match model::step(&world.limits, before, verb) {
            Ok((after, answer)) => (after, Ok(answer)),
            Err(error) => (before.clone(), Err(error)),
        };
        let heard = match subject.perform(verb) {
            Ok(heard) => Ok(heard),
            Err(Trouble::Damaged(sentence)) => Err(sentence),
            Err(Trouble::Machine(why)) => return Err(Failure::NotMeasured(why)),
        };
        let found = subject.whole_state().map_err(Failure::NotMeasured)?;
        match &heard {
            Ok(answer) if *answer == expected && found.as_ref() == Ok(&expected_state) => {
                *left.answers.entry(counted_as(answer)).or_default() += 1;
            }
            Ok(_) | Err(_) => {
                let (path, verb) = (path_to(visits, verbs, index), verb.clone());
                let disagreement = Disagreement { path, verb, heard, expected, found, expected_state };
                return Err(Failure::Disagrees(Box::new(disagreement)));
            }
        }
        if expected_state != *before {
            if !known.contains_key(&expected_state) {
                left.new.push((number, expected_state, subject.save().map_err(Failure::NotMeasured)?));
            }
            subject.restore(saved).map_err(Failure::NotMeasured)?;
        }
    }
    Ok(left)
}

fn path_to<Saved>(visits: &[Visit<Saved>], verbs: &[Verb], index: usize) -> Vec<Verb> {
    let mut path = Vec::new();
    let mut at = index;
    while let Some((from, verb)) = visits[at].from {
        path.push(verbs[verb].clone());
        at = from;
    }
    path.reverse();
    path
}

pub fn counted_as(heard: &Result<Answer, Error>) -> String {
    match heard {
        Ok(answer @ Answer::Full(Full { budget, .. })) => format!("{} {budget:?}", answer.name()).to_lowercase(),
        Ok(answer) => answer.name().to_owned(),
        Err(error) => error.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said instead of what the model says, if anything.
    type Lie = fn(&Limits, &State, &Verb) -> Option<Result<(State, Answer), Error>>;

    /// The model as its own subject, with a lie in it or none.
    struct Liar {
        state: State,
        limits: Limits,
        lie: Lie,
    }

    impl Subject for Liar {
        type Saved = State;

        fn save(&mut self) -> Result<State, String> {
            Ok(self.state.clone())
        }

        fn restore(&mut self, saved: &State) -> Result<(), String> {
            self.state = saved.clone();
            Ok(())
        }

        fn perform(&mut self, verb: &Verb) -> Result<Result<Answer, Error>, Trouble> {
            let heard = (self.lie)(&self.limits, &self.state, verb)
                .unwrap_or_else(|| model::step(&self.limits, &self.state, verb));
            Ok(heard.map(|(state, answer)| {
                self.state = state;
                answer
            }))
        }

        fn whole_state(&mut self) -> Result<Result<State, String>, String> {
            Ok(Ok(self.state.clone()))
        }
    }

    fn explored(world: &World, lie: Lie) -> Result<Summary, Failure> {
        let liar = || Liar { state: State::default(), limits: world.limits, lie };
        explore(world, vec![liar(), liar()])
    }

    #[test]
    fn every_answer_and_error_but_the_generation_ceiling_occurs_in_the_small_world() {
        let summary = explored(&World::small(), |_, _, _| None).expect("the model agrees with itself");
        let heard: Vec<&str> = summary.answers.keys().map(String::as_str).collect();
        let all = [
            "accepted",
            "cancelled",
            "claimed",
            "conflict",
            "done",
            "error: input",
            "error: tick moved back",
            "global_full bytes",
            "global_full count",
            "not_cancelled",
            "nothing",
            "oversize",
            "quarantined",
            "replay",
            "requeued",
            "snapshot",
            "stale",
            "status",
            "tenant_full bytes",
            "tenant_full count",
        ];
        assert_eq!(heard, all);
    }

    #[test]
    fn a_lie_is_found_by_the_shortest_path_to_it() {
        let lie: Lie = |limits, state, verb| {
            let (after, answer) = model::step(limits, state, verb).ok()?;
            // A conflict in the one state where the id has ended.
            let ended = answer == Answer::Replay && state.usage().count == 0;
            ended.then_some(Ok((after, Answer::Conflict)))
        };
        match explored(&World::small(), lie) {
            Err(Failure::Disagrees(found)) => {
                assert_eq!(found.path.len(), 2, "{:?}", found.path);
                assert_eq!(found.heard, Ok(Ok(Answer::Conflict)));
                assert_eq!(found.expected, Ok(Answer::Replay));
            }
            other => panic!("the lie was not found: {other:?}"),
        }
    }

    #[test]
    fn a_state_that_differs_is_found_though_every_answer_agrees() {
        let lie: Lie = |limits, state, verb| {
            let (mut after, answer) = model::step(limits, state, verb).ok()?;
            after.tick += i64::from(answer == Answer::Requeued);
            Some(Ok((after, answer)))
        };
        match explored(&World::small(), lie) {
            Err(Failure::Disagrees(found)) => assert_eq!(found.heard, Ok(Ok(Answer::Requeued))),
            other => panic!("the lie was not found: {other:?}"),
        }
    }
}
