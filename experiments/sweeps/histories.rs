//! Twelve at once, some killed in the middle: what they heard, and what is found afterwards, must have an explanation in the
//! reference model. Two lies put into every history must have none.

use std::fmt::{self, Display};
use std::path::Path;

use serde::Serialize;

use super::Found;
use super::crowd::{self, CameBack, End, Member};
use super::ground::Ground;
use super::reopen::reopened;
use super::worker::{Play, Work};
use crate::dice::Dice;
use crate::history::{History, LastRead, Operation, Outcome, Timeline, Verdict, check, shrink};
use crate::model::{Answer, FIXTURE, State, Verb};
use crate::process::NotMeasured;

/// In each of the two ways.
const ROUNDS: usize = 24;
/// Of each thread of a process that is not killed.
const VERBS: usize = 40;
/// Configurations that one check may visit.
const BUDGET: usize = 2_000_000;
/// What shrinking a failing history may cost: configurations of one check, and checks.
const SHRINKING: (usize, usize) = (20_000, 2_000);

/// Who is at the store: so many processes of so many threads. Threads of one process share a store, and so its commits.
struct Way {
    name: &'static str,
    processes: usize,
    threads: usize,
    /// Processes that are killed, in each round.
    killed: usize,
}

const WAYS: [Way; 2] = [
    Way { name: "twelve processes", processes: 12, threads: 1, killed: 3 },
    Way { name: "three processes of four threads that share a store", processes: 3, threads: 4, killed: 1 },
];

/// What may be frozen: nothing that the schedule decides.
#[derive(Serialize)]
struct Summary {
    ways: Vec<OneWay>,
}

#[derive(Serialize)]
struct OneWay {
    way: &'static str,
    rounds: usize,
    verbs_of_each_not_killed: usize,
    processes_killed: usize,
    not_linearizable: usize,
    lies_put_in: usize,
    lies_rejected: usize,
}

/// One round's verdict.
struct Judged {
    calls: usize,
    /// Of the calls: those during which another one was under way.
    met: usize,
    died_in_a_verb: usize,
    broken: Vec<String>,
    not_linearizable: Option<History>,
    lies_rejected: usize,
}

/// Into every history: an answer exchanged, and a last read altered.
const LIES: usize = 2;

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let mut ways = Vec::new();
    let mut broken = Vec::new();
    let mut smallest = None;
    for way in &WAYS {
        if !broken.is_empty() {
            // What the others would show could only hide it.
            break;
        }
        let rounds: Vec<u64> = (0..ROUNDS as u64).collect();
        let played = ground.for_each(&rounds, |&seed| Ok(way.round(ground, seed)))?;
        let (judged, unmeasured): (Vec<_>, Vec<_>) = played.into_iter().partition(Result::is_ok);
        let judged: Vec<Judged> = judged.into_iter().flatten().collect();
        let sum = |of: fn(&Judged) -> usize| -> usize { judged.iter().map(of).sum() };
        ways.push(OneWay {
            way: way.name,
            rounds: ROUNDS,
            verbs_of_each_not_killed: VERBS,
            processes_killed: ROUNDS * way.killed,
            not_linearizable: judged.iter().filter(|round| round.not_linearizable.is_some()).count(),
            lies_put_in: ROUNDS * LIES,
            lies_rejected: sum(|round| round.lies_rejected),
        });
        let sound = judged.iter().all(|round| round.broken.is_empty() && round.not_linearizable.is_none());
        // One history that is convicted is enough, whatever could not be measured beside it.
        if let (true, Some(Err(why))) = (sound, unmeasured.into_iter().next()) {
            return Err(why);
        }
        // Those who take turns would make any history easy to explain.
        if sound && sum(|round| round.met) * 4 < sum(|round| round.calls) {
            return Err(unknown(&format!("{}: they hardly ever met in the store; run again", way.name)));
        }
        if sound && sum(|round| round.died_in_a_verb) == 0 {
            return Err(unknown(&format!("{}: none died in the middle of a verb; run again", way.name)));
        }
        for (round, judged) in judged.into_iter().enumerate() {
            broken.extend(judged.broken);
            if let Some(history) = judged.not_linearizable {
                broken.push(format!("{}, round {round}: no order of the calls explains their answers", way.name));
                smallest = smallest.or(Some(history));
            }
        }
    }
    // One is enough to read, and shrinking is dear.
    broken.splice(0..0, smallest.map(|history| shrunk(&history)));
    Found::new(&Summary { ways }, broken)
}

