//! What keeps the WAL from growing without bound, and what it costs nobody.
mod laboratory;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use durable_admission::{Cancellation, OpenOptions, Store};

use laboratory::{Laboratory, ROOMY, accept, size};

/// What stays of the WAL once it starts anew.
const KEPT: u64 = 8 * 1024 * 1024;
/// Past it the store tries to empty the WAL; up to 64 commits later.
const BOUND: u64 = 4_000 * 4_120;
const SLACK: u64 = 64 * 20 * 4_120;

/// Two commits that leave the store no larger but for history.
fn cycle(store: &mut Store, id: &str) {
    accept(store, id, "tenant", "");
    assert_eq!(store.cancel_unstarted(id).unwrap(), Cancellation::Cancelled);
}

#[test]
fn what_a_long_reader_made_it_grow_to_is_cut_back_once_the_reader_ends() {
    let laboratory = Laboratory::fast(ROOMY);
    let mut store = laboratory.open();
    cycle(&mut store, "before");
    let reader = laboratory.plain();
    reader.execute_batch("BEGIN; SELECT count(*) FROM task;").unwrap();
    let mut number = 0;
    while size(&laboratory.wal()) < 3 * BOUND {
        cycle(&mut store, &format!("under-reader-{number}"));
        number += 1;
    }
    reader.execute_batch("COMMIT").unwrap();
    for number in 0..100 {
        cycle(&mut store, &format!("after-{number}"));
    }
    assert!(size(&laboratory.wal()) <= KEPT, "{}", size(&laboratory.wal()));
}

/// Each reader begins before the one before it ends, so the WAL is never without one.
#[test]
fn readers_that_overlap_without_a_gap_do_not_make_it_grow_without_bound() {
    let laboratory = Laboratory::fast(ROOMY);
    let mut store = laboratory.open();
    cycle(&mut store, "before");
    let (commits, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let largest = thread::scope(|scope| {
        scope.spawn(|| {
            let readers = [laboratory.plain(), laboratory.plain()];
            let begin = |turn: usize| readers[turn % 2].execute_batch("BEGIN; SELECT count(*) FROM usage;").unwrap();
            begin(0);
            for turn in 1.. {
                begin(turn);
                // The writer commits between the two, or is held back by the attempt to empty the WAL.
                let (from, deadline) = (commits.load(Ordering::SeqCst), Instant::now() + Duration::from_millis(2));
                while commits.load(Ordering::SeqCst) == from && Instant::now() < deadline {
                    thread::yield_now();
                }
                readers[(turn - 1) % 2].execute_batch("COMMIT").unwrap();
                if over.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        let mut largest = 0;
        for number in 0..6_000 {
            cycle(&mut store, &number.to_string());
            commits.fetch_add(2, Ordering::SeqCst);
            largest = size(&laboratory.wal()).max(largest);
        }
        over.store(true, Ordering::SeqCst);
        largest
    });
    // Each attempt may meet readers that are slow to go, but not all of so many; unbounded it would be over 10 times the bound.
    assert!(largest <= 5 * BOUND, "{largest}");
}

#[test]
fn the_attempt_to_empty_it_is_no_error_and_leaves_the_busy_timeout_as_it_was() {
    let laboratory = Laboratory::fast(ROOMY);
    let options = OpenOptions { busy_timeout: Duration::from_millis(400) };
    let mut store = Store::open_with(laboratory.path(), &ROOMY, options).unwrap();
    cycle(&mut store, "before");
    let reader = laboratory.plain();
    reader.execute_batch("BEGIN; SELECT count(*) FROM task;").unwrap();
    let mut number = 0;
    while size(&laboratory.wal()) < BOUND + SLACK {
        cycle(&mut store, &format!("under-reader-{number}"));
        number += 1;
    }
    let writer = laboratory.plain();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = Instant::now();
    assert!(matches!(store.claim(0), Err(durable_admission::Error::Busy(_))));
    assert!(begun.elapsed() >= options.busy_timeout, "{:?}", begun.elapsed());
}
