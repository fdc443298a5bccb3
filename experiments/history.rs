//! Whether what concurrent processes heard can be explained: is there one order of their operations, each somewhere between
//! its invocation and its return, in which the model gives every one of these answers and ends in the state that was found?
//!
//! The search is Wing and Gong's with Lowe's memory of configurations already visited. Three things keep it small, and
//! none of them changes the verdict:
//! - an operation that changes nothing and whose answer fits is taken at once: where it fits later, it changes nothing there
//!   either, so any order that takes it later can take it now;
//! - a branch ends where the state could not precede the one found at the end (`State::may_precede`);
//! - the visited memory keeps 128-bit fingerprints. Two that collide could end a branch too early: a wrong conviction with
//!   a probability of about 10^-24, never a wrong pass.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Display};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{self, Answer, Error, Full, Limits, Phase, Request, State, Token, Verb};

/// What was recorded of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    pub limits: Limits,
    /// Before the first operation.
    pub initial: State,
    /// In any order. Operations of one process must not overlap; a process that was killed invokes nothing more.
    pub operations: Vec<Operation>,
    pub last_read: LastRead,
}

/// The whole logical state found after reopening, when all processes had ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LastRead {
    Found(State),
    /// Found after more operations than the history still holds: its state must only be able to precede this one.
    FoundLater(State),
    Nobody,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    pub process: u32,
    pub verb: Verb,
    /// Nanoseconds on the monotonic clock, taken before the verb was called.
    pub invoked: u64,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Came back with this. Returned: nanoseconds on the same clock, taken after the verb came back. Errors that change
    /// nothing and that the model doesn't know (busy) are no operations: leave them out. Errors that may hide a commit
    /// (I/O) are `Unknown`.
    Known { returned: u64, result: Result<Answer, Error> },
    /// Never came back: takes effect at some time after its invocation, or never.
    Unknown,
    /// Came back, but its answer is held against nobody. Only shrinking makes these.
    Forgotten { returned: u64 },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Linearizable {
        /// Indexes into `History::operations`: the order that explains them all. Those missing never took effect.
        order: Vec<usize>,
        visited: usize,
    },
    NotLinearizable {
        stuck: Stuck,
        visited: usize,
    },
    /// The budget ran out first. No pass.
    Unknown {
        visited: usize,
    },
}

/// The longest explanation that the search found, and what could not come next.
#[derive(Clone, Debug, PartialEq)]
pub struct Stuck {
    /// Indexes into `History::operations`.
    pub order: Vec<usize>,
    pub state: State,
    /// Operations that real time allowed next, each with what the model says in that state.
    pub next: Vec<(usize, Result<Answer, Error>)>,
}

/// Judges a history, visiting at most `budget` configurations (operations taken so far, state).
pub fn check(history: &History, budget: usize) -> Verdict {
    Search::new(history).run(budget)
}

/// A failing history made smaller, or itself. Every step only weakens it, so that whatever explains the original explains
/// the result too, and the result's conviction is the original's:
/// - *cut*: what was invoked after an instant is dropped, what returned after it becomes unknown, the last read
///   only says what the state could still become;
/// - *drop*: an operation that could not have changed anything, given its answer, is dropped whole;
/// - *forget*: an operation that may have changed something stays where it is, but may have answered anything.
///
/// Nothing else is dropped: without an admission that others depend on, a sound history would look unsound.
/// Stops after about `attempts` checks of `budget` configurations each.
pub fn shrink(history: &History, budget: usize, attempts: usize) -> History {
    let mut attempts = attempts;
    let mut still_fails = |candidate: &History| {
        attempts = attempts.saturating_sub(1);
        attempts > 0 && matches!(check(candidate, budget), Verdict::NotLinearizable { .. })
    };
    let mut smallest = history.clone();
    cut(&mut smallest, &mut still_fails);
    weaken(&mut smallest, &mut still_fails, dropped);
    weaken(&mut smallest, &mut still_fails, forgotten);
    smallest
}

/// Prefixes of a sound history are sound, so the shortest failing one is found by bisection.
fn cut(smallest: &mut History, still_fails: &mut impl FnMut(&History) -> bool) {
    let mut instants: Vec<u64> = smallest.operations.iter().flat_map(Operation::returned).collect();
    instants.sort_unstable();
    let whole = smallest.clone();
    let (mut passes, mut fails) = (0, instants.len());
    while passes < fails {
        let middle = passes + (fails - passes) / 2;
        let prefix = until(&whole, instants[middle]);
        if still_fails(&prefix) {
            *smallest = prefix;
            fails = middle;
        } else {
            passes = middle + 1;
        }
    }
}

fn until(whole: &History, instant: u64) -> History {
    let invoked = whole.operations.iter().filter(|operation| operation.invoked <= instant);
    let operations = invoked.cloned().map(|operation| match operation.returned() {
        Some(returned) if returned > instant => Operation { outcome: Outcome::Unknown, ..operation },
        Some(_) | None => operation,
    });
    let last_read = whole.last_read.clone().seen_earlier();
    History { operations: operations.collect(), last_read, ..whole.clone() }
}

