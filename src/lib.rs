//! Durable admission with backlog backpressure, on SQLite.
//!
//! A request is accepted only while the budget has room; its intent and its task are written in the
//! same transaction, and everything accepted keeps holding its room until it has provably ended.
//!
//! ```
//! use durable_admission::{Admission, Allowance, Limits, Request, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Limits {
//!     global: Allowance { count: 4, bytes: 256 },
//!     tenant: Allowance { count: 2, bytes: 128 },
//!     payload_bytes: 96,
//! };
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("demo.db");
//! let mut store = Store::open(&path, &limits)?;
//! let request = Request { request_id: "job-1", tenant: "tenant-a", payload: "work" };
//! assert_eq!(store.admit(request)?, Admission::Accepted);
//! assert_eq!(store.admit(request)?, Admission::Replay);
//! # Ok(())
//! # }
//! ```
//!
//! Not in here: authentication (the tenant is the trusted caller's word), rate limits, fairness of
//! claims, real clocks, calls to the outside world. Ended identities are kept for good, so history
//! grows without bound.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod limits;
mod request;
mod answer;
mod error;
mod boundary;
mod store;
mod open;
mod schema;
mod wal;
mod write;
mod verbs;
mod view;
mod settings;
mod group;
mod shared;
#[cfg(test)]
mod statements;
#[cfg(test)]
mod page_limit;

pub use answer::{Admission, Budget, Cancellation, Claim, Full, Quarantine, Redrive, Resolution, Scope};
pub use boundary::{Boundary, Observer};
pub use error::{Error, Result};
pub use limits::{
    Allowance, GENERATION_CEILING, IDENTITY_BYTES, LEASE_TICKS, LIMIT_CEILING, Limits, PAYLOAD_BYTES_CEILING,
    TICK_CEILING,
};
pub use open::OpenOptions;
pub use request::{Request, Token};
pub use settings::Setting;
pub use shared::{QueueOptions, SharedStore};
pub use store::Store;
pub use view::{Snapshot, State, Task, Usage};
