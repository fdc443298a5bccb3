//! Requests of several callers made to share one commit: in the same order and with the same I/O in every run.
//!
//! The first to ask leads a group, and takes what has come when it gets the store. So the store is kept from it until all
//! have come: by an admission of another thread that is held between its intent and its task, and ends there in a panic. It
//! is rolled back, never was, and writes nothing to the disk.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use durable_admission::{self as library, Boundary, Observer, QueueOptions, SharedStore, Store};

use super::perform::{Said, perform_shared};
use crate::model::{Request, Verb};

/// What a sound run takes is a thousandth of it.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long an answer that must not come is listened for, at each boundary before a COMMIT. One that is missed at one place is
/// heard at others.
const LISTENING: Duration = Duration::from_millis(10);

/// Called by the leading thread, before a COMMIT before which a caller of its group has heard its answer.
pub type Early = Box<dyn FnMut() + Send>;

/// A store whose callers come in groups.
pub struct Together {
    store: SharedStore<Gate>,
    opening: Arc<AtomicBool>,
    openings: Receiver<Opening>,
    over: Sender<Opening>,
    go: Sender<()>,
    heard: Arc<Heard>,
}

/// What became of the admission that keeps the store from the others.
enum Opening {
    Held,
    Over,
}

impl Together {
    /// Where `early` is `None`, whoever has the other end of `heard` listens.
    ///
    /// # Errors
    /// As [`Store::shared`].
    pub fn of(store: Store, heard: Arc<Heard>, early: Option<Early>) -> library::Result<Together> {
        let (over, openings) = channel();
        let (go, goes) = channel();
        let opening = Arc::<AtomicBool>::default();
        let gate =
            Gate { opening: Arc::clone(&opening), held: over.clone(), go: goes, heard: Arc::clone(&heard), early };
        let store = store.observed_by(gate).shared(QueueOptions::default())?;
        Ok(Together { store, opening, openings, over, go, heard })
    }

    /// Asks all of them in one group, in their order. This thread leads, and its alone are the I/O calls that change a file.
    /// There has to be room for one more task.
    ///
    /// # Errors
    /// A sentence: they did not come together.
    pub fn ask(&self, verbs: &[Verb]) -> Result<Vec<Said>, String> {
        let Together { store, opening, openings, over, go, heard } = self;
        let Some((first, others)) = verbs.split_first() else { return Ok(Vec::new()) };
        let opener = Verb::Admit(Request::new("opener", "opener", ""));
        heard.forget();
        opening.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            scope.spawn(|| {
                let said = catch_unwind(AssertUnwindSafe(|| perform_shared(store, &opener)));
                let _ = over.send(Opening::Over);
                drop(said);
            });
            match openings.recv_timeout(PATIENCE) {
                Ok(Opening::Held) => {}
                Ok(Opening::Over) | Err(_) => return Err("no admission could keep the store".to_owned()),
            }
            let followers = scope.spawn(move || {
                let mut followers = Vec::new();
                let mut came = wait_for(store, 1);
                for verb in others {
                    if came.is_err() {
                        break;
                    }
                    followers.push(scope.spawn(move || {
                        let said = perform_shared(store, verb);
                        heard.tell();
                        said
                    }));
                    came = wait_for(store, 1 + followers.len());
                }
                // Whatever came of it, nobody is left waiting.
                let gone = go.send(()).map_err(|_| "nobody keeps the store any more".to_owned());
                let joined: Vec<_> = followers.into_iter().map(|follower| follower.join()).collect();
                came.and(gone)?;
                joined.into_iter().map(|said| said.map_err(|_| "a caller panicked".to_owned())).collect()
            });
            let led = perform_shared(store, first);
            let followed: Result<Vec<Said>, String> =
                followers.join().map_err(|_| "what waits for the callers panicked".to_owned())?;
            match openings.recv_timeout(PATIENCE) {
                Ok(Opening::Over) => Ok([led].into_iter().chain(followed?).collect()),
                Ok(Opening::Held) | Err(_) => Err("the admission that keeps the store was not let go".to_owned()),
            }
        })
    }

    /// # Errors
    /// As [`SharedStore::close`].
    pub fn close(self) -> library::Result<()> {
        self.store.close()
    }
}

/// Until so many requests wait for the next commit.
pub fn wait_for<O: Observer>(store: &SharedStore<O>, waiting: usize) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while store.waiting() < waiting {
        if Instant::now() > deadline {
            return Err(format!("{waiting} requests did not come to wait"));
        }
        thread::yield_now();
    }
    Ok(())
}

/// Keeps the store while the others come, and listens before their COMMIT.
struct Gate {
    opening: Arc<AtomicBool>,
    held: Sender<Opening>,
    go: Receiver<()>,
    heard: Arc<Heard>,
    early: Option<Early>,
}

impl Observer for Gate {
    fn crossed(&mut self, boundary: Boundary) {
        match boundary {
            Boundary::AdmitAfterIntent => {
                if self.opening.swap(false, Ordering::SeqCst) {
                    let _ = self.held.send(Opening::Held);
                    let _ = self.go.recv_timeout(2 * PATIENCE);
                    // Undoes the one request, and says nothing on stderr.
                    resume_unwind(Box::new("kept the store"));
                }
            }
            Boundary::AdmitBeforeCommit | Boundary::ResolveBeforeCommit | Boundary::CancelBeforeCommit => {
                if let Some(early) = &mut self.early
                    && self.heard.listen()
                {
                    early();
                }
            }
            Boundary::AdmitAfterCommit
            | Boundary::ResolveAfterEffect
            | Boundary::ResolveAfterCommit
            | Boundary::CancelAfterCommit => {}
        }
    }
}

/// Whether a caller of the group that follows the leader has heard its answer.
#[derive(Default)]
pub struct Heard {
    any: Mutex<bool>,
    told: Condvar,
}

impl Heard {
    fn forget(&self) {
        *self.any.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }

    pub fn tell(&self) {
        *self.any.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }

    /// For a while; a sound store lets it pass.
    pub fn listen(&self) -> bool {
        let any = self.any.lock().unwrap_or_else(PoisonError::into_inner);
        *self.told.wait_timeout_while(any, LISTENING, |any| !*any).unwrap_or_else(PoisonError::into_inner).0
    }
}
