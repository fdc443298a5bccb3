//! What goes beyond the eleven groups: walks over all that could happen, each counted, and the counts frozen in
//! `experiments/sweeps.json`.
//!
//! The table comes first; a sweep is a row of it and a file beneath.

pub mod ground;
pub mod exhaustive;
pub mod kill;
pub mod power;
pub mod teeth;
pub mod fault;
pub mod histories;
pub mod nemesis;
pub mod random;
pub mod worker;
pub mod group;
pub mod instant;
pub mod limits;
pub mod tampered;

mod aftermath;
mod bench;
mod counterexample;
mod crowd;
mod journey;
mod perform;
mod recovery;
mod reopen;
mod stage;
mod together;
mod tour;
mod world;

use std::time::Instant;

use serde::Serialize;

use crate::baseline::outcome::{Run, Seen};
use crate::baseline::read::{Document, Member, Node, Value};
use crate::baseline::write::document_of;
use crate::baseline::{self, Subject};
use crate::job::{Job, Played};
use crate::process::NotMeasured;
use crate::progress::Progress;
use ground::Ground;

pub const SWEEPS: [Sweep; 12] = [
    Sweep {
        name: "exhaustive",
        shows: "in every state of a small world every verb answers and leaves behind what the reference model says",
        run: exhaustive::sweep,
        replay: Some(exhaustive::visit_on_request),
    },
    Sweep {
        name: "random",
        shows: "long random sequences with larger numbers answer and leave behind what the reference model says",
        run: random::sweep,
        replay: None,
    },
    Sweep {
        name: "kill",
        shows: "a process that dies at any write, truncate, sync or delete of any verb leaves the state before or the state after, and the same request again puts it right",
        run: kill::sweep,
        replay: Some(kill::replay),
    },
    Sweep {
        name: "fault",
        shows: "whatever fault a disk reports at whatever call, an answer is the state after, an error the state before or after, and the same request again puts it right",
        run: fault::sweep,
        replay: Some(fault::replay),
    },
    Sweep {
        name: "power",
        shows: "after a power cut anywhere in a run over all verbs there is all that was acknowledged, and no half verb",
        run: power::sweep,
        replay: Some(power::replay),
    },
    Sweep {
        name: "teeth",
        shows: "the power sweep convicts every setting and every disk that is wrong",
        run: teeth::sweep,
        replay: Some(teeth::replay),
    },
    Sweep {
        name: "histories",
        shows: "what twelve at once heard, some killed in the middle, and what is found afterwards, has one order in the model",
        run: histories::sweep,
        replay: None,
    },
    Sweep {
        name: "nemesis",
        shows: "of all that twelve processes at once had heard when SIGKILL met them, round after round, nothing is lost",
        run: nemesis::sweep,
        replay: None,
    },
    Sweep {
        name: "group",
        shows: "requests that share a commit hear, in the order in which they came, what each would have heard alone, and none before the COMMIT",
        run: group::sweep,
        replay: None,
    },
    Sweep {
        name: "snapshot",
        shows: "a snapshot taken while another connection writes is one instant",
        run: instant::sweep,
        replay: None,
    },
    Sweep {
        name: "limits",
        shows: "opening again with any other limit is refused and changes nothing",
        run: limits::sweep,
        replay: None,
    },
    Sweep {
        name: "audit",
        shows: "whatever invariant is broken by hand, the audit names it",
        run: tampered::sweep,
        replay: None,
    },
];

