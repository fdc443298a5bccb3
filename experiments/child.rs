//! What a child process of the harness does. Its whole configuration comes in argv.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Subcommand;
use durable_admission::{Boundary, Error, Observer, Request, Store, Token};

use crate::clock::{self, Nanoseconds};
use crate::fixture;
use crate::process::{self, NotMeasured, Start};
use crate::record::Payload;
use crate::sweeps::kill;
use crate::sweeps::worker::{self, Work};

/// No child of a sound run comes near it, on a busy machine neither.
const PATIENCE: Duration = Duration::from_secs(30);

const ANSWER: &str = "answer ";

/// The instant by which what is being waited for has to have happened.
pub fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

#[derive(Subcommand)]
pub enum Role {
    /// Plays the boundary's verb and dies at the boundary.
    Crash { parent: u32, store: PathBuf, boundary: Boundary },
    /// Opens the store, waits to be let go, admits one request.
    Race { parent: u32, store: PathBuf, request_id: String, tenant: String, payload: String },
    /// Asks one verb on the recording disk and dies at a call to it; without a place, counts the calls.
    Kill { parent: u32, store: PathBuf, scene: kill::Scene, place: Option<kill::Place> },
    /// Opens the store, waits to be let go, performs mixed verbs and tells of each call.
    Work(Work),
}

/// How the parent starts a child that is to die at `boundary`.
pub fn casualty(store: &Path, boundary: Boundary) -> Result<Start, NotMeasured> {
    start(boundary.name(), "crash", store, [boundary.name().to_owned()])
}

/// How the parent starts a child that races for room.
pub fn racer(store: &Path, request_id: &str, tenant: &str, payload: Payload) -> Result<Start, NotMeasured> {
    start(request_id, "race", store, [request_id.to_owned(), tenant.to_owned(), payload.text()])
}

/// What a racer's line tells.
pub struct Finish<'l> {
    pub answer: &'l str,
    /// When it was ready, was let go, had its answer.
    pub instants: [Nanoseconds; 3],
}

/// The answer that a racer's line tells, if it tells one.
pub fn finish_in(line: &str) -> Option<Finish<'_>> {
    let mut words = line.strip_prefix(ANSWER)?.split(' ');
    let answer = words.next()?;
    let mut instant = || words.next()?.parse().ok();
    let instants = [instant()?, instant()?, instant()?];
    words.next().is_none().then_some(Finish { answer, instants })
}

/// How the parent starts a child that dies at `place` of the kill sweep's `scene`, or counts its calls.
pub fn victim(store: &Path, scene: &str, place: Option<&str>) -> Result<Start, NotMeasured> {
    let rest = [Some(scene), place].into_iter().flatten().map(str::to_owned);
    start(&[Some(scene), place].into_iter().flatten().collect::<Vec<_>>().join("."), "kill", store, rest)
}

/// The line that tells the parent an answer.
pub fn answer_line(answer: &str) -> String {
    format!("{ANSWER}{answer}")
}

/// The answer that a child's line tells, if it tells one.
pub fn answer_in(line: &str) -> Option<&str> {
    line.strip_prefix(ANSWER)
}

fn start(label: &str, role: &str, store: &Path, rest: impl IntoIterator<Item = String>) -> Result<Start, NotMeasured> {
    let mut arguments: Vec<OsString> = vec!["child".into(), role.into(), std::process::id().to_string().into()];
    arguments.push(store.into());
    arguments.extend(rest.into_iter().map(OsString::from));
    Start::own(label, arguments)
}

impl Role {
    pub fn play(self) -> ExitCode {
        let told = match self {
            Role::Crash { parent, store, boundary } => {
                process::child_started(parent);
                crash(&store, boundary).map(|answer| Some(answer.to_owned()))
            }
            Role::Race { parent, store, request_id, tenant, payload } => {
                process::child_started(parent);
                race(&store, Request { request_id: &request_id, tenant: &tenant, payload: &payload }).map(Some)
            }
            Role::Kill { parent, store, scene, place } => {
                process::child_started(parent);
                if let Err(sentence) = kill::be_killed(&store, scene, place) {
                    tell_error(&sentence);
                }
                return ExitCode::SUCCESS;
            }
            Role::Work(work) => worker::work(&work).map(|()| None),
        };
        match told {
            Ok(None) => {}
            Ok(Some(answer)) => process::tell_parent(&answer_line(&answer)),
            Err(error) => tell_error(&error.to_string()),
        }
        ExitCode::SUCCESS
    }
}

fn tell_error(error: &str) {
    process::tell_parent(&format!("error: {error}").replace('\n', " "));
}

fn crash(store: &Path, boundary: Boundary) -> Result<&'static str, Error> {
    Crossing::of(boundary).play(&mut Store::open(store, &fixture::LIMITS)?.observed_by(DieAt(boundary)))
}

/// The verbs that cross boundaries, with the inputs that every scene of a crash uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Crossing {
    Admit,
    Resolve,
    Cancel,
}

impl Crossing {
    pub const fn of(boundary: Boundary) -> Crossing {
        match boundary {
            Boundary::AdmitAfterIntent | Boundary::AdmitBeforeCommit | Boundary::AdmitAfterCommit => Crossing::Admit,
            Boundary::ResolveAfterEffect | Boundary::ResolveBeforeCommit | Boundary::ResolveAfterCommit => {
                Crossing::Resolve
            }
            Boundary::CancelBeforeCommit | Boundary::CancelAfterCommit => Crossing::Cancel,
        }
    }

    /// Comes back with the answer only if nothing dies on the way.
    pub fn play(self, store: &mut Store<impl Observer>) -> Result<&'static str, Error> {
        Ok(match self {
            Crossing::Admit => {
                store.admit(Request { request_id: REQUEST_ID, tenant: TENANT, payload: &PAYLOAD.text() })?.name()
            }
            Crossing::Resolve => store.resolve(&token(), RESOLVE_TICK)?.name(),
            Crossing::Cancel => store.cancel_unstarted(REQUEST_ID)?.name(),
        })
    }
}

pub const REQUEST_ID: &str = "one";
pub const TENANT: &str = "a";
pub const PAYLOAD: Payload = Payload::new("abc", 1);
pub const RESOLVE_TICK: i64 = 1;

/// The right to report on the first claim.
pub fn token() -> Token {
    Token { request_id: REQUEST_ID.to_owned(), generation: 1 }
}

struct DieAt(Boundary);

impl Observer for DieAt {
    fn crossed(&mut self, boundary: Boundary) {
        if boundary == self.0 {
            process::die_at(boundary.name());
        }
    }
}

fn race(store: &Path, request: Request<'_>) -> Result<String, Error> {
    let mut store = Store::open(store, &fixture::LIMITS)?;
    let ready = clock::now();
    process::await_go();
    let let_go = clock::now();
    let answer = store.admit(request)?.name();
    let answered = clock::now();
    store.close()?;
    Ok(format!("{answer} {ready} {let_go} {answered}"))
}
