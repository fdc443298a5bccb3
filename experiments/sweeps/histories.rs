//! Twelve real processes at once, some killed in the middle: what they heard, and what is found afterwards, must have an
//! explanation in the reference model. Two lies put into every history must have none.

use std::path::Path;

use serde::Serialize;

use super::Found;
use super::crowd::{self, CameBack, End, Member};
use super::ground::Ground;
use super::reopen::reopened;
use super::worker::{Reads, Work};
use crate::dice::Dice;
use crate::history::{History, LastRead, Operation, Outcome, Timeline, Verdict, check, shrink};
use crate::model::{Answer, FIXTURE, State, Verb};
use crate::process::NotMeasured;

const ROUNDS: usize = 32;
const PROCESSES: usize = 12;
/// Of each process that is not killed.
const VERBS: usize = 40;
/// In each round.
const KILLED: usize = 3;
/// Configurations that one check may visit.
const BUDGET: usize = 2_000_000;
/// What shrinking a failing history may cost: configurations of one check, and checks.
const SHRINKING: (usize, usize) = (20_000, 2_000);

/// What may be frozen: nothing that the schedule decides.
#[derive(Default, Serialize)]
struct Summary {
    rounds: usize,
    processes: usize,
    verbs_of_each_not_killed: usize,
    killed: usize,
    not_linearizable: usize,
    lies_put_in: usize,
    lies_rejected: usize,
}

/// One round's verdict.
struct Judged {
    calls: usize,
    /// Of the calls: those during which a call of another process was under way.
    met: usize,
    died_in_a_verb: usize,
    broken: Vec<String>,
    lies_rejected: usize,
    not_linearizable: usize,
}

/// Into every history: an answer exchanged, and a last read altered.
const LIES: usize = 2;

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let rounds: Vec<u64> = (0..ROUNDS as u64).collect();
    let judged = ground.for_each(&rounds, |&seed| round(ground, seed))?;
    let sum = |of: fn(&Judged) -> usize| -> usize { judged.iter().map(of).sum() };
    // Processes that take turns would make any history easy to explain.
    if sum(|round| round.met) * 4 < sum(|round| round.calls) {
        return Err(unknown("the processes hardly ever met in the store; run again"));
    }
    if sum(|round| round.died_in_a_verb) == 0 {
        return Err(unknown("no process died in the middle of a verb; run again"));
    }
    let summary = Summary {
        rounds: ROUNDS,
        processes: PROCESSES,
        verbs_of_each_not_killed: VERBS,
        killed: ROUNDS * KILLED,
        not_linearizable: sum(|round| round.not_linearizable),
        lies_put_in: ROUNDS * LIES,
        lies_rejected: sum(|round| round.lies_rejected),
    };
    Found::new(&summary, judged.into_iter().flat_map(|round| round.broken).collect())
}

fn round(ground: &Ground<'_>, seed: u64) -> Result<Judged, NotMeasured> {
    let store = ground.folder.database(&format!("round-{seed}"))?;
    let told = crowd::play(&members(&store, seed))?;
    let mut broken = Vec::new();
    let mut operations = Vec::new();
    for (process, told) in (1..).zip(told) {
        for call in told.calls {
            match call.came_back {
                CameBack::Heard(outcome) => {
                    operations.push(Operation { process, verb: call.verb, invoked: call.invoked, outcome });
                }
                CameBack::Busy => {}
                CameBack::Damaged(error) => broken.push(format!("round {seed}: {:?} says {error}", call.verb)),
            }
        }
    }
    operations.sort_by_key(|operation| operation.invoked);
    let (met, calls) = (how_many_met(&operations), operations.len());
    let died_in_a_verb = operations.iter().filter(|one| one.outcome == Outcome::Unknown).count();
    let mut judged = Judged { calls, met, died_in_a_verb, broken, lies_rejected: 0, not_linearizable: 0 };
    let found = match reopened(&store)? {
        Ok(found) => found,
        Err(contradictions) => {
            judged.broken.extend(contradictions.into_iter().map(|sentence| format!("round {seed}: {sentence}")));
            return Ok(judged);
        }
    };
    let history =
        History { limits: FIXTURE, initial: State::default(), operations, last_read: LastRead::Found(found.clone()) };
    match check(&history, BUDGET) {
        Verdict::Linearizable { .. } => {}
        Verdict::NotLinearizable { .. } => {
            judged.not_linearizable += 1;
            judged.broken.push(format!("round {seed}: {}", smallest(&history)));
            return Ok(judged);
        }
        Verdict::Unknown { visited } => return Err(out_of_budget(seed, "the history", visited)),
    }
    for (what, lie) in lies(&history, &found) {
        match check(&lie.ok_or_else(|| unknown(&format!("round {seed} gave no occasion to lie: {what}")))?, BUDGET) {
            Verdict::NotLinearizable { .. } => judged.lies_rejected += 1,
            Verdict::Linearizable { .. } => {
                judged.broken.push(format!("round {seed}: a lie passed for the truth: {what}"));
            }
            Verdict::Unknown { visited } => return Err(out_of_budget(seed, what, visited)),
        }
    }
    Ok(judged)
}

