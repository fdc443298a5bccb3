use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use crate::answer::{Admission, Cancellation, Claim, Quarantine, Redrive, Resolution};
use crate::boundary::Observer;
use crate::error::{Error, Result};
use crate::group::{self, Asked};
use crate::limits::Limits;
use crate::open::OpenOptions;
use crate::request::{Request, Token, check_claim_tick, check_identity, check_report};
use crate::store::Store;
use crate::verbs;
use crate::view::{Snapshot, Task, Usage};
use crate::write::Answer;

/// How callers of a [`SharedStore`] queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// How many requests may wait for the next commit, which takes them all: at least 1.
    pub places: usize,
    /// How long a caller waits for a place before it is [`Error::QueueFull`].
    pub patience: Duration,
}

impl Default for QueueOptions {
    /// 256 places, five seconds.
    fn default() -> Self {
        QueueOptions { places: 256, patience: Duration::from_secs(5) }
    }
}

/// One store for many threads: clone the handle, and give each thread its own.
///
/// Requests that arrive while a commit is under way go into the next one, in the order in which they came,
/// each in a savepoint inside one `BEGIN IMMEDIATE … COMMIT`. A request is answered only when the commit that
/// holds it is durable.
///
/// - An error of one request undoes that one and touches no other. What ends the whole transaction (a lock
///   that cannot be had, a disk that fails, a COMMIT that fails) is the answer to each of its requests.
/// - A group in which nothing was written (replays, refusals) is rolled back and costs no sync.
/// - The queue is bounded. Each place holds a copy of its request, payload included, while its caller waits.
/// - The boundaries inside a verb are crossed for each request; those around COMMIT once in a group for each
///   verb that wrote in it: first all `before_commit`, then COMMIT, then all `after_commit`, in the order of
///   [`Boundary::ALL`](crate::Boundary::ALL).
/// - There is no thread of its own: the first request of a group leads, and carries out the others' with its
///   own. A panicking observer ends the request whose boundary it was told of, in that caller's thread; at a
///   boundary around COMMIT, that of the caller who led. The others are answered: after COMMIT as if nothing
///   had happened, before it with [`Error::Abandoned`]. An observer must not ask the handle: it would wait
///   for itself.
///
/// ```
/// use durable_admission::{Admission, Allowance, Limits, Request, SharedStore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let room = Allowance { count: 4, bytes: 256 };
/// # let limits = Limits { global: room, tenant: room, payload_bytes: 96 };
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("demo.db");
/// let store = SharedStore::open(&path, &limits)?;
/// std::thread::scope(|callers| {
///     for request_id in ["job-1", "job-2", "job-3"] {
///         let store = store.clone();
///         callers.spawn(move || {
///             let request = Request { request_id, tenant: "tenant-a", payload: "work" };
///             assert_eq!(store.admit(request).unwrap(), Admission::Accepted);
///         });
///     }
/// });
/// store.close()?;
/// # Ok(())
/// # }
/// ```
pub struct SharedStore<O = ()> {
    shared: Arc<Shared<O>>,
}

struct Shared<O> {
    options: QueueOptions,
    /// Requests for the next commit. Whoever finds it empty leads: waits for the store, then takes them all.
    queue: Mutex<Vec<Box<dyn Asked<O>>>>,
    /// Told of when the queue was emptied.
    room: Condvar,
    store: Mutex<Store<O>>,
}

impl SharedStore {
    /// Opens the store at `path`, creating it if there is none, and shares it, all by default.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(path: impl AsRef<Path>, limits: &Limits) -> Result<SharedStore> {
        SharedStore::open_with(path, limits, OpenOptions::default(), QueueOptions::default())
    }

    /// As [`SharedStore::open`], with the caller's choice of how to wait: for other connections, and for a
    /// place in the queue.
    ///
    /// # Errors
    /// As [`Store::open`], and a queue without a place.
    pub fn open_with(
        path: impl AsRef<Path>,
        limits: &Limits,
        options: OpenOptions,
        queue: QueueOptions,
    ) -> Result<SharedStore> {
        Store::open_with(path, limits, options)?.shared(queue)
    }
}

impl<O> Store<O> {
    /// The same store for many threads.
    ///
    /// # Errors
    /// A queue without a place.
    pub fn shared(self, queue: QueueOptions) -> Result<SharedStore<O>> {
        if queue.places == 0 {
            return Err(Error::Input { field: "queue's places", problem: "are 0; give at least 1".to_owned() });
        }
        let (options, queue) = (queue, Mutex::default());
        Ok(SharedStore { shared: Arc::new(Shared { options, queue, room: Condvar::new(), store: Mutex::new(self) }) })
    }
}

/// Writing verbs, as those of [`Store`] in answers and errors, and in addition [`Error::QueueFull`] and
/// [`Error::Abandoned`].
impl<O: Observer> SharedStore<O> {
    /// As [`Store::admit`].
    ///
    /// # Errors
    /// As [`Store::admit`], and those of the queue.
    pub fn admit(&self, request: Request<'_>) -> Result<Admission> {
        request.check()?;
        let [request_id, tenant, payload] = [request.request_id, request.tenant, request.payload].map(str::to_owned);
        self.ask(move |connection, limits, observer| {
            let request = Request { request_id: &request_id, tenant: &tenant, payload: &payload };
            verbs::admit(connection, limits, observer, request)
        })
    }

