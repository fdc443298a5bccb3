//! Many callers, one commit: what shares a transaction, what it hears, and when.
mod laboratory;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use durable_admission::{Boundary, Error, Observer, OpenOptions, QueueOptions, SharedStore, State, Store, Token};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rusqlite::Connection;

use laboratory::{FIXTURE, Laboratory, ROOMY, brief, files, limits, request, rows, size, usage};

const DEADLINE: Duration = Duration::from_secs(20);
/// Set for the process in which a test plays alone.
const ALONE: &str = "DURABLE_ADMISSION_TEST_ALONE";

/// Stops whoever crosses a boundary until the test says go on.
struct Gate {
    crossed: Sender<Boundary>,
    go_on: Receiver<()>,
}

impl Observer for Gate {
    fn crossed(&mut self, boundary: Boundary) {
        // Without the test's end of it, the gate stands open.
        if self.crossed.send(boundary).is_ok() {
            let _ = self.go_on.recv_timeout(DEADLINE);
        }
    }
}

/// The test's end of a gate.
struct Warden {
    crossed: Receiver<Boundary>,
    go_on: Sender<()>,
}

impl Warden {
    fn new() -> (Gate, Warden) {
        let ((sender, crossed), (go_on, receiver)) = (channel(), channel());
        (Gate { crossed: sender, go_on: receiver }, Warden { crossed, go_on })
    }

    /// Someone stands at `boundary`, as the next in turn.
    fn stands_at(&self, boundary: Boundary) {
        assert_eq!(self.crossed.recv_timeout(DEADLINE), Ok(boundary));
    }

    fn go_on(&self) {
        self.go_on.send(()).unwrap();
    }

    /// Lets them pass these boundaries, and no other.
    fn pass(&self, boundaries: &[Boundary]) {
        for boundary in boundaries {
            self.stands_at(*boundary);
            self.go_on();
        }
    }
}

use Boundary::{
    AdmitAfterCommit, AdmitAfterIntent, AdmitBeforeCommit, CancelAfterCommit, CancelBeforeCommit, ResolveAfterCommit,
    ResolveAfterEffect, ResolveBeforeCommit,
};

/// What one caller asks; the answer comes back as one word.
#[derive(Clone)]
enum Ask {
    Admit(&'static str, &'static str),
    Claim(i64),
    Resolve(&'static str, i64, i64),
    Quarantine(&'static str, i64, i64),
    Redrive(&'static str, i64),
    Cancel(&'static str),
}

fn answer<O: Observer>(store: &SharedStore<O>, ask: &Ask) -> String {
    let token = |id: &str, generation| Token { request_id: id.to_owned(), generation };
    let heard = match *ask {
        Ask::Admit(id, payload) => store.admit(request(id, "tenant", payload)).map(|answer| answer.to_string()),
        Ask::Claim(tick) => store.claim(tick).map(|claim| match claim {
            Some(claim) => format!("{} {}", claim.token.request_id, claim.token.generation),
            None => "nothing".to_owned(),
        }),
        Ask::Resolve(id, generation, tick) => store.resolve(&token(id, generation), tick).map(|a| a.to_string()),
        Ask::Quarantine(id, generation, tick) => store.quarantine(&token(id, generation), tick).map(|a| a.to_string()),
        Ask::Redrive(id, generation) => store.redrive(&token(id, generation)).map(|answer| answer.to_string()),
        Ask::Cancel(id) => store.cancel_unstarted(id).map(|answer| answer.to_string()),
    };
    heard.unwrap_or_else(|error| format!("{error:?}").split(['(', ' ']).next().unwrap_or_default().to_owned())
}

/// A caller in a thread of its own; its answer, once it has one.
struct Caller {
    thread: JoinHandle<()>,
    answer: Receiver<String>,
}

impl Caller {
    fn start<O: Observer + Send + 'static>(store: &SharedStore<O>, ask: Ask) -> Caller {
        let (sender, answer_of) = channel();
        let store = store.clone();
        let thread = thread::spawn(move || sender.send(answer(&store, &ask)).unwrap());
        Caller { thread, answer: answer_of }
    }

    /// Given a moment: too short a one could let an early answer pass, never convict a late one.
    fn has_no_answer(&self) {
        assert_eq!(self.answer.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout));
    }

    /// `panicked` where it ended without an answer.
    fn hears(self) -> String {
        let heard = self.answer.recv_timeout(DEADLINE).unwrap_or_else(|_| "panicked".to_owned());
        assert_eq!(self.thread.join().is_err(), heard == "panicked");
        heard
    }
}

/// Callers that wait for the next commit, in this order.
fn queue<O: Observer + Send + 'static>(store: &SharedStore<O>, asks: &[Ask]) -> Vec<Caller> {
    let callers = asks.iter().map(|ask| {
        let waiting = store.waiting() + 1;
        let caller = Caller::start(store, ask.clone());
        until(|| store.waiting() == waiting);
        caller
    });
    callers.collect()
}

fn until(happened: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !happened() {
        assert!(Instant::now() < deadline, "never happened");
        thread::yield_now();
    }
}

fn hear(callers: Vec<Caller>) -> Vec<String> {
    callers.into_iter().map(Caller::hears).collect()
}

fn ids(connection: &Connection) -> Vec<String> {
    rows(connection, "SELECT request_id FROM intent ORDER BY sequence")
}

/// Plays `asks` as one group: one request ahead of them stands at the gate until all wait.
fn as_one_group<O: Observer + Send + 'static>(
    store: &SharedStore<O>,
    warden: &Warden,
    asks: &[Ask],
    crossed: &[Boundary],
) -> Vec<String> {
    let ahead = Caller::start(store, Ask::Admit("ahead", ""));
    warden.pass(&[AdmitAfterIntent]);
    warden.stands_at(AdmitBeforeCommit);
    let callers = queue(store, asks);
    warden.go_on();
    warden.pass(&[AdmitAfterCommit]);
    assert_eq!(ahead.hears(), "accepted");
    warden.pass(crossed);
    hear(callers)
}

