//! Admit, claim, resolve, replay on a temporary store: `cargo run --example try_it`.
use durable_admission::{Admission, Allowance, Limits, Request, Resolution, Store};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let tenant = Allowance { count: 2, bytes: 128 };
    let limits = Limits { global: Allowance { count: 4, bytes: 256 }, tenant, payload_bytes: 96 };
    let mut store = Store::open(folder.path().join("demo.db"), &limits)?;
    let request = Request { request_id: "job-1", tenant: "tenant-a", payload: "some work" };
    assert_eq!(store.admit(request)?, Admission::Accepted);
    let claim = store.claim(0)?.ok_or("nothing to claim")?;
    assert_eq!(store.resolve(&claim.token, 1)?, Resolution::Done);
    assert_eq!(store.admit(request)?, Admission::Replay);
    let usage = store.snapshot()?.usage;
    println!("job-1 is done; a retry is a replay; usage [{}, {}]", usage.count, usage.bytes);
    Ok(())
}
