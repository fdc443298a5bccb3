//! Twelve real processes, each killed with SIGKILL at a moment of its own, round after round on one database. Every answer that
//! any of them ever told is held against what is found after each round.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Serialize;

use super::Found;
use super::crowd::{self, Call, CameBack, End, Member};
use super::ground::Ground;
use super::reopen::reopened;
use super::worker::{Play, Work};
use crate::dice::Dice;
use crate::history::Outcome;
use crate::model::{Answer, Error, Phase, Request, State, Status, Task, Token, Verb};
use crate::process::NotMeasured;

/// A process is killed when it has told at most so many lines of each thread, two for each verb.
const LINES: usize = 60;

/// Who works on one database.
struct Scene {
    name: &'static str,
    play: Play,
    processes: usize,
    /// Of each process; they share a store, and so its commits.
    threads: usize,
    /// Few processes die in a round of many threads: it takes more rounds to meet them at the worst moment.
    rounds: usize,
}

const SCENES: [Scene; 3] = [
    Scene { name: "room for all", play: Play::Roomy, processes: 12, threads: 1, rounds: 40 },
    Scene { name: "threads that share commits", play: Play::Roomy, processes: 3, threads: 4, rounds: 96 },
    Scene { name: "in each other's way", play: Play::Crowded, processes: 12, threads: 1, rounds: 16 },
];

#[derive(Serialize)]
struct Summary {
    databases: Vec<OneDatabase>,
}

#[derive(Serialize)]
struct OneDatabase {
    scene: &'static str,
    processes: usize,
    threads_of_each: usize,
    rounds: usize,
    kills: usize,
    /// Answers that the database doesn't bear out.
    lost: usize,
    /// Sentences on a database that contradicts itself, and on answers that can't be.
    broken: usize,
}

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let judged = ground.for_each(&SCENES, |scene| Ok(scene.rounds(ground)))?;
    let mut databases = Vec::new();
    let mut broken = Vec::new();
    let mut unmeasured = None;
    for (scene, judged) in SCENES.iter().zip(judged) {
        let judged = match judged {
            Ok(judged) => judged,
            Err(why) => {
                unmeasured = unmeasured.or(Some(why));
                continue;
            }
        };
        if judged.died_in_a_verb == 0 && judged.lost.is_empty() && judged.broken.is_empty() {
            return Err(NotMeasured { what: format!("{}: none died in the middle of a verb; run again", scene.name) });
        }
        databases.push(OneDatabase {
            scene: scene.name,
            processes: scene.processes,
            threads_of_each: scene.threads,
            rounds: judged.rounds,
            kills: judged.rounds * scene.processes,
            lost: judged.lost.len(),
            broken: judged.broken.len(),
        });
        broken.extend(judged.lost.into_iter().chain(judged.broken));
    }
    // One database that is convicted is enough, whatever could not be measured beside it.
    if let Some(why) = unmeasured.filter(|_| broken.is_empty()) {
        return Err(why);
    }
    Found::new(&Summary { databases }, broken)
}

#[derive(Default)]
struct Judged {
    rounds: usize,
    died_in_a_verb: usize,
    lost: Vec<String>,
    broken: Vec<String>,
}

impl Scene {
    /// All rounds on one database, or as many as it takes to convict it.
    fn rounds(&self, ground: &Ground<'_>) -> Result<Judged, NotMeasured> {
        let store = ground.folder.database(self.name)?;
        let mut dice = Dice::new(self.threads as u64);
        let mut judged = Judged::default();
        let mut heard = Heard::default();
        let mut before = State::default();
        for round in 0..self.rounds {
            let at = |sentence: String| format!("{}, round {round}: {sentence}", self.name);
            for call in crowd::play(&self.members(&store, round, &mut dice))?.into_iter().flatten() {
                judged.died_in_a_verb += usize::from(call.is_open());
                judged.broken.extend(heard.take_in(call).map(at));
            }
            judged.rounds += 1;
            match reopened(&store, &self.play.limits())? {
                Ok(found) => {
                    judged.lost.extend(heard.lost(&found).into_iter().map(at));
                    if !before.may_precede(&found) {
                        judged.lost.push(at("what was found a round before is not there any more".to_owned()));
                    }
                    before = found;
                }
                Err(contradictions) => judged.broken.extend(contradictions.into_iter().map(at)),
            }
            if !judged.lost.is_empty() || !judged.broken.is_empty() {
                break;
            }
        }
        Ok(judged)
    }

