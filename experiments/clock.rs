//! The system's monotonic clock, which is one for all processes: an `Instant` can't be told to another.

use nix::time::{ClockId, clock_gettime};

pub type Nanoseconds = u64;

/// Since some moment of the past.
pub fn now() -> Nanoseconds {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("this clock is always there");
    now.tv_sec() as Nanoseconds * 1_000_000_000 + now.tv_nsec() as Nanoseconds
}
