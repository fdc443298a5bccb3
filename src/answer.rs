use std::fmt;

use crate::request::Token;

/// The answer to `admit` (PROTOCOL, *admit*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an unread answer may be a refusal"]
pub enum Admission {
    /// Intent and task are committed; the room is held.
    Accepted,
    /// Accepted before, with the same tenant and payload; not necessarily finished. Nothing was written.
    Replay,
    /// The id is bound to another tenant or payload. Nothing was written.
    Conflict,
    /// The payload alone is over the one-payload limit. Nothing was written or bound.
    Oversize {
        /// The payload's UTF-8 bytes.
        payload_bytes: u64,
        /// The one-payload limit.
        limit: u64,
    },
    /// A budget has no room (`global_full` or `tenant_full`). Nothing was written or bound.
    Full(Full),
}

/// Which budget refused, and by how much: `used + needed > limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Whose budget.
    pub scope: Scope,
    /// Of what.
    pub budget: Budget,
    /// Held by outstanding tasks: tasks or bytes.
    pub used: u64,
    /// The limit, in the same unit.
    pub limit: u64,
    /// What this request needed, in the same unit.
    pub needed: u64,
}

/// Whose budget is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// That of all tenants together.
    Global,
    /// That of the request's tenant.
    Tenant,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Outstanding tasks.
    Count,
    /// Their payload bytes.
    Bytes,
}

/// One claimed task (PROTOCOL, *claim*).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a dropped claim holds its room until its lease runs out"]
pub struct Claim {
    /// The right to report on it.
    pub token: Token,
    /// As admitted.
    pub tenant: String,
    /// As admitted, byte for byte.
    pub payload: String,
    /// The tick at which the lease counts as run out.
    pub lease: i64,
}

/// The answer to `resolve` (PROTOCOL, *resolve*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Resolution {
    /// Effect and end are committed together; the room is free.
    Done,
    /// The token no longer holds the task; no task was changed.
    Stale,
}

/// The answer to `quarantine` (PROTOCOL, *quarantine*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Quarantine {
    /// Set aside; the room stays held.
    Quarantined,
    /// The token no longer holds the task; no task was changed.
    Stale,
}

/// The answer to `redrive` (PROTOCOL, *redrive*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Redrive {
    /// Queued again at its original place; the room was held all along.
    Requeued,
    /// Not quarantined at that generation; nothing was changed.
    Stale,
}

/// The answer to `cancel_unstarted` (PROTOCOL, *cancel_unstarted*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Cancellation {
    /// Ended without ever having been claimed; the room is free.
    Cancelled,
    /// Unknown, claimed at least once, or ended; nothing was changed.
    NotCancelled,
}

/// Gives each answer the name that PROTOCOL uses for it.
macro_rules! named {
    ($type:ident { $($pattern:pat => $name:literal,)+ }) => {
        impl $type {
            /// The answer's name in PROTOCOL.
            pub fn name(&self) -> &'static str {
                match self { $($pattern => $name,)+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named!(Admission {
    Admission::Accepted => "accepted",
    Admission::Replay => "replay",
    Admission::Conflict => "conflict",
    Admission::Oversize { .. } => "oversize",
    Admission::Full(Full { scope: Scope::Global, .. }) => "global_full",
    Admission::Full(Full { scope: Scope::Tenant, .. }) => "tenant_full",
});
named!(Scope { Scope::Global => "global", Scope::Tenant => "tenant", });
named!(Budget { Budget::Count => "count", Budget::Bytes => "bytes", });
named!(Resolution { Resolution::Done => "done", Resolution::Stale => "stale", });
named!(Quarantine { Quarantine::Quarantined => "quarantined", Quarantine::Stale => "stale", });
named!(Redrive { Redrive::Requeued => "requeued", Redrive::Stale => "stale", });
named!(Cancellation { Cancellation::Cancelled => "cancelled", Cancellation::NotCancelled => "not_cancelled", });
