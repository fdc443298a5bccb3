//! Opening again with any other limit, one more or one less of each of the five: refused, and not one byte changes.

use std::fs;

use durable_admission::{Allowance, Error, Limits, Store};
use serde::Serialize;

use super::Found;
use super::ground::Ground;
use crate::fixture::LIMITS;
use crate::process::NotMeasured;

#[derive(Serialize)]
struct Figures {
    others: usize,
    refused: usize,
}

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let path = ground.folder.database("limits")?;
    let told = |what: String| NotMeasured { what: format!("{}: {what}", path.display()) };
    let open = |limits: &Limits| Store::open(&path, limits).and_then(Store::close);
    let bytes = || fs::read(&path).map_err(|error| told(error.to_string()));
    open(&LIMITS).map_err(|error| told(error.to_string()))?;
    let before = bytes()?;
    let mut broken = Vec::new();
    let mut refused = 0;
    let others = others();
    for other in &others {
        match open(other) {
            Err(Error::LimitsDiffer { stored, given, .. }) if (*stored, *given) == (LIMITS, *other) => refused += 1,
            outcome => broken.push(format!("opening a store of {LIMITS} with {other} came to {outcome:?}")),
        }
        if bytes()? != before {
            broken.push(format!("opening a store of {LIMITS} with {other} changed the file"));
        }
    }
    if let Err(error) = open(&LIMITS) {
        broken.push(format!("the store no longer opens with its own limits: {error}"));
    }
    Found::new(&Figures { others: others.len(), refused }, broken)
}

/// All that differ from the fixture in one place by one.
fn others() -> Vec<Limits> {
    let near = |value: u64| [value - 1, value + 1];
    let mut others = Vec::new();
    for count in near(LIMITS.global.count) {
        others.push(Limits { global: Allowance { count, ..LIMITS.global }, ..LIMITS });
    }
    for bytes in near(LIMITS.global.bytes) {
        others.push(Limits { global: Allowance { bytes, ..LIMITS.global }, ..LIMITS });
    }
    for count in near(LIMITS.tenant.count) {
        others.push(Limits { tenant: Allowance { count, ..LIMITS.tenant }, ..LIMITS });
    }
    for bytes in near(LIMITS.tenant.bytes) {
        others.push(Limits { tenant: Allowance { bytes, ..LIMITS.tenant }, ..LIMITS });
    }
    others.extend(near(LIMITS.payload_bytes).map(|payload_bytes| Limits { payload_bytes, ..LIMITS }));
    others
}
