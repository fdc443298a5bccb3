//! What `results.json` holds, in the order in which it stands there.

use std::collections::BTreeMap;

use durable_admission::{LEASE_TICKS, Limits, Snapshot, Token, Usage};
use serde::{Serialize, Serializer};

/// Raised when the shape of the file changes.
const FORMAT: u32 = 2;

#[derive(Serialize)]
pub struct Results {
    format: u32,
    protocol: Protocol,
    words: Words,
    #[serde(serialize_with = "in_order")]
    pub groups: Vec<(&'static str, Group)>,
}

impl Results {
    pub fn new(limits: &Limits, groups: Vec<(&'static str, Group)>) -> Results {
        let allowance =
            |allowance: durable_admission::Allowance| Allowance { count: allowance.count, bytes: allowance.bytes };
        Results {
            format: FORMAT,
            protocol: Protocol {
                limits: RecordedLimits {
                    global: allowance(limits.global),
                    tenant: allowance(limits.tenant),
                    payload_bytes: limits.payload_bytes,
                },
                lease_ticks: LEASE_TICKS,
            },
            words: WORDS,
            groups,
        }
    }
}

#[derive(Serialize)]
struct Protocol {
    limits: RecordedLimits,
    lease_ticks: i64,
}

/// For a reader who has only this file.
#[derive(Serialize)]
struct Words {
    usage: &'static str,
    tenants: &'static str,
    payload: &'static str,
    because: &'static str,
    tick: &'static str,
    token: &'static str,
    generation: &'static str,
    lease: &'static str,
    dies_at: &'static str,
    written: &'static str,
    wal_left_to_recover: &'static str,
    processes: &'static str,
    end: &'static str,
}

const WORDS: Words = Words {
    usage: "[count, payload bytes] of the outstanding tasks (queued, inflight, quarantined) after the step",
    tenants: "the usage of each tenant that holds some; where a race decides which, tenants_holding says how many do",
    payload: "text, repeated so many times, and its whole length in UTF-8 bytes",
    because: "why a budget refused: used + needed is over limit",
    tick: "the caller's logical clock; a verb that is given one stores it, with all else that its transaction writes",
    token: "request id and generation: the right to report on one claim",
    generation: "raised by each claim and each redrive; 0 means that nobody ever claimed the task",
    lease: "the tick at which the claim runs out",
    dies_at: "the process ends itself here, in the middle of the verb, by exit code 73; found is what a fresh connection sees",
    written: "tables that the verb had changed when it died; not_yet_written: those it would have changed after that",
    wal_left_to_recover: "frames: the dead process left committed changes in the write-ahead log alone; nothing: it left no log",
    processes: "so many processes, each with the store open, are let go together once all of them are ready",
    end: "what a fresh connection sees after the last step",
};

#[derive(Serialize)]
struct RecordedLimits {
    global: Allowance,
    tenant: Allowance,
    payload_bytes: u64,
}

#[derive(Serialize)]
struct Allowance {
    count: u64,
    bytes: u64,
}

#[derive(Serialize)]
pub struct Group {
    pub shows: &'static str,
    #[serde(flatten)]
    pub story: Story,
}

/// A group's steps on one store, or those of each crash boundary on a store of its own.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Story {
    One(Scene),
    Boundaries {
        #[serde(serialize_with = "in_order")]
        boundaries: Vec<(&'static str, Scene)>,
    },
}

#[derive(Serialize)]
pub struct Scene {
    pub steps: Vec<Step>,
    pub end: End,
}

/// One verb: what went in, what came back, what was held afterwards.
#[derive(Serialize)]
pub struct Step {
    pub verb: &'static str,
    #[serde(flatten)]
    pub input: Input,
    #[serde(flatten)]
    pub outcome: Outcome,
    pub usage: Held,
    #[serde(flatten)]
    pub holders: Holders,
}

#[derive(Clone, Serialize)]
#[serde(untagged)]
pub enum Input {
    Request { request: Request },
    Id { request_id: String },
    Token { token: RecordedToken },
    Report { token: RecordedToken, tick: i64 },
    Tick { tick: i64 },
    Race { processes: usize, requests: &'static str },
}

#[derive(Clone, Serialize)]
pub struct Request {
    pub id: String,
    pub tenant: String,
    pub payload: Payload,
}

/// Long payloads stay readable: this text, so many times.
#[derive(Clone, Copy, Serialize)]
pub struct Payload {
    text: &'static str,
    times: usize,
    bytes: usize,
}

impl Payload {
    pub const fn new(text: &'static str, times: usize) -> Payload {
        Payload { text, times, bytes: text.len() * times }
    }