#[test]
fn requests_that_arrive_during_a_commit_share_the_next_and_are_answered_only_after_it() {
    let laboratory = Laboratory::with(ROOMY);
    let (gate, warden) = Warden::new();
    let store = laboratory.open().observed_by(gate).shared(QueueOptions::default()).unwrap();
    let plain = laboratory.plain();
    let first = Caller::start(&store, Ask::Admit("first", "x"));
    warden.pass(&[AdmitAfterIntent]);
    warden.stands_at(AdmitBeforeCommit);
    let asks = [Ask::Admit("second", "x"), Ask::Claim(0), Ask::Admit("third", "x"), Ask::Resolve("first", 1, 0)];
    let callers = queue(&store, &asks);
    first.has_no_answer();
    assert!(ids(&plain).is_empty());
    warden.go_on();
    warden.stands_at(AdmitAfterCommit);
    assert_eq!(ids(&plain), ["first"]);
    first.has_no_answer();
    warden.go_on();
    assert_eq!(first.hears(), "accepted");

    warden.pass(&[AdmitAfterIntent, AdmitAfterIntent, ResolveAfterEffect, AdmitBeforeCommit]);
    warden.stands_at(ResolveBeforeCommit);
    assert_eq!(ids(&plain), ["first"]);
    callers.iter().for_each(Caller::has_no_answer);
    warden.go_on();
    warden.stands_at(AdmitAfterCommit);
    assert_eq!(ids(&plain), ["first", "second", "third"]);
    callers.iter().for_each(Caller::has_no_answer);
    warden.go_on();
    warden.pass(&[ResolveAfterCommit]);
    assert_eq!(hear(callers), ["accepted", "first 1", "accepted", "done"]);
    assert_eq!(brief(&store.snapshot().unwrap()), ["first:done:1", "second:queued:0", "third:queued:0"]);
    let third = store.status("third").unwrap().expect("it was accepted");
    assert_eq!((third.request_id.as_str(), third.state), ("third", State::Queued));
    assert_eq!((store.usage().unwrap(), laboratory.recomputed_usage()), (usage(2, 2), usage(2, 2)));
}

