//! The system's monotonic clock, which is one for all processes: an `Instant` can't be told to another.

use nix::time::{ClockId, clock_gettime};

pub type Nanoseconds = u64;

/// Since some moment of the past. Where there is no such clock, always 0.
pub fn now() -> Nanoseconds {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| (time.tv_sec() as Nanoseconds).saturating_mul(1_000_000_000) + time.tv_nsec() as Nanoseconds)
}
