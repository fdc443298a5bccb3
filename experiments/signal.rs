//! What must not outlive an interrupted harness: children, temporary folders, half-written files.
//!
//! Whoever makes such a thing registers how to undo it. On SIGINT, SIGTERM or SIGHUP a thread undoes everything, newest
//! first, and raises the signal again with its default action, so that a shell sees a death by that very signal.
//! The main thread may be anywhere meanwhile; it is kept from making new things, and from reporting the damage
//! done by the clean-up as if it were a finding, by one lock that the clean-up never gives back.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::process::NotMeasured;

/// Starts to handle SIGINT, SIGTERM and, unless it was ignored when we started (nohup), SIGHUP. Once, at the top of `main`.
pub fn handle_interrupts() -> Result<(), NotMeasured> {
    let signals: &[c_int] = if is_ignored(SIGHUP) { &[SIGINT, SIGTERM] } else { &[SIGINT, SIGTERM, SIGHUP] };
    let failed = |error| NotMeasured {
        what: format!(
            "signals can't be handled here ({error}), so an interrupt would leave things behind; raise the limits of open files \
             and processes (ulimit -n, ulimit -u) and run again"
        ),
    };
    let mut signals = Signals::new(signals).map_err(failed)?;
    // Past the limit of a file's size a write then fails, as on a full disk, and is told of; by default it would kill us.
    flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
    let serve = move || {
        if let Some(signal) = signals.forever().next() {
            // A second signal must not cut the clean-up short: `timeout` sends each of its signals twice.
            UNDO.run_and_end(|| {
                let _ = emulate_default_handler(signal);
            });
        }
    };
    thread::Builder::new().name("interrupts".to_owned()).spawn(serve).map_err(failed)?;
    Ok(())
}

/// Keeps interrupts waiting while it lives, so that making a thing and registering its undoing are one step. Never
/// ask for a second one, or wait for anything long, while holding it. If an interrupt is being served already, this never returns: the
/// process is about to end.
pub fn hold() -> Hold {
    UNDO.hold()
}

/// Never returns if an interrupt is being served: whatever the caller was about to report is the clean-up's own doing.
/// Call it before a verdict or an error is printed, and before the process exits.
pub fn stand_aside() {
    drop(hold());
}

pub struct Hold {
    undo: &'static Undo,
    entries: MutexGuard<'static, Entries>,
}

impl Hold {
    /// Registers how to undo what was just made, until the answer is dropped. The action runs on another thread;
    /// it must end by itself, and soon, and must not call this module.
    #[must_use = "dropped at once, it undoes nothing"]
    pub fn on_interrupt(&mut self, action: impl FnOnce() + Send + 'static) -> OnInterrupt {
        let number = self.entries.next;
        self.entries.next += 1;
        self.entries.actions.push((number, Box::new(action)));
        OnInterrupt { undo: self.undo, number }
    }
}

/// An undoing that is registered; dropping it takes it back. Drop it after the thing has ended in the ordinary way.
pub struct OnInterrupt {
    undo: &'static Undo,
    number: u64,
}

impl Drop for OnInterrupt {
    fn drop(&mut self) {
        let mut hold = self.undo.hold();
        let found = hold.entries.actions.iter().position(|(number, _)| *number == self.number);
        let action = found.map(|index| hold.entries.actions.remove(index));
        // What the action owns may have a drop of its own that needs the lock.
        drop(hold);
        drop(action);
    }
}

static UNDO: Undo = Undo::new();

struct Undo(Mutex<Entries>);

struct Entries {
    next: u64,
    actions: Vec<(u64, Box<dyn FnOnce() + Send>)>,
}

impl Undo {
    const fn new() -> Undo {
        Undo(Mutex::new(Entries { next: 0, actions: Vec::new() }))
    }

    fn hold(&'static self) -> Hold {
        Hold { undo: self, entries: self.0.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Newest first: children are ended before the folder they write to is removed.
    fn run_and_end(&'static self, end: impl FnOnce()) {
        let mut hold = self.hold();
        while let Some((_, action)) = hold.entries.actions.pop() {
            // The signal has to be raised whatever becomes of one action.
            let _ = catch_unwind(AssertUnwindSafe(action));
        }
        end();
    }
}

/// Whether the process was started with this signal ignored. Elsewhere than on Linux that can't be asked without unsafe code.
#[cfg(target_os = "linux")]
fn is_ignored(signal: c_int) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(not(target_os = "linux"))]
fn is_ignored(_signal: c_int) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn undo() -> &'static Undo {
        Box::leak(Box::new(Undo::new()))
    }

    #[test]
    fn newest_is_undone_first_and_what_was_dropped_not_at_all() {
        let undo = undo();
        let (seen, order) = mpsc::channel();
        let register = |name: &'static str| {
            let seen = seen.clone();
            undo.hold().on_interrupt(move || seen.send(name).unwrap())
        };
        let _folder = register("folder");
        let gone = register("gone");
        let _child = register("child");
        drop(gone);
        undo.run_and_end(|| seen.send("end").unwrap());
        assert_eq!(order.try_iter().collect::<Vec<_>>(), ["child", "folder", "end"]);
    }

    #[test]
    fn an_action_that_panics_does_not_stop_the_others() {
        let undo = undo();
        let ran = Arc::new(AtomicBool::new(false));
        let seen = ran.clone();
        let _older = undo.hold().on_interrupt(move || seen.store(true, Ordering::SeqCst));
        let _newer = undo.hold().on_interrupt(|| panic!("on purpose"));
        let mut ended = false;
        undo.run_and_end(|| ended = true);
        assert!(ended && ran.load(Ordering::SeqCst));
    }

    #[test]
    fn nothing_new_is_made_while_an_interrupt_is_served() {
        let undo = undo();
        let (asked, made) = mpsc::channel();
        let mut other = None;
        undo.run_and_end(|| {
            other = Some(thread::spawn(move || {
                drop(undo.hold());
                asked.send(()).unwrap();
            }));
            // In the harness the process ends here, with the lock still held.
            assert!(made.recv_timeout(Duration::from_millis(100)).is_err());
        });
        other.unwrap().join().unwrap();
        assert!(made.try_recv().is_ok());
    }
}