/// All six verbs, each with an answer and with a refusal or an error, in one transaction.
#[test]
fn an_error_of_one_touches_no_other() {
    let laboratory = Laboratory::with(limits((6, 1000), (6, 1000), 96));
    let (gate, warden) = Warden::new();
    let store = laboratory.open().observed_by(gate).shared(QueueOptions::default()).unwrap();
    laboratory.tamper(
        "CREATE TRIGGER planted BEFORE INSERT ON task WHEN NEW.bytes = 13 BEGIN SELECT RAISE(ABORT, 'planted'); END",
    );
    let asks = [
        (Ask::Claim(2), "ahead 1"),
        (Ask::Claim(1), "TickMovedBack"),
        (Ask::Admit("broken", "thirteen byte"), "Corrupt"),
        (Ask::Admit("a", "x"), "accepted"),
        (Ask::Admit("a", "x"), "replay"),
        (Ask::Admit("a", "y"), "conflict"),
        (Ask::Resolve("ahead", 1, 1), "TickMovedBack"),
        (Ask::Quarantine("ahead", 1, 3), "quarantined"),
        (Ask::Redrive("ahead", 2), "stale"),
        (Ask::Redrive("ahead", 1), "requeued"),
        (Ask::Cancel("ahead"), "not_cancelled"),
        (Ask::Claim(3), "ahead 3"),
        (Ask::Claim(3), "a 1"),
        (Ask::Claim(3), "nothing"),
        (Ask::Resolve("ahead", 3, 3), "done"),
        (Ask::Resolve("ahead", 3, 3), "stale"),
        (Ask::Admit("b", ""), "accepted"),
        (Ask::Cancel("b"), "cancelled"),
        (Ask::Admit("c", "x"), "accepted"),
    ];
    let crossed = [
        [AdmitAfterIntent; 2].as_slice(), // "broken" and "a"
        &[ResolveAfterEffect, AdmitAfterIntent, AdmitAfterIntent],
        &[AdmitBeforeCommit, ResolveBeforeCommit, CancelBeforeCommit],
        &[AdmitAfterCommit, ResolveAfterCommit, CancelAfterCommit],
    ];
    let asked: Vec<Ask> = asks.iter().map(|(ask, _)| ask.clone()).collect();
    let heard = as_one_group(&store, &warden, &asked, &crossed.concat());
    assert_eq!(heard, asks.each_ref().map(|(_, heard)| *heard));
    let snapshot = store.snapshot().unwrap();
    assert_eq!(brief(&snapshot), ["ahead:done:3", "a:inflight:1", "b:cancelled:0", "c:queued:0"]);
    assert_eq!((snapshot.intents, snapshot.effects, snapshot.tick), (4, 1, 3));
    assert_eq!((snapshot.usage, laboratory.recomputed_usage()), (usage(2, 2), usage(2, 2)));
}

#[test]
fn an_error_or_a_panic_of_one_alone_leaves_nothing() {
    let laboratory = Laboratory::with(ROOMY);
    let (gate, warden) = Warden::new();
    drop(warden);
    let observer = Panicking { gate, at: AdmitAfterIntent, crossings_left: Arc::new(AtomicUsize::new(2)) };
    let store = laboratory.open().observed_by(observer).shared(QueueOptions::default()).unwrap();
    laboratory.tamper(
        "CREATE TRIGGER planted BEFORE INSERT ON task WHEN NEW.bytes = 13 BEGIN SELECT RAISE(ABORT, 'planted'); END",
    );
    assert_eq!(answer(&store, &Ask::Admit("broken", "thirteen byte")), "Corrupt");
    assert!(catch_unwind(AssertUnwindSafe(|| answer(&store, &Ask::Admit("panicked", "")))).is_err());
    assert_eq!(answer(&store, &Ask::Admit("sound", "")), "accepted");
    assert_eq!(ids(&laboratory.plain()), ["sound"]);
    assert_eq!((store.usage().unwrap(), laboratory.recomputed_usage()), (usage(1, 0), usage(1, 0)));
}