    fn members(&self, store: &Path, round: usize, dice: &mut Dice) -> Vec<Member> {
        (0..self.processes)
            .map(|_| Member {
                work: Work {
                    parent: std::process::id(),
                    store: store.to_owned(),
                    seed: dice.next(),
                    round,
                    play: self.play,
                    threads: self.threads,
                    verbs: None,
                },
                end: End::Killed { after_lines: 1 + dice.below(LINES * self.threads) },
            })
            .collect()
    }
}

/// All that anybody was told, and all that anybody asked for.
#[derive(Default)]
struct Heard {
    facts: HashSet<Fact>,
    /// Whatever is found must have been asked for.
    asked: HashSet<Request>,
    tick: i64,
    /// What only one can be told: kind, id, generation.
    once: HashSet<(&'static str, String, i64)>,
}

/// What an answer says of one task, whatever came later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fact {
    Accepted(Request),
    AcceptedBefore(Request),
    /// The id is bound, and not to this request.
    BoundOtherwise(Request),
    Claimed {
        token: Token,
        tenant: String,
        payload: String,
        lease: i64,
    },
    Done(Token),
    Quarantined(Token),
    Requeued(Token),
    Cancelled {
        request_id: String,
    },
    Stood {
        request_id: String,
        state: String,
        generation: i64,
    },
}

impl Heard {
    /// A sentence if the answer can't be, whatever is on disk.
    fn take_in(&mut self, call: Call) -> Option<String> {
        if let Verb::Admit(request) = &call.verb {
            self.asked.insert(request.as_ref().clone());
        }
        let result = match call.came_back {
            CameBack::Heard(Outcome::Known { result, .. }) => result,
            CameBack::Heard(Outcome::Unknown | Outcome::Forgotten { .. }) | CameBack::Busy => return None,
            CameBack::Damaged(error) => return Some(format!("{:?} says {error}", call.verb)),
        };
        let answer = match result {
            Ok(answer) => answer,
            Err(Error::TickMovedBack { stored, .. }) => {
                self.tick = self.tick.max(stored);
                return None;
            }
            Err(Error::Input | Error::GenerationCeiling) => return None,
        };
        if let Verb::Claim { tick } | Verb::Resolve { tick, .. } | Verb::Quarantine { tick, .. } = &call.verb {
            self.tick = self.tick.max(*tick);
        }
        let fact = fact(&call.verb, answer)?;
        let again = fact.only_once().is_some_and(|only_once| !self.once.insert(only_once));
        let complaint = again.then(|| format!("two were told what only one can be: {fact:?}"));
        self.facts.insert(fact);
        complaint
    }

    /// Sentences on what `found` does not bear out.
    fn lost(&self, found: &State) -> Vec<String> {
        let tasks: HashMap<&str, &Task> = found.tasks.iter().map(|task| (task.request.id.as_str(), task)).collect();
        let mut lost: Vec<String> = self
            .facts
            .iter()
            .filter(|fact| !tasks.get(fact.request_id()).is_some_and(|task| fact.is_borne_out(task)))
            .map(|fact| match tasks.get(fact.request_id()) {
                Some(task) => format!("heard {fact:?}, found {task:?}"),
                None => format!("heard {fact:?}, found nothing of it"),
            })
            .collect();
        if self.tick > found.tick {
            lost.push(format!("heard of tick {}, found {}", self.tick, found.tick));
        }
        let unasked = found.tasks.iter().filter(|task| !self.asked.contains(task.request.as_ref()));
        lost.extend(unasked.map(|task| format!("nobody asked for {:?}", task.request)));
        lost.sort();
        lost
    }
}

