//! The limits of every experiment: small on purpose, checkable by hand (PROTOCOL, *Terms*).

use durable_admission::{Allowance, Limits};

pub const LIMITS: Limits = Limits {
    global: Allowance { count: 4, bytes: 256 },
    tenant: Allowance { count: 2, bytes: 128 },
    payload_bytes: 96,
};