#[test]
fn an_error_that_ends_the_transaction_is_heard_by_all_of_it_and_nothing_is_bound() {
    let laboratory = Laboratory::with(ROOMY);
    let (gate, warden) = Warden::new();
    let store = laboratory.open().observed_by(gate).shared(QueueOptions::default()).unwrap();
    let planted = |outcome| {
        format!(
            "CREATE TRIGGER planted BEFORE INSERT ON task WHEN NEW.bytes = 13 BEGIN SELECT RAISE({outcome}, 'planted'); END"
        )
    };
    laboratory.tamper(&planted("ROLLBACK"));
    let asks = [Ask::Admit("a", "x"), Ask::Claim(7), Ask::Admit("broken", "thirteen byte"), Ask::Admit("b", "x")];
    let heard = as_one_group(&store, &warden, &asks, &[AdmitAfterIntent, AdmitAfterIntent]);
    assert_eq!(heard, ["Corrupt"; 4]);
    let snapshot = store.snapshot().unwrap();
    assert_eq!((brief(&snapshot), snapshot.tick), (vec!["ahead:queued:0".to_owned()], 0));
    laboratory.tamper("DROP TRIGGER planted");
    drop(warden);
    assert_eq!(asks.map(|ask| answer(&store, &ask)), ["accepted", "ahead 1", "accepted", "accepted"]);
}

#[test]
fn a_lock_held_past_the_busy_timeout_is_heard_by_all_and_binds_nothing() {
    let laboratory = Laboratory::with(ROOMY);
    let (gate, warden) = Warden::new();
    let options = OpenOptions { busy_timeout: Duration::from_millis(20) };
    let store = Store::open_with(laboratory.path(), &ROOMY, options).unwrap();
    let store = store.observed_by(gate).shared(QueueOptions::default()).unwrap();
    let ahead = Caller::start(&store, Ask::Admit("ahead", ""));
    warden.pass(&[AdmitAfterIntent, AdmitBeforeCommit]);
    warden.stands_at(AdmitAfterCommit);
    let asks = [Ask::Admit("a", "x"), Ask::Claim(7), Ask::Admit("b", "x")];
    let callers = queue(&store, &asks);
    let plain = laboratory.plain();
    plain.execute_batch("BEGIN IMMEDIATE").unwrap();
    warden.go_on();
    assert_eq!(ahead.hears(), "accepted");
    assert_eq!(hear(callers), ["Busy"; 3]);
    plain.execute_batch("COMMIT").unwrap();
    drop(warden);
    let snapshot = store.snapshot().unwrap();
    assert_eq!((brief(&snapshot), snapshot.tick), (vec!["ahead:queued:0".to_owned()], 0));
    assert_eq!(asks.map(|ask| answer(&store, &ask)), ["accepted", "ahead 1", "accepted"]);
}

#[test]
fn a_full_queue_waits_and_times_out_with_an_error_of_its_own() {
    let laboratory = Laboratory::with(ROOMY);
    let (gate, warden) = Warden::new();
    let queue_of_two = QueueOptions { places: 2, patience: Duration::from_millis(20) };
    let store = laboratory.open().observed_by(gate).shared(queue_of_two).unwrap();
    let ahead = Caller::start(&store, Ask::Admit("ahead", ""));
    warden.pass(&[AdmitAfterIntent]);
    warden.stands_at(AdmitBeforeCommit);
    let callers = queue(&store, &[Ask::Admit("a", ""), Ask::Admit("b", "")]);
    let error = store.admit(request("late", "tenant", "")).unwrap_err();
    assert!(matches!(error, Error::QueueFull { waited } if waited == queue_of_two.patience), "{error:?}");
    assert!(error.to_string().contains("try again"), "{error}");
    assert_eq!(store.waiting(), 2);
    drop(warden);
    assert_eq!(ahead.hears(), "accepted");
    assert_eq!(hear(callers), ["accepted"; 2]);
    assert_eq!(store.status("late").unwrap(), None);
    assert_eq!(answer(&store, &Ask::Admit("late", "")), "accepted");
}

#[test]
fn a_caller_who_waits_for_a_place_gets_it_with_the_next_commit() {
    let laboratory = Laboratory::with(ROOMY);
    let (gate, warden) = Warden::new();
    let patient = QueueOptions { places: 1, patience: DEADLINE };
    let store = laboratory.open().observed_by(gate).shared(patient).unwrap();
    let ahead = Caller::start(&store, Ask::Admit("ahead", ""));
    warden.stands_at(AdmitAfterIntent);
    let mut callers = queue(&store, &[Ask::Admit("a", "")]);
    // Whether they wait at the door yet or not, the one place is taken.
    callers.extend(["b", "c", "d"].map(|id| Caller::start(&store, Ask::Admit(id, ""))));
    callers.iter().for_each(Caller::has_no_answer);
    warden.go_on();
    let alone = [AdmitAfterIntent, AdmitBeforeCommit, AdmitAfterCommit];
    warden.pass(&alone[1..]);
    // A group has no more requests than the queue has places.
    (0..4).for_each(|_| warden.pass(&alone));
    assert_eq!(ahead.hears(), "accepted");
    assert_eq!(hear(callers), ["accepted"; 4]);
}

