//! The model's verbs, asked of a real store, and what it says in the model's words.

use durable_admission::{self as library, Observer, SharedStore, Store};

use crate::model::{Answer, Budget, Error, Full, Limits, Scope, Snapshot, Status, Token, Usage, Verb};

/// The two kinds of store have the same verbs, and no trait in common.
macro_rules! answer {
    ($store:expr, $verb:expr) => {
        answered(|| {
            Ok(match $verb {
                Verb::Admit(request) => {
                    let asked = library::Request {
                        request_id: &request.id,
                        tenant: &request.tenant,
                        payload: &request.payload,
                    };
                    match $store.admit(asked)? {
                        library::Admission::Accepted => Answer::Accepted,
                        library::Admission::Replay => Answer::Replay,
                        library::Admission::Conflict => Answer::Conflict,
                        library::Admission::Oversize { payload_bytes, limit } => {
                            Answer::Oversize { payload_bytes, limit }
                        }
                        library::Admission::Full(full) => Answer::Full(said_full(full)),
                    }
                }
                Verb::Claim { tick } => match $store.claim(*tick)? {
                    Some(library::Claim { token, tenant, payload, lease }) => {
                        let token = Token { request_id: token.request_id, generation: token.generation };
                        Answer::Claimed { token, tenant, payload, lease }
                    }
                    None => Answer::Nothing,
                },
                Verb::Resolve { token, tick } => match $store.resolve(&library_token(token), *tick)? {
                    library::Resolution::Done => Answer::Done,
                    library::Resolution::Stale => Answer::Stale,
                },
                Verb::Quarantine { token, tick } => match $store.quarantine(&library_token(token), *tick)? {
                    library::Quarantine::Quarantined => Answer::Quarantined,
                    library::Quarantine::Stale => Answer::Stale,
                },
                Verb::Redrive { token } => match $store.redrive(&library_token(token))? {
                    library::Redrive::Requeued => Answer::Requeued,
                    library::Redrive::Stale => Answer::Stale,
                },
                Verb::CancelUnstarted { request_id } => match $store.cancel_unstarted(request_id)? {
                    library::Cancellation::Cancelled => Answer::Cancelled,
                    library::Cancellation::NotCancelled => Answer::NotCancelled,
                },
                Verb::Status { request_id } => {
                    Answer::Status($store.status(request_id)?.map(|task| said_status(&task)))
                }
                Verb::Snapshot => Answer::Snapshot(said_snapshot($store.snapshot()?)),
            })
        })
    };
}

/// What a real store said.
#[derive(Debug)]
pub enum Said {
    /// An answer or an error that the model knows.
    Heard(Result<Answer, Error>),
    /// An error of the machine, which the model doesn't know.
    Failed(library::Error),
}

impl Said {
    /// # Errors
    /// Of the machine.
    pub fn heard(self) -> library::Result<Result<Answer, Error>> {
        match self {
            Said::Heard(heard) => Ok(heard),
            Said::Failed(error) => Err(error),
        }
    }
}

pub fn perform<O: Observer>(store: &mut Store<O>, verb: &Verb) -> Said {
    said(answer!(store, verb))
}

/// As [`perform`], by one of the threads that share a store.
pub fn perform_shared<O: Observer>(store: &SharedStore<O>, verb: &Verb) -> Said {
    said(answer!(store, verb))
}

fn said(answer: library::Result<Answer>) -> Said {
    match answer {
        Ok(answer) => Said::Heard(Ok(answer)),
        Err(library::Error::Input { .. }) => Said::Heard(Err(Error::Input)),
        Err(library::Error::TickMovedBack { given, stored }) => {
            Said::Heard(Err(Error::TickMovedBack { stored, given }))
        }
        Err(library::Error::Ceiling { number: "generation", .. }) => Said::Heard(Err(Error::GenerationCeiling)),
        Err(error) => Said::Failed(error),
    }
}

/// The five limits that a store is opened with; the lease is the library's own.
pub fn library_limits(limits: &Limits) -> library::Limits {
    let allowance = |usage: Usage| library::Allowance { count: usage.count, bytes: usage.bytes };
    library::Limits {
        global: allowance(limits.global),
        tenant: allowance(limits.tenant),
        payload_bytes: limits.payload_bytes,
    }
}

fn answered(ask: impl FnOnce() -> library::Result<Answer>) -> library::Result<Answer> {
    ask()
}

fn library_token(token: &Token) -> library::Token {
    library::Token { request_id: token.request_id.clone(), generation: token.generation }
}

fn said_full(full: library::Full) -> Full {
    let library::Full { scope, budget, used, limit, needed } = full;
    let scope = match scope {
        library::Scope::Global => Scope::Global,
        library::Scope::Tenant => Scope::Tenant,
    };
    let budget = match budget {
        library::Budget::Count => Budget::Count,
        library::Budget::Bytes => Budget::Bytes,
    };
    Full { scope, budget, used, limit, needed }
}

fn said_usage(usage: library::Usage) -> Usage {
    Usage { count: usage.count, bytes: usage.bytes }
}

fn said_status(task: &library::Task) -> Status {
    Status { state: task.state.name().to_owned(), generation: task.generation }
}

fn said_snapshot(snapshot: library::Snapshot) -> Snapshot {
    Snapshot {
        usage: said_usage(snapshot.usage),
        tenants: snapshot.tenants.into_iter().map(|(tenant, usage)| (tenant, said_usage(usage))).collect(),
        tick: snapshot.tick,
        tasks: snapshot.tasks.into_iter().map(|task| (task.request_id.clone(), said_status(&task))).collect(),
        intents: snapshot.intents,
        effects: snapshot.effects,
    }
}