/// Weakens ever smaller runs of operations, from halves down to single ones, and keeps what still fails.
fn weaken(
    smallest: &mut History,
    still_fails: &mut impl FnMut(&History) -> bool,
    what_is_left: fn(&Operation) -> Option<Operation>,
) {
    let mut length = smallest.operations.len().div_ceil(2);
    while length > 0 {
        let mut end = smallest.operations.len();
        while end > 0 {
            let start = end.saturating_sub(length);
            let mut operations = smallest.operations[..start].to_vec();
            operations.extend(smallest.operations[start..end].iter().filter_map(what_is_left));
            operations.extend_from_slice(&smallest.operations[end..]);
            let candidate = History { operations, ..smallest.clone() };
            if candidate != *smallest && still_fails(&candidate) {
                *smallest = candidate;
            }
            end = start;
        }
        length /= 2;
    }
}

fn dropped(operation: &Operation) -> Option<Operation> {
    (!operation.changed_nothing()).then(|| operation.clone())
}

fn forgotten(operation: &Operation) -> Option<Operation> {
    let outcome = match operation.outcome {
        Outcome::Known { returned, .. } | Outcome::Forgotten { returned } => Outcome::Forgotten { returned },
        Outcome::Unknown => Outcome::Unknown,
    };
    Some(Operation { outcome, ..operation.clone() })
}

impl LastRead {
    fn seen_earlier(self) -> LastRead {
        match self {
            LastRead::Found(state) | LastRead::FoundLater(state) => LastRead::FoundLater(state),
            LastRead::Nobody => LastRead::Nobody,
        }
    }

    fn may_follow(&self, state: &State) -> bool {
        match self {
            LastRead::Found(last) | LastRead::FoundLater(last) => state.may_precede(last),
            LastRead::Nobody => true,
        }
    }

    fn is_met_by(&self, state: &State) -> bool {
        match self {
            LastRead::Found(last) => state == last,
            LastRead::FoundLater(_) | LastRead::Nobody => self.may_follow(state),
        }
    }
}

impl Operation {
    pub fn returned(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Known { returned, .. } | Outcome::Forgotten { returned } => Some(returned),
            Outcome::Unknown => None,
        }
    }

    /// Whether this verb, with the answer it gave, leaves every state as it was.
    fn changed_nothing(&self) -> bool {
        if matches!(self.verb, Verb::Status { .. } | Verb::Snapshot) {
            return true;
        }
        let Outcome::Known { result, .. } = &self.outcome else {
            return false;
        };
        let Ok(answer) = result else { return true };
        match answer {
            Answer::Replay | Answer::Conflict | Answer::Oversize { .. } | Answer::Full(_) | Answer::NotCancelled => {
                true
            }
            // The verbs with a tick store it.
            Answer::Stale => matches!(self.verb, Verb::Redrive { .. }),
            Answer::Accepted
            | Answer::Claimed { .. }
            | Answer::Nothing
            | Answer::Done
            | Answer::Quarantined
            | Answer::Requeued
            | Answer::Cancelled
            | Answer::Status(_)
            | Answer::Snapshot(_) => false,
        }
    }
}

/// One configuration on the path that is being tried.
struct Frame {
    state: State,
    /// How many operations had been taken when this frame was entered.
    taken: usize,
    /// Operations to try next, the last one first.
    untried: Vec<usize>,
}

struct Search<'history> {
    history: &'history History,
    /// Those that came back, by invocation: they must all be taken.
    due: Vec<usize>,
    /// Those that never came back.
    open: Vec<usize>,
    taken: Vec<bool>,
    order: Vec<usize>,
    /// Everything before it in `due` has been taken.
    first_due: usize,
    fingerprints: Fingerprints,
    deepest: Option<Stuck>,
}

