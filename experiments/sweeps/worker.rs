//! A child process that performs mixed verbs, seeded, and tells each of its calls: one line before, one after.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use clap::{Args, ValueEnum};
use durable_admission::{self as library, Allowance, Boundary, Limits, Observer, QueueOptions, Store};
use serde::{Deserialize, Serialize};

use super::perform::{Said, perform, perform_shared};
use crate::clock::now;
use crate::dice::Dice;
use crate::fixture;
use crate::model::{Answer, Error, Request, Token, Verb};
use crate::process;

/// What one worker is told, in argv.
#[derive(Args, Clone, Debug)]
pub struct Work {
    pub parent: u32,
    pub store: PathBuf,
    pub seed: u64,
    /// Which round this is: the ids that all workers of one round share begin with it.
    pub round: usize,
    pub play: Play,
    /// As many workers, each a thread; where there is more than one they share a store.
    pub threads: usize,
    /// How many verbs of each thread; without it, until the process is killed.
    pub verbs: Option<usize>,
}

/// How the workers use the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Play {
    /// Few ids and little room, so that they are in each other's way; every reading verb.
    Crowded,
    /// Many ids and room for all, so that most of what is asked is written. History gets long: no snapshots.
    Roomy,
}

impl Play {
    pub fn limits(self) -> Limits {
        match self {
            Play::Crowded => fixture::LIMITS,
            Play::Roomy => Limits {
                global: Allowance { count: 1_000_000, bytes: 1_000_000_000 },
                tenant: Allowance { count: 1_000_000, bytes: 1_000_000_000 },
                ..fixture::LIMITS
            },
        }
    }

    /// Ids that are in play at one time.
    fn ids(self) -> usize {
        match self {
            Play::Crowded => 6,
            Play::Roomy => 200,
        }
    }
}

impl Work {
    pub fn arguments(&self) -> Vec<String> {
        let play = self.play.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let mut arguments = vec!["child".to_owned(), "work".to_owned(), self.parent.to_string()];
        arguments.push(self.store.to_string_lossy().into_owned());
        arguments.extend([self.seed.to_string(), self.round.to_string(), play, self.threads.to_string()]);
        arguments.extend(self.verbs.map(|verbs| verbs.to_string()));
        arguments
    }
}

/// A line of a worker. Instants are nanoseconds on the system's monotonic clock, which is one for all processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Taken before the verb is called, and told before it is called: what is invoked and never returns is seen.
    Invokes { verb: Verb, at: u64 },
    /// Taken after the verb came back.
    Returns { result: Result<Answer, Error>, at: u64 },
    /// An error that changed nothing: no operation.
    Busy,
    /// An error that no sound store gives here.
    Damaged { error: String },
    /// An error of the machine.
    Failed { error: String },
    /// All verbs are performed.
    Finished,
}

/// A line: which thread of the process, and what it tells.
pub type Line = (usize, Event);

/// In the child.
///
/// # Errors
/// What opening, closing or a first look reports.
pub fn work(work: &Work) -> library::Result<()> {
    process::child_started(work.parent);
    let store = Store::open(&work.store, &work.play.limits())?;
    let mut dice = Dice::new(work.seed);
    let mut store = store.observed_by(Dawdler(Dice::new(dice.next())));
    let tick = store.snapshot()?.tick;
    let mut workers: Vec<Worker> = (0..work.threads.max(1))
        .map(|thread| Worker {
            thread,
            dice: Dice::new(dice.next()),
            round: work.round,
            play: work.play,
            performed: 0,
            tick,
            claimed: Vec::new(),
            quarantined: Vec::new(),
        })
        .collect();
    process::await_go();
    match workers.as_mut_slice() {
        [alone] => {
            alone.perform_all(work.verbs, &mut |verb| perform(&mut store, verb));
            tell(0, &Event::Finished);
            store.close()
        }
        workers => {
            let shared = store.shared(QueueOptions::default())?;
            thread::scope(|scope| {
                for worker in workers {
                    let shared = shared.clone();
                    scope.spawn(move || worker.perform_all(work.verbs, &mut |verb| perform_shared(&shared, verb)));
                }
            });
            tell(0, &Event::Finished);
            shared.close()
        }
    }
}

/// Lets others run while it holds the write lock, now and then: on few cores they would hardly meet otherwise.
struct Dawdler(Dice);

impl Observer for Dawdler {
    fn crossed(&mut self, _: Boundary) {
        for _ in 0..self.0.below(4) {
            thread::yield_now();
        }
    }
}

fn tell(thread: usize, event: &Event) {
    match serde_json::to_string(&(thread, event)) {
        Ok(line) => process::tell_parent(&line),
        Err(error) => process::tell_parent(&format!("error: {event:?} is no JSON: {error}")),
    }
}

struct Worker {
    thread: usize,
    dice: Dice,
    round: usize,
    play: Play,
    performed: usize,
    /// The latest tick that it knows of.
    tick: i64,
    /// From its own claims, and not known to be spent.
    claimed: Vec<Token>,
    quarantined: Vec<Token>,
}