pub struct Sweep {
    pub name: &'static str,
    pub shows: &'static str,
    run: fn(&Ground<'_>) -> Result<Found, NotMeasured>,
    /// Plays one point of the sweep again, by the id that its counterexample gave; `None` where there are no points.
    replay: Option<ReplayPoint>,
}

type ReplayPoint = fn(&Ground<'_>, &str) -> Result<Replay, NotMeasured>;

/// What one point of a sweep came to; each a text of whole lines.
pub enum Replay {
    Legal(String),
    Convicted(String),
    /// No such point.
    Unknown(String),
}

/// Plays one point again. It is compared with no file.
///
/// # Errors
/// Why it could not be measured.
pub fn replay(name: &str, point: &str) -> Result<Replay, NotMeasured> {
    let Some((sweep, replay)) =
        SWEEPS.iter().filter(|sweep| sweep.name == name).find_map(|sweep| Some((sweep, sweep.replay?)))
    else {
        return Ok(Replay::Unknown(format!("{name} has no points; leave --point out")));
    };
    replay(&Ground::prepare(sweep.name, &Progress::Quiet)?, point)
}

/// What a sweep came to.
pub struct Found {
    /// What is frozen: counts and the names of what was counted.
    figures: Node,
    /// What no baseline can excuse, the smallest counterexample first.
    broken: Vec<String>,
}

impl Found {
    /// `broken`: one sentence for each fault, in an order that is the same in every run.
    ///
    /// # Errors
    /// Figures that JSON can't hold.
    pub fn new(figures: &impl Serialize, broken: Vec<String>) -> Result<Found, NotMeasured> {
        let document = document_of(figures).map_err(|error| NotMeasured { what: error.to_string() })?;
        Ok(Found { figures: document.root().clone(), broken: few(broken) })
    }
}

/// More than these tell a reader nothing new.
const SENTENCES: usize = 10;

fn few(mut sentences: Vec<String>) -> Vec<String> {
    let more = sentences.len().saturating_sub(SENTENCES);
    sentences.truncate(SENTENCES);
    if more > 0 {
        sentences.push(format!("and {more} more"));
    }
    sentences
}

/// The job behind `experiments/sweeps.json`.
pub struct AllSweeps;

impl Job for AllSweeps {
    fn subject(&self) -> Subject {
        baseline::SWEEPS
    }

    fn names(&self) -> Vec<&'static str> {
        SWEEPS.iter().map(|sweep| sweep.name).collect()
    }

    fn play(&self, selected: &[&'static str], progress: &Progress) -> Result<Played, NotMeasured> {
        let mut measured = Vec::new();
        let mut seen = Vec::new();
        for sweep in SWEEPS.iter().filter(|sweep| selected.contains(&sweep.name)) {
            progress.begin(sweep.name);
            let began = Instant::now();
            let found = Ground::prepare(sweep.name, progress).and_then(|ground| (sweep.run)(&ground));
            let (run, what) = match found {
                Ok(Found { figures, broken }) => {
                    measured.push(Member { name: sweep.name.to_owned(), node: described(sweep, figures) });
                    if broken.is_empty() { (Run::Measured, "swept") } else { (Run::Broken(broken), "is broken") }
                }
                Err(error) => (Run::NotMeasured(error.what), "could not be measured"),
            };
            progress.end(&format!("{} {what} ({} ms)", sweep.name, began.elapsed().as_millis()));
            seen.push(Seen { name: sweep.name.to_owned(), sentence: sweep.shows.to_owned(), run });
        }
        Ok(Played { document: frozen(measured), seen })
    }
}

/// Raised when the shape of the file changes.
const FORMAT: i64 = 1;

fn frozen(sweeps: Vec<Member>) -> Document {
    let member = |name: &str, value: Value| Member { name: name.to_owned(), node: value.unplaced() };
    let root = vec![member("format", Value::Integer(FORMAT)), member(baseline::SWEEPS.member, Value::Object(sweeps))];
    Document::from_root(Value::Object(root).unplaced())
}

/// The sentence before the figures.
fn described(sweep: &Sweep, figures: Node) -> Node {
    let shows = Member { name: "shows".to_owned(), node: Value::Text(sweep.shows.to_owned()).unplaced() };
    let figures = match figures.value {
        Value::Object(members) => members,
        other => vec![Member { name: "figures".to_owned(), node: other.unplaced() }],
    };
    Value::Object([shows].into_iter().chain(figures).collect()).unplaced()
}