impl<'history> Search<'history> {
    fn new(history: &'history History) -> Search<'history> {
        let operations = &history.operations;
        let by_invocation = |came_back: bool| {
            let mut chosen: Vec<usize> =
                (0..operations.len()).filter(|&index| operations[index].returned().is_some() == came_back).collect();
            chosen.sort_by_key(|&index| operations[index].invoked);
            chosen
        };
        Search {
            history,
            due: by_invocation(true),
            open: by_invocation(false),
            taken: vec![false; operations.len()],
            order: Vec::new(),
            first_due: 0,
            fingerprints: Fingerprints::new(history),
            deepest: None,
        }
    }

    fn run(mut self, budget: usize) -> Verdict {
        let mut visited = HashSet::new();
        let mut path: Vec<Frame> = Vec::new();
        let mut entering = Some(self.history.initial.clone());
        loop {
            if let Some(state) = entering.take() {
                let taken = path.last().map_or(0, |_| self.order.len() - 1);
                self.take_what_changes_nothing(&state);
                if self.explains_all(&state) {
                    return Verdict::Linearizable { order: self.order, visited: visited.len() };
                }
                let untried = if visited.insert(self.fingerprints.of(&self.taken, &state)) {
                    if visited.len() > budget {
                        return Verdict::Unknown { visited: budget };
                    }
                    self.candidates()
                } else {
                    Vec::new()
                };
                self.remember_if_deepest(&state, &untried);
                path.push(Frame { state, taken, untried });
            }
            let Some(frame) = path.last_mut() else {
                let stuck = self.deepest.unwrap_or_else(|| Stuck {
                    order: Vec::new(),
                    state: self.history.initial.clone(),
                    next: Vec::new(),
                });
                return Verdict::NotLinearizable { stuck, visited: visited.len() };
            };
            match frame.untried.pop() {
                Some(index) => {
                    let next = self.fitting(index, &frame.state);
                    if let Some(after) = next.filter(|after| self.history.last_read.may_follow(after)) {
                        self.take(index);
                        entering = Some(after);
                    }
                }
                None => {
                    let taken = frame.taken;
                    path.pop();
                    self.give_back(taken);
                }
            }
        }
    }

    /// The state after the operation, if its answer fits there. One that never came back and changes nothing need not
    /// be taken at all.
    fn fitting(&self, index: usize, state: &State) -> Option<State> {
        let operation = &self.history.operations[index];
        let heard = model::step(&self.history.limits, state, &operation.verb);
        match (&operation.outcome, heard) {
            (Outcome::Known { result: Ok(answer), .. }, Ok((after, expected))) => {
                (*answer == expected).then_some(after)
            }
            (Outcome::Known { result: Err(error), .. }, Err(expected)) => (*error == expected).then(|| state.clone()),
            (Outcome::Known { .. }, Ok(_) | Err(_)) => None,
            (Outcome::Forgotten { .. }, Ok((after, _))) => Some(after),
            (Outcome::Forgotten { .. }, Err(_)) => Some(state.clone()),
            (Outcome::Unknown, Ok((after, _))) => (after != *state).then_some(after),
            (Outcome::Unknown, Err(_)) => None,
        }
    }

    fn explains_all(&self, state: &State) -> bool {
        self.first_due == self.due.len() && self.history.last_read.is_met_by(state)
    }

    fn take_what_changes_nothing(&mut self, state: &State) {
        loop {
            let next = self.due_candidates();
            // Not the forgotten: one that changes nothing here may have to change something later.
            let harmless: Vec<usize> = next
                .into_iter()
                .filter(|&index| matches!(self.history.operations[index].outcome, Outcome::Known { .. }))
                .filter(|&index| self.fitting(index, state).as_ref() == Some(state))
                .collect();
            if harmless.is_empty() {
                return;
            }
            for index in harmless {
                self.take(index);
            }
        }
    }

    /// The last is the likeliest: the one that came back first. Those that never came back are tried when nothing else fits.
    fn candidates(&self) -> Vec<usize> {
        let operations = &self.history.operations;
        let bound = self.earliest_return();
        let mut chosen: Vec<usize> = self
            .open
            .iter()
            .copied()
            .filter(|&index| !self.taken[index] && operations[index].invoked <= bound)
            .collect();
        chosen.reverse();
        let mut due = self.due_candidates();
        due.sort_by_key(|&index| std::cmp::Reverse(operations[index].returned()));
        chosen.extend(due);
        chosen
    }

    /// An operation may come next unless another one, not yet taken, had returned before it was invoked.
    fn due_candidates(&self) -> Vec<usize> {
        let bound = self.earliest_return();
        let waiting = self.due[self.first_due..].iter().copied();
        waiting
            .take_while(|&index| self.history.operations[index].invoked <= bound)
            .filter(|&index| !self.taken[index])
            .collect()
    }

    fn earliest_return(&self) -> u64 {
        let mut bound = u64::MAX;
        for &index in &self.due[self.first_due..] {
            let operation = &self.history.operations[index];
            if operation.invoked > bound {
                break;
            }
            if let (false, Some(returned)) = (self.taken[index], operation.returned()) {
                bound = bound.min(returned);
            }
        }
        bound
    }

    fn take(&mut self, index: usize) {
        self.taken[index] = true;
        self.order.push(index);
        while self.due.get(self.first_due).is_some_and(|&index| self.taken[index]) {
            self.first_due += 1;
        }
    }

    fn give_back(&mut self, taken: usize) {
        for index in self.order.drain(taken..) {
            self.taken[index] = false;
        }
        self.first_due = self.due.iter().position(|&index| !self.taken[index]).unwrap_or(self.due.len());
    }

    fn remember_if_deepest(&mut self, state: &State, untried: &[usize]) {
        let explained = |order: &[usize]| {
            order.iter().filter(|&&index| self.history.operations[index].returned().is_some()).count()
        };
        if self.deepest.as_ref().is_some_and(|deepest| explained(&deepest.order) >= explained(&self.order)) {
            return;
        }
        let answer = |&index: &usize| {
            let verb = &self.history.operations[index].verb;
            (index, model::step(&self.history.limits, state, verb).map(|(_, answer)| answer))
        };
        self.deepest = Some(Stuck {
            order: self.order.clone(),
            state: state.clone(),
            next: untried.iter().rev().map(answer).collect(),
        });
    }
}

/// A history for people: a lane for each process, its operations beneath, and where the explanation got stuck.
pub struct Timeline<'history> {
    pub history: &'history History,
    pub verdict: &'history Verdict,
}

/// Characters of a lane before it goes on in the next block.
const LANE: usize = 96;