impl Way {
    fn round(&self, ground: &Ground<'_>, seed: u64) -> Result<Judged, NotMeasured> {
        let at = At { way: self.name, round: seed };
        let store = ground.folder.database(&format!("{}-{seed}", self.processes))?;
        let lanes = crowd::play(&self.members(&store, seed))?;
        let mut broken = Vec::new();
        let mut operations = Vec::new();
        for (process, lane) in (1..).zip(lanes) {
            for call in lane {
                match call.came_back {
                    CameBack::Heard(outcome) => {
                        operations.push(Operation { process, verb: call.verb, invoked: call.invoked, outcome });
                    }
                    CameBack::Busy => {}
                    CameBack::Damaged(error) => broken.push(format!("{at}: {:?} says {error}", call.verb)),
                }
            }
        }
        operations.sort_by_key(|operation| operation.invoked);
        let (met, calls) = (how_many_met(&operations), operations.len());
        let died_in_a_verb = operations.iter().filter(|one| one.outcome == Outcome::Unknown).count();
        let mut judged = Judged { calls, met, died_in_a_verb, broken, not_linearizable: None, lies_rejected: 0 };
        let found = match reopened(&store, &Play::Crowded.limits())? {
            Ok(found) => found,
            Err(contradictions) => {
                judged.broken.extend(contradictions.into_iter().map(|sentence| format!("{at}: {sentence}")));
                return Ok(judged);
            }
        };
        let history = History {
            limits: FIXTURE,
            initial: State::default(),
            operations,
            last_read: LastRead::Found(found.clone()),
        };
        match check(&history, BUDGET) {
            Verdict::Linearizable { .. } => {}
            Verdict::NotLinearizable { .. } => {
                judged.not_linearizable = Some(history);
                return Ok(judged);
            }
            Verdict::Unknown { visited } => return Err(out_of_budget(&at, "the history", visited)),
        }
        for (what, lie) in lies(&history, &found) {
            match check(&lie.ok_or_else(|| unknown(&format!("{at}: no occasion to lie: {what}")))?, BUDGET) {
                Verdict::NotLinearizable { .. } => judged.lies_rejected += 1,
                Verdict::Linearizable { .. } => {
                    judged.broken.push(format!("{at}: a lie passed for the truth: {what}"));
                }
                Verdict::Unknown { visited } => return Err(out_of_budget(&at, what, visited)),
            }
        }
        Ok(judged)
    }

    fn members(&self, store: &Path, seed: u64) -> Vec<Member> {
        let mut dice = Dice::new(seed);
        let mut member = |process| {
            let (verbs, end) = match process < self.killed {
                true => (None, End::Killed { after_lines: 1 + dice.below(2 * VERBS * self.threads) }),
                false => (Some(VERBS), End::Finishes),
            };
            let work = Work {
                parent: std::process::id(),
                store: store.to_owned(),
                seed: dice.next(),
                round: 0,
                play: Play::Crowded,
                threads: self.threads,
                verbs,
            };
            Member { work, end }
        };
        (0..self.processes).map(&mut member).collect()
    }
}

struct At {
    way: &'static str,
    round: u64,
}

impl Display for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, round {}", self.way, self.round)
    }
}

fn how_many_met(operations: &[Operation]) -> usize {
    let meets = |one: &Operation, other: &Operation| {
        other.process != one.process
            && other.returned().is_some_and(|returned| returned >= one.invoked)
            && one.returned().is_some_and(|returned| other.invoked <= returned)
    };
    operations.iter().filter(|one| operations.iter().any(|other| meets(one, other))).count()
}

fn shrunk(history: &History) -> String {
    let (budget, attempts) = SHRINKING;
    let smallest = shrink(history, budget, attempts);
    let verdict = check(&smallest, BUDGET);
    format!("no order of these calls explains their answers\n{}", Timeline { history: &smallest, verdict: &verdict })
}

/// What no order can explain, whatever the schedule was. `None`: no such answer in this history.
fn lies(history: &History, found: &State) -> [(&'static str, Option<History>); LIES] {
    // Far ahead: what was invoked and never came back could still explain a near one.
    let later = State { tick: found.tick + 1_000_000, ..found.clone() };
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
    let asks_for = |one: &Operation, id: &str| matches!(&one.verb, Verb::Admit(request) if request.id == id);
    let accepted = history.operations.iter().position(|one| {
        let Verb::Admit(request) = &one.verb else { return false };
        let heard = matches!(&one.outcome, Outcome::Known { result: Ok(Answer::Accepted), .. });
        let open = |other: &Operation| other.outcome == Outcome::Unknown && asks_for(other, &request.id);
        heard && !history.operations.iter().any(open)
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

fn out_of_budget(at: &At, what: &str, visited: usize) -> NotMeasured {
    unknown(&format!("{at}, {what}: unknown after {visited} configurations; raise the budget"))
}

fn unknown(what: &str) -> NotMeasured {
    NotMeasured { what: what.to_owned() }
}