fn fact(verb: &Verb, answer: Answer) -> Option<Fact> {
    let request = match verb {
        Verb::Admit(request) => Some(request.as_ref().clone()),
        Verb::Claim { .. } | Verb::Resolve { .. } | Verb::Quarantine { .. } | Verb::Redrive { .. } => None,
        Verb::CancelUnstarted { .. } | Verb::Status { .. } | Verb::Snapshot => None,
    };
    let token = match verb {
        Verb::Resolve { token, .. } | Verb::Quarantine { token, .. } | Verb::Redrive { token } => Some(token.clone()),
        Verb::Admit(_) | Verb::Claim { .. } | Verb::CancelUnstarted { .. } | Verb::Status { .. } | Verb::Snapshot => {
            None
        }
    };
    let request_id = match verb {
        Verb::CancelUnstarted { request_id } | Verb::Status { request_id } => Some(request_id.clone()),
        Verb::Admit(_) | Verb::Claim { .. } | Verb::Resolve { .. } | Verb::Quarantine { .. } => None,
        Verb::Redrive { .. } | Verb::Snapshot => None,
    };
    match answer {
        Answer::Accepted => request.map(Fact::Accepted),
        Answer::Replay => request.map(Fact::AcceptedBefore),
        Answer::Conflict => request.map(Fact::BoundOtherwise),
        Answer::Claimed { token, tenant, payload, lease } => Some(Fact::Claimed { token, tenant, payload, lease }),
        Answer::Done => token.map(Fact::Done),
        Answer::Quarantined => token.map(Fact::Quarantined),
        Answer::Requeued => token.map(Fact::Requeued),
        Answer::Cancelled => request_id.map(|request_id| Fact::Cancelled { request_id }),
        Answer::Status(Some(Status { state, generation })) => {
            request_id.map(|request_id| Fact::Stood { request_id, state, generation })
        }
        // These bind nothing for later. Ticks are held apart.
        Answer::Oversize { .. } | Answer::Full(_) | Answer::Nothing | Answer::Stale | Answer::NotCancelled => None,
        Answer::Status(None) | Answer::Snapshot(_) => None,
    }
}

impl Fact {
    fn request_id(&self) -> &str {
        match self {
            Fact::Accepted(request) | Fact::AcceptedBefore(request) | Fact::BoundOtherwise(request) => &request.id,
            Fact::Claimed { token, .. } | Fact::Done(token) | Fact::Quarantined(token) | Fact::Requeued(token) => {
                &token.request_id
            }
            Fact::Cancelled { request_id } | Fact::Stood { request_id, .. } => request_id,
        }
    }

    fn only_once(&self) -> Option<(&'static str, String, i64)> {
        let of = |kind, token: &Token| Some((kind, token.request_id.clone(), token.generation));
        match self {
            Fact::Accepted(request) => Some(("accepted", request.id.clone(), 0)),
            Fact::Claimed { token, .. } => of("claimed", token),
            Fact::Done(token) => Some(("ended", token.request_id.clone(), 0)),
            Fact::Cancelled { request_id } => Some(("ended", request_id.clone(), 0)),
            Fact::Quarantined(token) => of("quarantined", token),
            Fact::Requeued(token) => of("requeued", token),
            Fact::AcceptedBefore(_) | Fact::BoundOtherwise(_) | Fact::Stood { .. } => None,
        }
    }