impl Display for Timeline<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operations = &self.history.operations;
        let mut by_invocation: Vec<usize> = (0..operations.len()).collect();
        by_invocation.sort_by_key(|&index| operations[index].invoked);
        let mut number_of = vec![0; operations.len()];
        for (number, &index) in (1..).zip(&by_invocation) {
            number_of[index] = number;
        }
        let answer_matters = |index: &usize| !matches!(operations[*index].outcome, Outcome::Forgotten { .. });
        let shown: Vec<usize> = by_invocation.into_iter().filter(answer_matters).collect();
        self.lanes(out, &shown, &number_of)?;
        if shown.len() < operations.len() {
            let hidden = operations.len() - shown.len();
            writeln!(out, "not shown: {hidden} operations; whatever they answered, these can't be explained")?;
        }
        let origin = shown.first().map_or(0, |&index| operations[index].invoked);
        for &index in &shown {
            let operation = &operations[index];
            let after = |instant: u64| format!("{:.1}", (instant - origin) as f64 / 1000.0);
            let returned = operation.returned().map_or_else(|| "?".to_owned(), after);
            writeln!(
                out,
                "{:>4}  process {:<3} {:>9} to {:>9} µs  {}: {}",
                number_of[index],
                operation.process,
                after(operation.invoked),
                returned,
                Said(&operation.verb),
                operation.outcome
            )?;
        }
        match &self.history.last_read {
            LastRead::Found(last) => writeln!(out, "last read: {}", Seen(last))?,
            LastRead::FoundLater(last) => writeln!(out, "read later: {}", Seen(last))?,
            LastRead::Nobody => {}
        }
        match self.verdict {
            Verdict::Linearizable { order, visited } => {
                writeln!(out, "linearizable, in the order {}; {visited} visited", numbers(order, &number_of))
            }
            Verdict::Unknown { visited } => {
                writeln!(out, "unknown: the budget of {visited} ran out; raise it")
            }
            Verdict::NotLinearizable { stuck, visited } => {
                writeln!(out, "not linearizable; {visited} visited; the longest explanation:")?;
                writeln!(out, "  {}", numbers(&stuck.order, &number_of))?;
                writeln!(out, "  leads to {}", Seen(&stuck.state))?;
                if stuck.next.is_empty() {
                    writeln!(out, "  and nothing is left to explain the last read")?;
                }
                for (index, expected) in &stuck.next {
                    let expected = Heard(expected);
                    writeln!(out, "  where {} could come next and would hear {expected}", number_of[*index])?;
                }
                Ok(())
            }
        }
    }
}

impl Timeline<'_> {
    /// Time runs by rank, not to scale: each invocation and each return gets a place of its own.
    fn lanes(&self, out: &mut fmt::Formatter<'_>, shown: &[usize], number_of: &[usize]) -> fmt::Result {
        let operations = &self.history.operations;
        let mut instants: Vec<u64> = shown.iter().map(|&index| operations[index].invoked).collect();
        instants.extend(shown.iter().flat_map(|&index| operations[index].returned()));
        instants.sort_unstable();
        instants.dedup();
        let place = operations.len().to_string().len() + 1;
        let column = |instant: u64| instants.partition_point(|&earlier| earlier < instant) * place;
        let width = (instants.len() + 1) * place;
        let mut lanes: BTreeMap<u32, Vec<char>> = BTreeMap::new();
        for &index in shown {
            let operation = &operations[index];
            let lane = lanes.entry(operation.process).or_insert_with(|| vec![' '; width]);
            let start = column(operation.invoked);
            let (end, last) = match operation.returned() {
                Some(returned) => (column(returned), '┤'),
                None => (start + place, '?'),
            };
            lane[start..end].fill('─');
            lane[start] = '├';
            lane[end] = last;
            for (cell, digit) in lane[start + 1..end].iter_mut().zip(number_of[index].to_string().chars()) {
                *cell = digit;
            }
        }
        for from in (0..width).step_by(LANE) {
            for (process, lane) in &lanes {
                let part: String = lane[from..width.min(from + LANE)].iter().collect();
                writeln!(out, "process {process:<3} {}", part.trim_end())?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// The end of a long order is what matters.
fn numbers(order: &[usize], number_of: &[usize]) -> String {
    let from = order.len().saturating_sub(24);
    let mut numbers: Vec<String> = order[from..].iter().map(|&index| number_of[index].to_string()).collect();
    if from > 0 {
        numbers.insert(0, "…".to_owned());
    }
    numbers.join(" ")
}

/// Names and payloads are the caller's: quoted, with control characters escaped.
struct Said<'verb>(&'verb Verb);

impl Display for Said<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Verb::Admit(request) => {
                let Request { id, tenant, payload } = request.as_ref();
                write!(out, "admit {id:?} of {tenant:?}, {} bytes", payload.len())
            }
            Verb::Claim { tick } => write!(out, "claim at {tick}"),
            Verb::Resolve { token, tick } => write!(out, "resolve {} at {tick}", Held(token)),
            Verb::Quarantine { token, tick } => write!(out, "quarantine {} at {tick}", Held(token)),
            Verb::Redrive { token } => write!(out, "redrive {}", Held(token)),
            Verb::CancelUnstarted { request_id } => write!(out, "cancel_unstarted {request_id:?}"),
            Verb::Status { request_id } => write!(out, "status {request_id:?}"),
            Verb::Snapshot => write!(out, "snapshot"),
        }
    }
}

struct Held<'token>(&'token Token);

impl Display for Held<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} generation {}", self.0.request_id, self.0.generation)
    }
}

impl Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Known { result, .. } => Heard(result).fmt(out),
            Outcome::Unknown => write!(out, "never came back"),
            Outcome::Forgotten { .. } => write!(out, "came back"),
        }
    }
}

struct Heard<'result>(&'result Result<Answer, Error>);