impl Worker {
    fn perform_all(&mut self, verbs: Option<usize>, perform: &mut impl FnMut(&Verb) -> Said) {
        while verbs.is_none_or(|verbs| self.performed < verbs) {
            // On few cores one process would be through before the next has begun.
            thread::yield_now();
            self.perform_one(perform);
        }
    }

    fn perform_one(&mut self, perform: &mut impl FnMut(&Verb) -> Said) {
        let verb = self.next_verb();
        tell(self.thread, &Event::Invokes { verb: verb.clone(), at: now() });
        let said = perform(&verb);
        let at = now();
        self.performed += 1;
        let event = match said {
            Said::Heard(result) => {
                self.learn(&verb, &result);
                Event::Returns { result, at }
            }
            Said::Failed(library::Error::Busy(_) | library::Error::QueueFull { .. }) => Event::Busy,
            Said::Failed(library::Error::Corrupt(error)) => Event::Damaged { error },
            Said::Failed(error) => Event::Failed { error: error.to_string() },
        };
        tell(self.thread, &event);
    }

    fn next_verb(&mut self) -> Verb {
        match self.dice.below(20) {
            0..7 => Verb::Admit(self.some_request()),
            7..11 => Verb::Claim { tick: self.some_tick() },
            11..14 => Verb::Resolve { token: self.some_token(), tick: self.some_tick() },
            14..15 => Verb::Quarantine { token: self.some_token(), tick: self.some_tick() },
            15..16 => Verb::Redrive { token: self.quarantined.pop().unwrap_or_else(|| self.guessed_token()) },
            16..18 => Verb::CancelUnstarted { request_id: self.some_id().name() },
            18..19 => Verb::Status { request_id: self.some_id().name() },
            _ => match self.play {
                Play::Crowded => Verb::Snapshot,
                Play::Roomy => Verb::Status { request_id: self.some_id().name() },
            },
        }
    }

    fn learn(&mut self, verb: &Verb, result: &Result<Answer, Error>) {
        match (verb, result) {
            (_, Err(Error::TickMovedBack { stored, .. })) => self.tick = self.tick.max(*stored),
            (_, Err(Error::Input | Error::GenerationCeiling)) => {}
            (_, Ok(Answer::Claimed { token, .. })) => self.claimed.push(token.clone()),
            (Verb::Quarantine { token, .. }, Ok(Answer::Quarantined)) => self.quarantined.push(token.clone()),
            (_, Ok(Answer::Snapshot(snapshot))) => self.tick = self.tick.max(snapshot.tick),
            (_, Ok(_)) => {}
        }
    }

    /// Mostly the present, sometimes ahead, sometimes late. The others move the clock too, so the present is often late.
    fn some_tick(&mut self) -> i64 {
        match self.dice.below(40) {
            0 => self.tick += 5,
            1..5 => self.tick += 1,
            5..7 => return (self.tick - 1).max(0),
            _ => {}
        }
        self.tick
    }

    fn some_token(&mut self) -> Token {
        let recent = self.claimed.len().saturating_sub(3);
        if self.claimed.is_empty() || self.dice.one_in(6) {
            return self.guessed_token();
        }
        let chosen = recent + self.dice.below(self.claimed.len() - recent);
        // Spent tokens report in vain; a few of them are enough.
        if self.dice.one_in(4) { self.claimed[chosen].clone() } else { self.claimed.remove(chosen) }
    }

    fn guessed_token(&mut self) -> Token {
        Token { request_id: self.some_id().name(), generation: self.dice.one_of(&[1, 1, 1, 2, 2, 3]) }
    }

    fn some_id(&mut self) -> Id {
        if self.round > 0 && self.dice.one_in(12) {
            return Id { round: self.dice.below(self.round), number: self.dice.below(self.play.ids()) };
        }
        Id { round: self.round, number: self.performed / 4 + self.dice.below(self.play.ids()) }
    }

    fn some_request(&mut self) -> Arc<Request> {
        let id = self.some_id();
        match self.dice.below(16) {
            0 => Request::new(&id.name(), "d", &id.payload()),
            1 => Request::new(&id.name(), id.tenant(), &format!("{}.", id.payload())),
            2 => Request::new(&id.name(), id.tenant(), &"x".repeat(97)),
            _ => Request::new(&id.name(), id.tenant(), &id.payload()),
        }
    }
}

/// All workers ask for the same under one id, unless they mean to be in conflict.
#[derive(Clone, Copy)]
struct Id {
    round: usize,
    number: usize,
}

impl Id {
    fn name(self) -> String {
        format!("{}-{}", self.round, self.number)
    }

    fn tenant(self) -> &'static str {
        ["a", "b", "c"][self.number % 3]
    }

    fn payload(self) -> String {
        ["", "abc", "é", "門", "😀"][self.number % 5].repeat(1 + self.number * 7 % 23)
    }
}