    /// As [`Store::claim`]; each task goes to one caller of a group.
    ///
    /// # Errors
    /// As [`Store::claim`], and those of the queue.
    pub fn claim(&self, tick: i64) -> Result<Option<Claim>> {
        check_claim_tick(tick)?;
        self.ask(move |connection, _, _| verbs::claim(connection, tick))
    }

    /// As [`Store::resolve`].
    ///
    /// # Errors
    /// As [`Store::resolve`], and those of the queue.
    pub fn resolve(&self, token: &Token, tick: i64) -> Result<Resolution> {
        check_report(token, tick)?;
        let token = token.clone();
        self.ask(move |connection, _, observer| verbs::resolve(connection, observer, &token, tick))
    }

    /// As [`Store::quarantine`].
    ///
    /// # Errors
    /// As [`Store::quarantine`], and those of the queue.
    pub fn quarantine(&self, token: &Token, tick: i64) -> Result<Quarantine> {
        check_report(token, tick)?;
        let token = token.clone();
        self.ask(move |connection, _, _| verbs::quarantine(connection, &token, tick))
    }

    /// As [`Store::redrive`].
    ///
    /// # Errors
    /// As [`Store::redrive`], and those of the queue.
    pub fn redrive(&self, token: &Token) -> Result<Redrive> {
        token.check()?;
        let token = token.clone();
        self.ask(move |connection, _, _| verbs::redrive(connection, &token))
    }

    /// As [`Store::cancel_unstarted`].
    ///
    /// # Errors
    /// As [`Store::cancel_unstarted`], and those of the queue.
    pub fn cancel_unstarted(&self, request_id: &str) -> Result<Cancellation> {
        check_identity("request id", request_id)?;
        let request_id = request_id.to_owned();
        self.ask(move |connection, _, _| verbs::cancel_unstarted(connection, &request_id))
    }

    fn ask<A: Answer + Send + 'static>(
        &self,
        verb: impl FnOnce(&Connection, &Limits, &mut O) -> Result<A> + Send + 'static,
    ) -> Result<A> {
        let (request, answer) = group::asked(verb);
        match self.shared.enqueue(request)? {
            Role::Leader => self.shared.lead(),
            Role::Follower => {}
        }
        match answer.recv() {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(Error::Abandoned),
        }
    }
}

/// Reads wait for the commit under way and see what is committed, nothing of a group before its COMMIT.
impl<O> SharedStore<O> {
    /// As [`Store::status`].
    ///
    /// # Errors
    /// As [`Store::status`].
    pub fn status(&self, request_id: &str) -> Result<Option<Task>> {
        lock(&self.shared.store).status(request_id)
    }

    /// As [`Store::usage`].
    ///
    /// # Errors
    /// As [`Store::usage`].
    pub fn usage(&self) -> Result<Usage> {
        lock(&self.shared.store).usage()
    }

    /// As [`Store::snapshot`].
    ///
    /// # Errors
    /// As [`Store::snapshot`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        lock(&self.shared.store).snapshot()
    }

    /// Requests that wait for the next commit: at most the queue's places.
    pub fn waiting(&self) -> usize {
        lock(&self.shared.queue).len()
    }

    /// Gives this handle up. The last one closes the connection and says whether that went well; dropping
    /// closes, too, but can't say.
    ///
    /// # Errors
    /// What SQLite reports. Everything acknowledged is durable all the same.
    pub fn close(self) -> Result<()> {
        match Arc::into_inner(self.shared) {
            Some(last) => last.store.into_inner().unwrap_or_else(PoisonError::into_inner).close(),
            None => Ok(()),
        }
    }
}

impl<O> Clone for SharedStore<O> {
    fn clone(&self) -> Self {
        SharedStore { shared: Arc::clone(&self.shared) }
    }
}

/// What a caller is in the group that its request went into.
enum Role {
    Leader,
    Follower,
}

impl<O: Observer> Shared<O> {
    fn enqueue(&self, request: Box<dyn Asked<O>>) -> Result<Role> {
        let QueueOptions { places, patience } = self.options;
        let full = |queue: &mut Vec<_>| queue.len() >= places;
        let (mut queue, wait) =
            self.room.wait_timeout_while(lock(&self.queue), patience, full).unwrap_or_else(PoisonError::into_inner);
        if wait.timed_out() {
            return Err(Error::QueueFull { waited: patience });
        }
        queue.push(request);
        Ok(if queue.len() == 1 { Role::Leader } else { Role::Follower })
    }

    fn lead(&self) {
        let mut store = lock(&self.store);
        // The group is closed only now: whoever came during the last commit is in it.
        let mut requests = mem::take(&mut *lock(&self.queue));
        self.room.notify_all();
        let committed = match catch_unwind(AssertUnwindSafe(|| group::commit(&mut store, &mut requests))) {
            Ok(committed) => committed,
            Err(panic) => {
                // None of them is delivered, so each of the others is abandoned; this caller goes on panicking.
                drop((store, requests));
                resume_unwind(panic)
            }
        };
        let crossed = match committed {
            Ok(after) => catch_unwind(AssertUnwindSafe(|| {
                after.into_iter().for_each(|boundary| store.observer.crossed(boundary));
            })),
            Err(error) => {
                requests.iter_mut().for_each(|request| request.fail(&error));
                Ok(())
            }
        };
        // The next group goes on while this one hears its answers.
        drop(store);
        requests.into_iter().for_each(Asked::deliver);
        if let Err(panic) = crossed {
            resume_unwind(panic);
        }
    }
}

/// A panic is no reason to refuse: it left no transaction open, and the queue whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