impl Display for Heard<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = match self.0 {
            Ok(answer) => answer,
            Err(Error::TickMovedBack { stored, given }) => {
                return write!(out, "error: tick moved back from {stored} to {given}");
            }
            Err(error @ (Error::Input | Error::GenerationCeiling)) => {
                return write!(out, "{}", error.name());
            }
        };
        write!(out, "{}", answer.name())?;
        match answer {
            Answer::Claimed { token, .. } => write!(out, " {}", Held(token)),
            Answer::Full(full) => {
                let Full { budget, used, needed, limit, .. } = full;
                write!(out, ": {budget:?} {used} + {needed} > {limit}")
            }
            Answer::Status(Some(status)) => {
                write!(out, ": {} generation {}", status.state, status.generation)
            }
            Answer::Status(None) => write!(out, ": unknown id"),
            Answer::Snapshot(snapshot) => write!(out, ": {snapshot:?}"),
            Answer::Accepted
            | Answer::Replay
            | Answer::Conflict
            | Answer::Oversize { .. }
            | Answer::Nothing
            | Answer::Done
            | Answer::Quarantined
            | Answer::Requeued
            | Answer::Stale
            | Answer::Cancelled
            | Answer::NotCancelled => Ok(()),
        }
    }
}

struct Seen<'state>(&'state State);

impl Display for Seen<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "tick {}", self.0.tick)?;
        for task in &self.0.tasks {
            write!(out, "; {:?} {} generation {}", task.request.id, task.phase.name(), task.generation)?;
            if let Phase::Inflight { lease } = task.phase {
                write!(out, " lease {lease}")?;
            }
        }
        Ok(())
    }
}

/// Configurations as 128 bits, under keys drawn anew for each search.
struct Fingerprints {
    keys: [RandomState; 2],
    /// Equal requests have equal numbers. By address: a state shares the requests of the verbs that brought them.
    requests: HashMap<*const Request, u64>,
}

impl Fingerprints {
    fn new(history: &History) -> Fingerprints {
        let tasks = history.initial.tasks.iter().map(|task| &task.request);
        let admitted = history.operations.iter().filter_map(|operation| match &operation.verb {
            Verb::Admit(request) => Some(request),
            Verb::Claim { .. }
            | Verb::Resolve { .. }
            | Verb::Quarantine { .. }
            | Verb::Redrive { .. }
            | Verb::CancelUnstarted { .. }
            | Verb::Status { .. }
            | Verb::Snapshot => None,
        });
        let mut numbers: HashMap<&Request, u64> = HashMap::new();
        let mut requests = HashMap::new();
        for request in tasks.chain(admitted) {
            let next = numbers.len() as u64;
            let number = *numbers.entry(request.as_ref()).or_insert(next);
            requests.insert(Arc::as_ptr(request), number);
        }
        Fingerprints { keys: [RandomState::new(), RandomState::new()], requests }
    }