#[test]
fn a_queue_without_a_place_is_refused() {
    let laboratory = Laboratory::new();
    let none = QueueOptions { places: 0, ..QueueOptions::default() };
    assert!(matches!(laboratory.open().shared(none), Err(Error::Input { field: "queue's places", .. })));
}

/// A file size limit is the whole process's, so this plays in one of its own.
#[test]
fn a_failed_commit_is_heard_by_all_of_it_and_the_same_ids_again_tell() {
    if std::env::var_os(ALONE).is_some() {
        return fail_a_commit();
    }
    let name = "a_failed_commit_is_heard_by_all_of_it_and_the_same_ids_again_tell";
    let mut shell = Command::new("sh");
    // A write past the limit is to be an error, not a signal.
    shell.args(["-c", r#"trap "" XFSZ; exec "$@""#, "sh"]).arg(std::env::current_exe().unwrap());
    let played = shell.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
    assert!(String::from_utf8_lossy(&played.stdout).contains("1 passed"));
}

fn fail_a_commit() {
    let laboratory = Laboratory::with(ROOMY);
    let (gate, warden) = Warden::new();
    let store = laboratory.open().observed_by(gate).shared(QueueOptions::default()).unwrap();
    let ahead = Caller::start(&store, Ask::Admit("ahead", ""));
    warden.pass(&[AdmitAfterIntent]);
    warden.stands_at(AdmitBeforeCommit);
    // A replay, a refusal and an error of its own rest on what the COMMIT takes with it.
    let asks = [
        (Ask::Claim(5), "ahead 2"),
        (Ask::Claim(4), "TickMovedBack"),
        (Ask::Admit("a", "x"), "replay"),
        (Ask::Admit("a", "x"), "replay"),
        (Ask::Admit("a", "y"), "conflict"),
        (Ask::Cancel("ahead"), "not_cancelled"),
    ];
    let callers = queue(&store, &asks.each_ref().map(|(ask, _)| ask.clone()));
    warden.go_on();
    warden.pass(&[AdmitAfterCommit, AdmitAfterIntent]);
    assert_eq!(ahead.hears(), "accepted");
    warden.stands_at(AdmitBeforeCommit);
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, size(&laboratory.wal()), hard).unwrap();
    warden.go_on();
    assert_eq!(hear(callers), ["OutcomeUnknown"; 6]);
    setrlimit(Resource::RLIMIT_FSIZE, hard, hard).unwrap();
    drop(warden);
    let snapshot = store.snapshot().unwrap();
    assert_eq!((brief(&snapshot), snapshot.tick), (vec!["ahead:queued:0".to_owned()], 0));
    assert_eq!(answer(&store, &Ask::Claim(0)), "ahead 1");
    assert_eq!(answer(&store, &Ask::Admit("a", "x")), "accepted");
    // And now with room; the first lease has run out.
    assert_eq!(asks.each_ref().map(|(ask, _)| answer(&store, ask)), asks.each_ref().map(|(_, heard)| *heard));
}

#[test]
fn of_64_callers_as_many_are_accepted_as_there_is_room_and_usage_never_exceeds_it() {
    const ROOM: u64 = 500;
    let laboratory = Laboratory::fast(limits((ROOM, 1_000_000), (ROOM, 1_000_000), 96));
    let store = laboratory.open().shared(QueueOptions { places: 20, patience: DEADLINE }).unwrap();
    let (start, over) = (Barrier::new(65), AtomicBool::new(false));
    let accepted: u64 = thread::scope(|scope| {
        let callers: Vec<_> = (0..64)
            .map(|caller| {
                let (store, start) = (store.clone(), &start);
                scope.spawn(move || {
                    start.wait();
                    // Half of the ids are asked for by two callers.
                    let ask = |round| match round % 2 {
                        0 => format!("{caller}-{round}"),
                        _ => format!("{}-{round}", caller / 2),
                    };
                    let accepted = |id: &String| store.admit(request(id, "tenant", "x")).unwrap().name() == "accepted";
                    (0..20).map(ask).filter(accepted).count() as u64
                })
            })
            .collect();
        let looker = scope.spawn(|| {
            let plain = laboratory.plain();
            start.wait();
            while !over.load(Ordering::SeqCst) {
                let held: Vec<u64> = rows(&plain, "SELECT count FROM usage WHERE tenant = ''");
                assert!(held[0] <= ROOM, "{held:?}");
            }
        });
        let accepted = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
        over.store(true, Ordering::SeqCst);
        looker.join().unwrap();
        accepted
    });
    assert_eq!(accepted, ROOM);
    let snapshot = store.snapshot().unwrap();
    assert_eq!((snapshot.intents, snapshot.tasks.len() as u64), (ROOM, ROOM));
    assert_eq!((snapshot.usage, laboratory.recomputed_usage()), (usage(ROOM, ROOM), usage(ROOM, ROOM)));
}

#[test]
fn each_task_goes_to_one_caller_and_ends_once() {
    let laboratory = Laboratory::fast(ROOMY);
    let store = laboratory.open().shared(QueueOptions::default()).unwrap();
    for number in 0..400 {
        assert_eq!(store.admit(request(&number.to_string(), "tenant", "")).unwrap().name(), "accepted");
    }
    let work = |store: SharedStore| {
        let mut claimed = Vec::new();
        while let Some(claim) = store.claim(0).unwrap() {
            assert_eq!(store.resolve(&claim.token, 0).unwrap().name(), "done");
            claimed.push(claim.token.request_id);
        }
        claimed
    };
    let claimed: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..32).map(|_| scope.spawn(|| work(store.clone()))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!((claimed.len(), claimed.iter().collect::<BTreeSet<_>>().len()), (400, 400));
    let snapshot = store.snapshot().unwrap();
    assert_eq!((snapshot.usage, snapshot.effects), (usage(0, 0), 400));
    assert!(snapshot.tasks.iter().all(|task| task.state.name() == "done" && task.generation == 1));
}

/// A gate that panics at the nth crossing of one boundary, instead of going on.
struct Panicking {
    gate: Gate,
    at: Boundary,
    crossings_left: Arc<AtomicUsize>,
}

impl Observer for Panicking {
    fn crossed(&mut self, boundary: Boundary) {
        self.gate.crossed(boundary);
        if boundary == self.at && self.crossings_left.fetch_sub(1, Ordering::SeqCst) == 1 {
            std::panic::panic_any("planted");
        }
    }
}

/// What three admissions in one group hear if the observer panics at that crossing, counted with the one ahead.
fn with_panic_at(at: Boundary, crossing: usize, crossed: &[Boundary]) -> (Vec<String>, Vec<String>) {
    let laboratory = Laboratory::with(ROOMY);
    let (gate, warden) = Warden::new();
    let observer = Panicking { gate, at, crossings_left: Arc::new(AtomicUsize::new(crossing)) };
    let store = laboratory.open().observed_by(observer).shared(QueueOptions::default()).unwrap();
    let asks = ["a", "b", "c"].map(|id| Ask::Admit(id, "x"));
    let heard = as_one_group(&store, &warden, &asks, crossed);
    drop(warden);
    let found = ids(&laboratory.plain());
    assert_eq!((store.usage().unwrap(), store.waiting()), (laboratory.recomputed_usage(), 0));
    // The handle goes on, and the same ids tell.
    for (ask, id) in asks.iter().zip(["a", "b", "c"]) {
        let there = found.iter().any(|found| found == id);
        assert_eq!(answer(&store, ask), if there { "replay" } else { "accepted" });
    }
    (heard, found)
}

#[test]
fn a_panic_inside_one_request_is_its_caller_s_alone() {
    let crossed = [AdmitAfterIntent, AdmitAfterIntent, AdmitAfterIntent, AdmitBeforeCommit, AdmitAfterCommit];
    let (heard, found) = with_panic_at(AdmitAfterIntent, 3, &crossed);
    assert_eq!(heard, ["accepted", "panicked", "accepted"]);
    assert_eq!(found, ["ahead", "a", "c"]);
}

#[test]
fn a_panic_before_commit_leaves_nothing_and_hangs_nobody() {
    let crossed = [AdmitAfterIntent, AdmitAfterIntent, AdmitAfterIntent, AdmitBeforeCommit];
    let (heard, found) = with_panic_at(AdmitBeforeCommit, 2, &crossed);
    assert_eq!(heard, ["panicked", "Abandoned", "Abandoned"]);
    assert_eq!(found, ["ahead"]);
}

#[test]
fn a_panic_after_commit_takes_no_answer_from_the_others() {
    let crossed = [AdmitAfterIntent, AdmitAfterIntent, AdmitAfterIntent, AdmitBeforeCommit, AdmitAfterCommit];
    let (heard, found) = with_panic_at(AdmitAfterCommit, 2, &crossed);
    assert_eq!(heard, ["panicked", "accepted", "accepted"]);
    assert_eq!(found, ["ahead", "a", "b", "c"]);
}

#[test]
fn a_group_of_replays_and_refusals_writes_nothing() {
    let laboratory = Laboratory::with(FIXTURE);
    let (gate, warden) = Warden::new();
    let store = laboratory.open().observed_by(gate).shared(QueueOptions::default()).unwrap();
    let ahead = Caller::start(&store, Ask::Admit("ahead", ""));
    warden.pass(&[AdmitAfterIntent, AdmitBeforeCommit]);
    warden.stands_at(AdmitAfterCommit);
    let plain = laboratory.plain();
    let version = || rows::<i64>(&plain, "PRAGMA data_version");
    let before = (version(), size(&laboratory.wal()));
    let oversize = "0123456789".repeat(10).leak();
    let asks = [
        (Ask::Admit("ahead", ""), "replay"),
        (Ask::Admit("ahead", "other"), "conflict"),
        (Ask::Admit("new", oversize), "oversize"),
        (Ask::Cancel("unknown"), "not_cancelled"),
        (Ask::Redrive("ahead", 1), "stale"),
        (Ask::Resolve("ahead", 1, 0), "stale"),
        (Ask::Claim(-1), "Input"),
    ];
    let queued: Vec<Ask> = asks[..6].iter().map(|(ask, _)| ask.clone()).collect();
    let callers = queue(&store, &queued);
    // Refused before it takes a place.
    assert_eq!(answer(&store, &asks[6].0), "Input");
    warden.go_on();
    assert_eq!(ahead.hears(), "accepted");
    assert_eq!(hear(callers), asks.each_ref().map(|(_, heard)| *heard)[..6]);
    assert_eq!((version(), size(&laboratory.wal())), before);
}

#[test]
fn the_last_handle_closes_the_store() {
    let laboratory = Laboratory::with(ROOMY);
    let store = SharedStore::open(laboratory.path(), &ROOMY).unwrap();
    let other = store.clone();
    assert_eq!(answer(&store, &Ask::Admit("a", "")), "accepted");
    store.close().unwrap();
    assert_eq!(answer(&other, &Ask::Admit("b", "")), "accepted");
    other.close().unwrap();
    assert_eq!(files(laboratory.folder()).keys().collect::<Vec<_>>(), ["store.db"]);
    assert_eq!(brief(&laboratory.open().snapshot().unwrap()), ["a:queued:0", "b:queued:0"]);
}

#[test]
fn a_dropped_handle_closes_too_even_where_a_caller_panicked() {
    let laboratory = Laboratory::with(ROOMY);
    let (gate, warden) = Warden::new();
    drop(warden);
    let observer = Panicking { gate, at: AdmitBeforeCommit, crossings_left: Arc::new(AtomicUsize::new(1)) };
    let store = laboratory.open().observed_by(observer).shared(QueueOptions::default()).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| answer(&store, &Ask::Admit("a", "")))).unwrap_err();
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"planted"));
    assert_eq!(answer(&store, &Ask::Admit("b", "")), "accepted");
    drop(store);
    assert_eq!(files(laboratory.folder()).keys().collect::<Vec<_>>(), ["store.db"]);
    assert_eq!(brief(&laboratory.open().snapshot().unwrap()), ["b:queued:0"]);
}
