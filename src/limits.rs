use std::fmt;
use std::ops::RangeInclusive;

use crate::error::{Error, Result};

/// The highest tick (PROTOCOL, *Terms*): beyond it is an error, never a wrap.
pub const TICK_CEILING: i64 = 1_000_000_000;

/// The highest generation of a task (PROTOCOL, *Terms*).
pub const GENERATION_CEILING: i64 = 1_000_000_000;

/// Ticks from a claim to the instant at which its lease counts as run out (PROTOCOL, *claim*).
pub const LEASE_TICKS: i64 = 5;

/// Allowed length of a request id and of a tenant, in UTF-8 bytes.
pub const IDENTITY_BYTES: RangeInclusive<usize> = 1..=128;

/// The highest count or byte limit: what an SQLite integer holds.
pub const LIMIT_CEILING: u64 = i64::MAX as u64;

/// The highest one-payload limit, in bytes. SQLite bounds a whole row at 10^9 bytes.
pub const PAYLOAD_BYTES_CEILING: u64 = 512 * 1024 * 1024;

/// How many outstanding tasks, and how many payload bytes of theirs, a scope may hold. 0 means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Outstanding tasks.
    pub count: u64,
    /// Their payloads, in UTF-8 bytes.
    pub bytes: u64,
}

/// The five limits that are stored with the database (PROTOCOL, *init / open*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Over all tenants.
    pub global: Allowance,
    /// For each tenant: a cap, not a reservation.
    pub tenant: Allowance,
    /// Of one payload, in UTF-8 bytes; at most [`PAYLOAD_BYTES_CEILING`].
    pub payload_bytes: u64,
}

impl Limits {
    pub(crate) fn check(&self) -> Result<()> {
        let ceilings = [
            ("global count limit", self.global.count, LIMIT_CEILING),
            ("global bytes limit", self.global.bytes, LIMIT_CEILING),
            ("tenant count limit", self.tenant.count, LIMIT_CEILING),
            ("tenant bytes limit", self.tenant.bytes, LIMIT_CEILING),
            ("payload bytes limit", self.payload_bytes, PAYLOAD_BYTES_CEILING),
        ];
        for (field, value, ceiling) in ceilings {
            if value > ceiling {
                return Err(Error::Input { field, problem: format!("{value} is over {ceiling}; give at most that") });
            }
        }
        Ok(())
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "global {} tasks / {} bytes, tenant {} tasks / {} bytes, one payload {} bytes",
            self.global.count, self.global.bytes, self.tenant.count, self.tenant.bytes, self.payload_bytes
        )
    }
}