    fn of(&self, taken: &[bool], state: &State) -> [u64; 2] {
        let tasks: Vec<_> = state
            .tasks
            .iter()
            .map(|task| (self.requests.get(&Arc::as_ptr(&task.request)), task.phase, task.generation))
            .collect();
        let configuration = (taken, state.tick, tasks);
        self.keys.each_ref().map(|key| key.hash_one(&configuration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;
    use crate::model::{FIXTURE, Usage};

    const ROOMY: Limits =
        Limits { global: Usage { count: 40, bytes: 4000 }, tenant: Usage { count: 15, bytes: 2000 }, ..FIXTURE };

    /// What a simulated process is at.
    enum At {
        Idle,
        Called { index: usize },
        Decided { index: usize, result: Result<Answer, Error> },
        Dead,
    }

    /// A sound history: every operation takes effect, in the model, at one instant between its invocation and its return.
    /// One process in four dies in the middle of an operation, before or after that instant.
    fn simulated(seed: u64, limits: Limits, processes: usize, operations: usize) -> History {
        let mut dice = Dice::new(seed);
        let mut history =
            History { limits, initial: State::default(), operations: Vec::new(), last_read: LastRead::Nobody };
        let mut state = State::default();
        let mut tokens: Vec<Token> = Vec::new();
        let mut at: Vec<At> = (0..processes).map(|_| At::Idle).collect();
        let mut now = 0;
        while at.iter().any(|at| !matches!(at, At::Idle | At::Dead)) || history.operations.len() < operations {
            now += 1000;
            if at.iter().all(|at| matches!(at, At::Dead)) {
                break;
            }
            let process = dice.below(processes);
            let dies = process % 4 == 3 && dice.below(20) == 0;
            at[process] = match std::mem::replace(&mut at[process], At::Dead) {
                At::Called { .. } | At::Decided { .. } if dies => At::Dead,
                At::Idle if history.operations.len() < operations => {
                    let verb = any_verb(&mut dice, &tokens, state.tick);
                    let operation =
                        Operation { process: process as u32, verb, invoked: now, outcome: Outcome::Unknown };
                    history.operations.push(operation);
                    At::Called { index: history.operations.len() - 1 }
                }
                At::Called { index } => {
                    let result = model::step(&limits, &state, &history.operations[index].verb);
                    let result = result.map(|(after, answer)| {
                        state = after;
                        answer
                    });
                    if let Ok(Answer::Claimed { token, .. }) = &result {
                        tokens.push(token.clone());
                    }
                    At::Decided { index, result }
                }
                At::Decided { index, result } => {
                    history.operations[index].outcome = Outcome::Known { returned: now, result };
                    At::Idle
                }
                idle_or_dead @ (At::Idle | At::Dead) => idle_or_dead,
            };
        }
        history.last_read = LastRead::Found(state);
        history
    }

    fn any_verb(dice: &mut Dice, tokens: &[Token], tick: i64) -> Verb {
        let id = format!("task-{}", dice.below(60));
        let recent = tokens.len().saturating_sub(6);
        let token = match tokens.len() {
            0 => Token { request_id: id.clone(), generation: 1 },
            _ => tokens[recent + dice.below(tokens.len() - recent)].clone(),
        };
        // Mostly the present, sometimes late, sometimes ahead.
        let tick = tick + [0, 0, 0, 0, 1, 1, 2][dice.below(7)] - [0, 0, 0, 0, 1][dice.below(5)];
        let tick = tick.max(0);
        match dice.below(20) {
            0..6 => Verb::Admit(Request::new(&id, ["a", "b", "c"][id.len() % 3], &"é".repeat(dice.below(3)))),
            6..11 => Verb::Claim { tick },
            11..14 => Verb::Resolve { token, tick },
            14..16 => Verb::Quarantine { token, tick },
            16..17 => Verb::Redrive { token },
            17..18 => Verb::CancelUnstarted { request_id: id },
            18..19 => Verb::Status { request_id: id },
            _ => Verb::Snapshot,
        }
    }

    const BUDGET: usize = 200_000;

    fn histories() -> impl Iterator<Item = (u64, History)> {
        (0..60).map(|seed| (seed, simulated(seed, if seed % 2 == 0 { FIXTURE } else { ROOMY }, 12, 240)))
    }

    fn found(history: &History) -> &State {
        match &history.last_read {
            LastRead::Found(state) => state,
            LastRead::FoundLater(_) | LastRead::Nobody => panic!("no last read"),
        }
    }

    #[track_caller]
    fn expect_rejected(seed: u64, history: &History) {
        let verdict = check(history, BUDGET);
        let rejected = matches!(verdict, Verdict::NotLinearizable { .. });
        assert!(rejected, "seed {seed}\n{}", Timeline { history, verdict: &verdict });
    }

    /// Says it without the search: one after another, in real time's order, everything that came back, the state found.
    #[track_caller]
    fn expect_explains(history: &History, order: &[usize]) {
        let mut state = history.initial.clone();
        let mut latest_invocation = 0;
        let mut taken = HashSet::new();
        for &index in order {
            let operation = &history.operations[index];
            assert!(taken.insert(index));
            assert!(operation.returned().is_none_or(|returned| latest_invocation <= returned));
            latest_invocation = latest_invocation.max(operation.invoked);
            let heard = model::step(&history.limits, &state, &operation.verb);
            if let Outcome::Known { result, .. } = &operation.outcome {
                assert_eq!(heard.as_ref().map(|(_, answer)| answer), result.as_ref());
            }
            if let Ok((after, _)) = heard {
                state = after;
            }
        }
        let came_back = |&index: &usize| history.operations[index].returned().is_some();
        assert!((0..history.operations.len()).filter(came_back).all(|index| taken.contains(&index)));
        assert!(history.last_read.is_met_by(&state));
    }

    #[test]
    fn what_the_model_itself_answered_is_linearizable() {
        let (mut most, mut unknown_outcomes) = (0, 0);
        for (seed, history) in histories() {
            unknown_outcomes += history.operations.iter().filter(|one| one.returned().is_none()).count();
            match check(&history, BUDGET) {
                Verdict::Linearizable { order, visited } => {
                    expect_explains(&history, &order);
                    most = most.max(visited);
                }
                verdict @ (Verdict::NotLinearizable { .. } | Verdict::Unknown { .. }) => {
                    panic!("seed {seed}\n{}", Timeline { history: &history, verdict: &verdict })
                }
            }
        }
        println!("at most {most} visited, {unknown_outcomes} unknown outcomes");
        assert!(unknown_outcomes > 60);
    }

    /// One answer flipped so that no order can explain it, by an argument that needs no search. `None`: not for this one.
    fn flipped(history: &History, index: usize) -> Option<(&'static str, Answer)> {
        let Operation { verb, outcome: Outcome::Known { result: Ok(answer), .. }, .. } = &history.operations[index]
        else {
            return None;
        };
        // Nobody else did or may have done the same.
        let alone = |same: &dyn Fn(&Verb) -> bool| {
            let others =
                history.operations.iter().enumerate().filter(|(other, one)| *other != index && same(&one.verb));
            others.into_iter().all(|(_, one)| match &one.outcome {
                Outcome::Known { result, .. } => result.as_ref() != Ok(answer),
                Outcome::Unknown | Outcome::Forgotten { .. } => false,
            })
        };
        let ended = |id: &str, phase: Phase| {
            let tasks = &found(history).tasks;
            tasks.iter().any(|task| task.request.id == id && task.phase == phase)
        };
        match (verb, answer) {
            (Verb::Admit(request), Answer::Accepted) if index.is_multiple_of(2) => alone(&|other| match other {
                Verb::Admit(other) => other.id == request.id,
                _ => false,
            })
            .then_some(("accepted by nobody", Answer::Replay)),
            (Verb::Admit(_), Answer::Accepted) => {
                Some(("oversize though it is not", Answer::Oversize { payload_bytes: 97, limit: 96 }))
            }
            (Verb::Admit(_), Answer::Replay) => Some(("accepted twice", Answer::Accepted)),
            (Verb::Admit(_), Answer::Full(full)) => {
                Some(("never as full", Answer::Full(Full { used: full.used + 1000, ..*full })))
            }
            (Verb::Claim { .. }, Answer::Nothing) => {
                let claimed = history.operations.iter().find_map(|one| match &one.outcome {
                    Outcome::Known { result: Ok(claimed @ Answer::Claimed { .. }), .. } => Some(claimed.clone()),
                    Outcome::Known { .. } | Outcome::Unknown | Outcome::Forgotten { .. } => None,
                });
                claimed.map(|claimed| ("one generation claimed twice", claimed))
            }
            (Verb::Claim { .. }, Answer::Claimed { token, tenant, payload, lease }) => {
                let token = Token { generation: token.generation + 1000, ..token.clone() };
                let (tenant, payload) = (tenant.clone(), payload.clone());
                Some(("a generation that never was", Answer::Claimed { token, tenant, payload, lease: *lease }))
            }
            (Verb::Resolve { token, .. }, Answer::Done) if ended(&token.request_id, Phase::Done) => {
                let same = alone(&|other| match other {
                    Verb::Resolve { token: other, .. } => other.request_id == token.request_id,
                    _ => false,
                });
                same.then_some(("done by nobody", Answer::Stale))
            }
            (Verb::Resolve { token, .. }, Answer::Stale) if ended(&token.request_id, Phase::Done) => {
                let once = history.operations.iter().any(|one| match (&one.verb, &one.outcome) {
                    (Verb::Resolve { token: other, .. }, Outcome::Known { result: Ok(Answer::Done), .. }) => {
                        other.request_id == token.request_id
                    }
                    _ => false,
                });
                once.then_some(("done twice", Answer::Done))
            }
            (Verb::CancelUnstarted { request_id }, Answer::Cancelled) => {
                let same = alone(&|other| match other {
                    Verb::CancelUnstarted { request_id: other } => other == request_id,
                    _ => false,
                });
                same.then_some(("cancelled by nobody", Answer::NotCancelled))
            }
            (Verb::CancelUnstarted { request_id }, Answer::NotCancelled) => {
                let known = ended(request_id, Phase::Done);
                known.then_some(("cancelled though done", Answer::Cancelled))
            }
            _ => None,
        }
    }

    fn with_answer(history: &History, index: usize, answer: Answer) -> History {
        let mut lie = history.clone();
        if let Outcome::Known { result, .. } = &mut lie.operations[index].outcome {
            *result = Ok(answer);
        }
        lie
    }

    #[test]
    fn one_flipped_answer_is_rejected() {
        let mut convicted: BTreeMap<&str, usize> = BTreeMap::new();
        for (seed, history) in histories() {
            for index in 0..history.operations.len() {
                if let Some((why, answer)) = flipped(&history, index)
                    && *convicted.entry(why).or_default() < 25
                {
                    expect_rejected(seed, &with_answer(&history, index, answer));
                    *convicted.entry(why).or_default() += 1;
                }
            }
        }
        println!("{convicted:?}");
        assert_eq!(convicted.len(), 10);
        assert!(convicted.values().all(|&count| count > 5), "{convicted:?}");
    }

    #[test]
    fn a_last_read_that_lost_or_gained_anything_is_rejected() {
        for (seed, history) in histories() {
            let last = found(&history).clone();
            let mut lies = vec![State { tick: last.tick + 1, ..last.clone() }];
            let mut shorter = last.clone();
            shorter.tasks.pop();
            lies.push(shorter);
            let mut swapped = last.clone();
            swapped.tasks.swap(0, 1);
            lies.push(swapped);
            let mut undone = last.clone();
            let accepted_for_sure = undone.tasks.iter_mut().find(|task| task.phase == Phase::Done);
            lies.extend(accepted_for_sure.is_some().then(|| {
                undone.tasks.iter_mut().find(|task| task.phase == Phase::Done).unwrap().generation += 1;
                undone
            }));
            for lie in lies {
                expect_rejected(seed, &History { last_read: LastRead::Found(lie), ..history.clone() });
            }
        }
    }

    /// Every order and every subset of what never came back, without memory or any other shortcut.
    fn brute_force(history: &History, taken: &mut Vec<usize>, state: &State) -> bool {
        let operations = &history.operations;
        let waiting: Vec<usize> = (0..operations.len()).filter(|index| !taken.contains(index)).collect();
        let all_back_taken = waiting.iter().all(|&index| operations[index].returned().is_none());
        if all_back_taken && history.last_read.is_met_by(state) {
            return true;
        }
        let bound = waiting.iter().filter_map(|&index| operations[index].returned()).min().unwrap_or(u64::MAX);
        waiting.iter().filter(|&&index| operations[index].invoked <= bound).any(|&index| {
            let heard = model::step(&history.limits, state, &operations[index].verb);
            let fits = match &operations[index].outcome {
                Outcome::Known { result, .. } => heard.as_ref().map(|(_, answer)| answer) == result.as_ref(),
                Outcome::Unknown | Outcome::Forgotten { .. } => true,
            };
            let after = heard.map_or_else(|_| state.clone(), |(after, _)| after);
            taken.push(index);
            let explained = fits && brute_force(history, taken, &after);
            taken.pop();
            explained
        })
    }

    /// A short history in which answers, outcomes and the last read may have been exchanged, so that both verdicts occur.
    fn doubtful(seed: u64) -> History {
        let mut dice = Dice::new(seed);
        let mut history = simulated(seed, FIXTURE, 5, 8);
        for id in &mut history.operations {
            // Few ids, so that they meet.
            if let (Verb::Admit(request), 0) = (&id.verb, dice.below(2)) {
                id.verb = Verb::Admit(Request::new("task-1", &request.tenant, &request.payload));
            }
        }
        for _ in 0..dice.below(3) {
            let (one, other) = (dice.below(8), dice.below(8));
            let lent = history.operations[other].outcome.clone();
            match (&mut history.operations[one].outcome, lent) {
                (Outcome::Known { result, .. }, Outcome::Known { result: lent, .. }) => *result = lent,
                (Outcome::Known { returned, .. }, Outcome::Unknown | Outcome::Forgotten { .. }) => {
                    history.operations[one].outcome = Outcome::Forgotten { returned: *returned };
                }
                (Outcome::Unknown | Outcome::Forgotten { .. }, _) => {}
            }
        }
        for _ in 0..dice.below(3) {
            history.operations[dice.below(8)].outcome = Outcome::Unknown;
        }
        if dice.below(2) == 0 {
            history.last_read = history.last_read.seen_earlier();
        }
        history
    }

    #[test]
    fn the_search_agrees_with_trying_every_order() {
        let (mut sound, mut unsound) = (0, 0);
        for seed in 0..3000 {
            let history = doubtful(seed);
            let verdict = check(&history, BUDGET);
            let found = match &verdict {
                Verdict::Linearizable { order, .. } => {
                    expect_explains(&history, order);
                    true
                }
                Verdict::NotLinearizable { .. } => false,
                Verdict::Unknown { .. } => panic!("seed {seed}: no verdict"),
            };
            let there_is = brute_force(&history, &mut Vec::new(), &history.initial);
            assert_eq!(found, there_is, "seed {seed}\n{}", Timeline { history: &history, verdict: &verdict });
            if there_is { sound += 1 } else { unsound += 1 }
        }
        println!("{sound} sound, {unsound} unsound");
        assert!(sound > 500 && unsound > 500);
    }

    #[test]
    fn a_spent_budget_is_unknown() {
        let (_, history) = histories().next().unwrap();
        assert_eq!(check(&history, 3), Verdict::Unknown { visited: 3 });
    }

    #[test]
    fn weakening_never_convicts_a_sound_history() {
        for (seed, history) in histories().take(20) {
            let mut dice = Dice::new(seed);
            let instant = history.operations[dice.below(240)].invoked;
            let without = |what_is_left: fn(&Operation) -> Option<Operation>, of: &History| History {
                operations: of.operations.iter().filter_map(what_is_left).collect(),
                ..of.clone()
            };
            for weaker in [until(&history, instant), without(dropped, &history)] {
                let verdict = check(&weaker, BUDGET);
                assert!(matches!(verdict, Verdict::Linearizable { .. }), "seed {seed}");
            }
            // All forgotten is too much for the search at this length.
            let weaker = without(forgotten, &until(&history, history.operations[30].invoked));
            assert!(!matches!(check(&weaker, BUDGET), Verdict::NotLinearizable { .. }), "seed {seed}");
        }
    }

    #[test]
    fn a_failing_history_shrinks_and_still_fails() {
        let (seed, history) = histories().next().unwrap();
        let lie = (150..240).find_map(|index| match flipped(&history, index) {
            Some(("one generation claimed twice", answer)) => Some(with_answer(&history, index, answer)),
            Some(_) | None => None,
        });
        let lie = lie.unwrap();
        let smallest = shrink(&lie, 3_000, 1_000);
        expect_rejected(seed, &smallest);
        let verdict = check(&smallest, BUDGET);
        println!("{}", Timeline { history: &smallest, verdict: &verdict });
        assert!(smallest.operations.len() < lie.operations.len() / 2);
    }

    #[test]
    fn a_timeline_shows_lanes_answers_and_what_was_expected() {
        let known = |returned, answer| Outcome::Known { returned, result: Ok(answer) };
        let operation = |process, invoked, verb, outcome| Operation { process, verb, invoked, outcome };
        let history = History {
            limits: FIXTURE,
            initial: State::default(),
            operations: vec![
                operation(1, 1000, Verb::Admit(Request::new("one", "a", "é")), known(4000, Answer::Accepted)),
                operation(2, 2000, Verb::Claim { tick: 0 }, Outcome::Unknown),
                operation(1, 5000, Verb::CancelUnstarted { request_id: "one".to_owned() }, known(6000, Answer::Stale)),
            ],
            last_read: LastRead::Nobody,
        };
        let verdict = check(&history, BUDGET);
        let expected = "\
process 1   ├1──┤ ├3┤
process 2     ├2?

   1  process 1         0.0 to       3.0 µs  admit \"one\" of \"a\", 2 bytes: accepted
   2  process 2         1.0 to         ? µs  claim at 0: never came back
   3  process 1         4.0 to       5.0 µs  cancel_unstarted \"one\": stale
not linearizable; 3 visited; the longest explanation:
  1
  leads to tick 0; \"one\" queued generation 0
  where 3 could come next and would hear cancelled
  where 2 could come next and would hear claimed \"one\" generation 1
";
        assert_eq!(Timeline { history: &history, verdict: &verdict }.to_string(), expected);
    }
}