fn members(store: &Path, seed: u64) -> Vec<Member> {
    let mut dice = Dice::new(seed);
    let killed = |process: usize, dice: &mut Dice| match process < KILLED {
        true => (None, End::Killed { after_lines: 1 + dice.below(2 * VERBS) }),
        false => (Some(VERBS), End::Finishes),
    };
    (0..PROCESSES)
        .map(|process| {
            let (verbs, end) = killed(process, &mut dice);
            let (parent, store) = (std::process::id(), store.to_owned());
            let work = Work { parent, store, seed: dice.next(), round: 0, reads: Reads::StatusAndSnapshot, verbs };
            Member { work, end }
        })
        .collect()
}

fn how_many_met(operations: &[Operation]) -> usize {
    let meets = |one: &Operation, other: &Operation| {
        other.process != one.process
            && other.returned().is_some_and(|returned| returned >= one.invoked)
            && one.returned().is_some_and(|returned| other.invoked <= returned)
    };
    operations.iter().filter(|one| operations.iter().any(|other| meets(one, other))).count()
}

fn smallest(history: &History) -> String {
    let (budget, attempts) = SHRINKING;
    let smallest = shrink(history, budget, attempts);
    let verdict = check(&smallest, BUDGET);
    format!("no order of these calls explains their answers\n{}", Timeline { history: &smallest, verdict: &verdict })
}

/// What no order can explain, whatever the schedule was. `None`: no such answer in this history.
fn lies(history: &History, found: &State) -> [(&'static str, Option<History>); LIES] {
    let later = State { tick: found.tick + 1, ..found.clone() };
    [
        (
            "one generation claimed twice, or accepted by nobody",
            claimed_twice(history).or_else(|| accepted_by_nobody(history)),
        ),
        ("a tick that nobody gave", Some(History { last_read: LastRead::Found(later), ..history.clone() })),
    ]
}

/// A generation is claimed once: the last claim's answer exchanged for that of the one before.
fn claimed_twice(history: &History) -> Option<History> {
    let claims = history.operations.iter().enumerate().filter_map(|(index, operation)| match &operation.outcome {
        Outcome::Known { result: Ok(claimed @ Answer::Claimed { .. }), .. } => Some((index, claimed)),
        Outcome::Known { .. } | Outcome::Unknown | Outcome::Forgotten { .. } => None,
    });
    let mut claims: Vec<_> = claims.collect();
    let ((last, _), (_, before)) = (claims.pop()?, claims.pop()?);
    Some(with_answer(history, last, before.clone()))
}

/// A replay needs somebody to whom the id was accepted: the only acceptance of an id exchanged for a replay.
fn accepted_by_nobody(history: &History) -> Option<History> {
    let asks_for = |operation: &Operation, id: &str| match &operation.verb {
        Verb::Admit(request) => request.id == id,
        _ => false,
    };
    let accepted = history.operations.iter().position(|one| match (&one.verb, &one.outcome) {
        (Verb::Admit(request), Outcome::Known { result: Ok(Answer::Accepted), .. }) => {
            !history.operations.iter().any(|other| asks_for(other, &request.id) && other.outcome == Outcome::Unknown)
        }
        _ => false,
    })?;
    Some(with_answer(history, accepted, Answer::Replay))
}

fn with_answer(history: &History, index: usize, answer: Answer) -> History {
    let mut lie = history.clone();
    if let Outcome::Known { result, .. } = &mut lie.operations[index].outcome {
        *result = Ok(answer);
    }
    lie
}

fn out_of_budget(seed: u64, what: &str, visited: usize) -> NotMeasured {
    unknown(&format!("round {seed}, {what}: unknown after {visited} configurations; raise the budget"))
}

fn unknown(what: &str) -> NotMeasured {
    NotMeasured { what: what.to_owned() }
}
