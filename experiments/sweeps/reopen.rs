//! What is found in a store when all who worked on it have ended.

use std::path::Path;

use durable_admission::{Limits, Store};
use rusqlite::Connection;

use super::bench::whole_state;
use crate::audit::audit;
use crate::model::State;
use crate::process::NotMeasured;

/// The whole state after the store was opened once more. The inner error: sentences on how it contradicts itself.
pub fn reopened(path: &Path, limits: &Limits) -> Result<Result<State, Vec<String>>, NotMeasured> {
    let reopened = Store::open(path, limits).and_then(Store::close);
    reopened.map_err(|error| unmeasured(format!("the store of a round can't be opened again: {error}")))?;
    let unreadable = |error: rusqlite::Error| unmeasured(format!("the store of a round can't be read: {error}"));
    let state = Connection::open(path).and_then(|beside| whole_state(&beside)).map_err(unreadable)?;
    let mut broken = audit(path).map_err(|what| NotMeasured { what })?;
    match state {
        Ok(state) if broken.is_empty() => Ok(Ok(state)),
        Ok(_) => Ok(Err(broken)),
        Err(contradiction) => {
            broken.insert(0, contradiction);
            Ok(Err(broken))
        }
    }
}

fn unmeasured(what: String) -> NotMeasured {
    NotMeasured { what }
}
