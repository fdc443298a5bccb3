//! Twelve real processes, each killed with SIGKILL at a moment of its own, round after round on one database. Every answer that
//! any of them ever told is held against what is found after each round.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Serialize;

use super::Found;
use super::crowd::{self, Call, CameBack, End, Member};
use super::ground::Ground;
use super::reopen::reopened;
use super::worker::{Reads, Work};
use crate::dice::Dice;
use crate::history::Outcome;
use crate::model::{Answer, Error, Phase, Request, State, Task, Token, Verb};
use crate::process::NotMeasured;

const ROUNDS: usize = 24;
const PROCESSES: usize = 12;
/// A process is killed when it has told at most so many lines, two for each verb.
const LINES: usize = 60;
/// Databases that are worked on at the same time.
const DATABASES: usize = 2;

#[derive(Serialize)]
struct Summary {
    databases: usize,
    rounds: usize,
    kills: usize,
    /// Answers that the database doesn't bear out.
    lost: usize,
    /// Sentences on databases that contradict themselves.
    broken: usize,
}

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let databases: Vec<u64> = (0..DATABASES as u64).collect();
    let judged = ground.for_each(&databases, |&seed| rounds(ground, seed))?;
    if judged.iter().all(|judged| judged.died_in_a_verb == 0) {
        return Err(NotMeasured { what: "no process died in the middle of a verb; run again".to_owned() });
    }
    let summary = Summary {
        databases: DATABASES,
        rounds: DATABASES * ROUNDS,
        kills: DATABASES * ROUNDS * PROCESSES,
        lost: judged.iter().map(|judged| judged.lost.len()).sum(),
        broken: judged.iter().map(|judged| judged.broken.len()).sum(),
    };
    Found::new(&summary, judged.into_iter().flat_map(|judged| judged.lost.into_iter().chain(judged.broken)).collect())
}

#[derive(Default)]
struct Judged {
    died_in_a_verb: usize,
    lost: Vec<String>,
    broken: Vec<String>,
}

/// All rounds on one database, or as many as it takes to convict it.
fn rounds(ground: &Ground<'_>, seed: u64) -> Result<Judged, NotMeasured> {
    let store = ground.folder.database(&format!("nemesis-{seed}"))?;
    let mut dice = Dice::new(seed);
    let mut judged = Judged::default();
    let mut heard = Heard::default();
    let mut before = State::default();
    for round in 0..ROUNDS {
        let at = |sentence: String| format!("database {seed}, round {round}: {sentence}");
        for told in crowd::play(&members(&store, round, &mut dice))? {
            for call in told.calls {
                judged.died_in_a_verb += usize::from(call.is_open());
                judged.broken.extend(heard.take_in(call).map(at));
            }
        }
        match reopened(&store)? {
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
        ground.count(round + 1, ROUNDS);
    }
    Ok(judged)
}

fn members(store: &Path, round: usize, dice: &mut Dice) -> Vec<Member> {
    (0..PROCESSES)
        .map(|_| Member {
            work: Work {
                parent: std::process::id(),
                store: store.to_owned(),
                seed: dice.next(),
                round,
                reads: Reads::StatusOnly,
                verbs: None,
            },
            end: End::Killed { after_lines: 1 + dice.below(LINES) },
        })
        .collect()
}

/// All that anybody was told, and all that anybody asked for.
#[derive(Default)]
struct Heard {
    facts: HashSet<Fact>,
    /// Whatever is found must have been asked for.
    asked: HashSet<Request>,
    tick: i64,
    /// Answers that only one can get.
    once: HashSet<Once>,
}

/// What an answer says of one task, whatever came later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fact {
    Admitted(Request),
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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Once {
    Accepted { request_id: String },
    Ended { request_id: String },
    Claimed(Token),
    Quarantined(Token),
    Requeued(Token),
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
        let again = once(&call.verb, &answer).filter(|once| !self.once.insert(once.clone()));
        self.facts.extend(fact(&call.verb, answer));
        again.map(|once| format!("two were told the same: {once:?}"))
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

fn once(verb: &Verb, answer: &Answer) -> Option<Once> {
    Some(match (verb, answer) {
        (Verb::Admit(request), Answer::Accepted) => Once::Accepted { request_id: request.id.clone() },
        (Verb::Claim { .. }, Answer::Claimed { token, .. }) => Once::Claimed(token.clone()),
        (Verb::Resolve { token, .. }, Answer::Done) => Once::Ended { request_id: token.request_id.clone() },
        (Verb::CancelUnstarted { request_id }, Answer::Cancelled) => Once::Ended { request_id: request_id.clone() },
        (Verb::Quarantine { token, .. }, Answer::Quarantined) => Once::Quarantined(token.clone()),
        (Verb::Redrive { token }, Answer::Requeued) => Once::Requeued(token.clone()),
        _ => return None,
    })
}

fn fact(verb: &Verb, answer: Answer) -> Option<Fact> {
    Some(match (verb, answer) {
        (Verb::Admit(request), Answer::Accepted | Answer::Replay) => Fact::Admitted(request.as_ref().clone()),
        (Verb::Admit(request), Answer::Conflict) => Fact::BoundOtherwise(request.as_ref().clone()),
        (Verb::Claim { .. }, Answer::Claimed { token, tenant, payload, lease }) => {
            Fact::Claimed { token, tenant, payload, lease }
        }
        (Verb::Resolve { token, .. }, Answer::Done) => Fact::Done(token.clone()),
        (Verb::Quarantine { token, .. }, Answer::Quarantined) => Fact::Quarantined(token.clone()),
        (Verb::Redrive { token }, Answer::Requeued) => Fact::Requeued(token.clone()),
        (Verb::CancelUnstarted { request_id }, Answer::Cancelled) => Fact::Cancelled { request_id: request_id.clone() },
        (Verb::Status { request_id }, Answer::Status(Some(status))) => {
            Fact::Stood { request_id: request_id.clone(), state: status.state, generation: status.generation }
        }
        // Full, oversize, stale, nothing and not cancelled bind nothing for later; ticks are held apart.
        _ => return None,
    })
}

impl Fact {
    fn request_id(&self) -> &str {
        match self {
            Fact::Admitted(request) | Fact::BoundOtherwise(request) => &request.id,
            Fact::Claimed { token, .. } | Fact::Done(token) | Fact::Quarantined(token) | Fact::Requeued(token) => {
                &token.request_id
            }
            Fact::Cancelled { request_id } | Fact::Stood { request_id, .. } => request_id,
        }
    }

    fn is_borne_out(&self, task: &Task) -> bool {
        let generation = task.generation;
        match self {
            Fact::Admitted(request) => *task.request == *request,
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