    fn is_borne_out(&self, task: &Task) -> bool {
        let generation = task.generation;
        match self {
            Fact::Accepted(request) | Fact::AcceptedBefore(request) => *task.request == *request,
            Fact::BoundOtherwise(request) => *task.request != *request,
            Fact::Claimed { token, tenant, payload, lease } => {
                let still = match task.phase {
                    Phase::Queued | Phase::Cancelled => false,
                    Phase::Inflight { lease: found } => found == *lease,
                    Phase::Quarantined | Phase::Done => true,
                };
                task.request.tenant == *tenant
                    && task.request.payload == *payload
                    && (generation > token.generation || generation == token.generation && still)
            }
            Fact::Done(token) => generation == token.generation && task.phase == Phase::Done,
            Fact::Quarantined(token) => {
                generation > token.generation || generation == token.generation && task.phase == Phase::Quarantined
            }
            Fact::Requeued(token) => generation > token.generation,
            Fact::Cancelled { .. } => task.phase == Phase::Cancelled,
            Fact::Stood { state, generation: then, .. } => {
                let ended = [Phase::Done, Phase::Cancelled].iter().any(|phase| phase.name() == state);
                generation > *then && !ended || generation == *then && (!ended || task.phase.name() == state)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FIXTURE, step};

    fn call(verb: Verb, answer: Answer) -> Call {
        let outcome = Outcome::Known { returned: 1, result: Ok(answer) };
        Call { verb, invoked: 0, came_back: CameBack::Heard(outcome) }
    }

    /// All that the model answers on a walk, and the state at its end.
    fn walked() -> (Heard, State) {
        let mut heard = Heard::default();
        let mut state = State::default();
        for verb in super::super::tour::tour() {
            let (after, answer) = step(&FIXTURE, &state, &verb).unwrap();
            assert_eq!(heard.take_in(call(verb, answer)), None);
            assert_eq!(heard.lost(&after), Vec::<String>::new());
            state = after;
        }
        (heard, state)
    }

    #[test]
    fn what_the_model_answers_is_borne_out_by_its_state() {
        walked();
    }

    #[test]
    fn whatever_is_taken_back_is_missed() {
        let (heard, state) = walked();
        let mut lies = vec![State { tick: state.tick - 1, ..state.clone() }];
        for (index, task) in state.tasks.iter().enumerate() {
            let with = |changed: Task| {
                let mut lie = state.clone();
                lie.tasks[index] = changed;
                lie
            };
            let mut without = state.clone();
            without.tasks.remove(index);
            lies.push(without);
            lies.push(with(Task { phase: Phase::Queued, generation: 0, ..task.clone() }));
            let other = Request::new(&task.request.id, &task.request.tenant, "another body");
            lies.push(with(Task { request: other, ..task.clone() }));
        }
        let unasked = Task { request: Request::new("unasked", "a", ""), phase: Phase::Queued, generation: 0 };
        lies.push(State { tasks: state.tasks.iter().cloned().chain([unasked]).collect(), ..state.clone() });
        for lie in lies {
            // The walk's last task is still as it was accepted.
            if lie != state {
                assert!(!heard.lost(&lie).is_empty(), "{lie:?}");
            }
        }
    }

    #[test]
    fn each_fact_misses_the_state_that_comes_before_it() {
        let request = Request::new("one", "a", "abc");
        let token = Token { request_id: "one".to_owned(), generation: 1 };
        let task = |phase, generation| Task { request: request.clone(), phase, generation };
        let claimed =
            |lease| Fact::Claimed { token: token.clone(), tenant: "a".to_owned(), payload: "abc".to_owned(), lease };
        let stood =
            |state: &str, generation| Fact::Stood { request_id: "one".to_owned(), state: state.to_owned(), generation };
        let inflight = task(Phase::Inflight { lease: 5 }, 1);
        let wrong = [
            (claimed(5), task(Phase::Queued, 0)),
            (claimed(6), inflight.clone()),
            (Fact::Done(token.clone()), inflight.clone()),
            (Fact::Done(token.clone()), task(Phase::Done, 2)),
            (Fact::Quarantined(token.clone()), inflight.clone()),
            (Fact::Requeued(token.clone()), task(Phase::Quarantined, 1)),
            (Fact::Cancelled { request_id: "one".to_owned() }, task(Phase::Queued, 0)),
            (Fact::BoundOtherwise(request.as_ref().clone()), task(Phase::Queued, 0)),
            (stood("done", 1), inflight.clone()),
            (stood("inflight", 2), inflight.clone()),
        ];
        for (fact, task) in wrong {
            assert!(!fact.is_borne_out(&task), "{fact:?} {task:?}");
        }
        let right = [
            (claimed(5), inflight.clone()),
            (claimed(5), task(Phase::Queued, 2)),
            (Fact::Quarantined(token.clone()), task(Phase::Queued, 2)),
            (stood("queued", 0), inflight),
        ];
        for (fact, task) in right {
            assert!(fact.is_borne_out(&task), "{fact:?} {task:?}");
        }
    }

    #[test]
    fn what_only_one_can_be_told_is_missed_when_two_are() {
        let token = Token { request_id: "one".to_owned(), generation: 1 };
        let request = Request::new("one", "a", "abc");
        let told_twice = [
            (Verb::Admit(request), Answer::Accepted),
            (Verb::Resolve { token: token.clone(), tick: 1 }, Answer::Done),
            (Verb::Quarantine { token: token.clone(), tick: 1 }, Answer::Quarantined),
            (Verb::Redrive { token }, Answer::Requeued),
            (Verb::CancelUnstarted { request_id: "one".to_owned() }, Answer::Cancelled),
        ];
        for (verb, answer) in told_twice {
            let mut heard = Heard::default();
            assert_eq!(heard.take_in(call(verb.clone(), answer.clone())), None);
            assert!(heard.take_in(call(verb, answer.clone())).is_some(), "{answer:?}");
        }
    }
}