    pub fn text(&self) -> String {
        self.text.repeat(self.times)
    }
}

#[derive(Clone, Serialize)]
pub struct RecordedToken {
    request_id: String,
    generation: i64,
}

impl From<&Token> for RecordedToken {
    fn from(token: &Token) -> Self {
        RecordedToken { request_id: token.request_id.clone(), generation: token.generation }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub enum Outcome {
    Answer {
        answer: String,
    },
    Full {
        answer: String,
        because: Because,
    },
    Oversize {
        answer: String,
        payload_bytes: u64,
        limit: u64,
    },
    Claimed {
        answer: &'static str,
        claim: RecordedClaim,
    },
    /// Counts by answer; who won is not frozen.
    Race {
        answers: BTreeMap<String, u64>,
    },
    Death {
        dies_at: &'static str,
        exit_code: i32,
        written: Vec<&'static str>,
        not_yet_written: Vec<&'static str>,
        wal_left_to_recover: Wal,
        found: End,
    },
}

/// Why a budget refused: `used + needed > limit`.
#[derive(Serialize)]
pub struct Because {
    pub budget: &'static str,
    pub used: u64,
    pub needed: u64,
    pub limit: u64,
}

#[derive(Serialize)]
pub struct RecordedClaim {
    pub token: RecordedToken,
    pub tenant: String,
    pub payload: String,
    pub lease: i64,
}

/// What the dead process left of the write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wal {
    /// Frames that the next opener has to recover.
    Frames,
    /// An empty file or none: nothing was committed to it.
    Nothing,
}

/// `[count, bytes]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Held(pub u64, pub u64);

impl From<Usage> for Held {
    fn from(usage: Usage) -> Self {
        Held(usage.count, usage.bytes)
    }
}

/// Who holds the room.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Holders {
    /// Each tenant that holds some.
    Each { tenants: BTreeMap<String, Held> },
    /// Where a race decided who: how many tenants hold some.
    Counted { tenants_holding: usize },
}

/// What a fresh connection finds.
#[derive(Serialize)]
pub struct End {
    pub usage: Held,
    #[serde(flatten)]
    pub holders: Holders,
    pub tick: i64,
    pub intents: u64,
    pub effects: u64,
    pub tasks: Tasks,
}

#[derive(Serialize)]
#[serde(untagged)]
pub enum Tasks {
    /// In order of admission.
    Each(Vec<Task>),
    /// Where a race decided which: how many are in each state.
    Counted(BTreeMap<&'static str, u64>),
}

#[derive(Serialize)]
pub struct Task {
    id: String,
    state: &'static str,
    generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<i64>,
}

impl End {
    pub fn of(snapshot: &Snapshot) -> End {
        let tasks = snapshot.tasks.iter().map(|task| Task {
            id: task.request_id.clone(),
            state: task.state.name(),
            generation: task.generation,
            lease: task.lease,
        });
        End { tasks: Tasks::Each(tasks.collect()), holders: Holders::each(snapshot), ..End::counted(snapshot) }
    }

    pub fn counted(snapshot: &Snapshot) -> End {
        let mut states = BTreeMap::new();
        for task in &snapshot.tasks {
            *states.entry(task.state.name()).or_default() += 1;
        }
        End {
            usage: snapshot.usage.into(),
            holders: Holders::counted(snapshot),
            tick: snapshot.tick,
            intents: snapshot.intents,
            effects: snapshot.effects,
            tasks: Tasks::Counted(states),
        }
    }
}

impl Holders {
    pub fn each(snapshot: &Snapshot) -> Holders {
        let tenants = snapshot.tenants.iter().map(|(tenant, usage)| (tenant.clone(), Held::from(*usage)));
        Holders::Each { tenants: tenants.collect() }
    }

    pub fn counted(snapshot: &Snapshot) -> Holders {
        Holders::Counted { tenants_holding: snapshot.tenants.len() }
    }
}

pub fn in_order<T: Serialize, S: Serializer>(entries: &[(&'static str, T)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(entries.iter().map(|(name, entry)| (name, entry)))
}
