//! What one verb is swept on: a store as somebody left it, what is asked of it, and the states before and after.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use durable_admission::{self as library, OpenOptions, Store};
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::perform::{Said, library_limits, perform};
use crate::disk::log::{Files, Role};
use crate::disk::recorder::beside;
use crate::model::{Answer, Error, FIXTURE, Request, State, Token, Verb, step};
use crate::process::NotMeasured;

pub struct Stage {
    pub name: &'static str,
    prelude: fn() -> Vec<Verb>,
    asked: fn() -> Asked,
}

/// The swept verbs, and the opening that creates a store. Asked once more afterwards, each leaves the state as it is.
pub const STAGES: [Stage; 7] = [
    Stage { name: "initialise", prelude: Vec::new, asked: || Asked::Open },
    Stage { name: "admit", prelude: history, asked: || Asked::Verb(admit("one")) },
    Stage { name: "claim", prelude: admitted, asked: || Asked::Verb(Verb::Claim { tick: 1 }) },
    Stage { name: "resolve", prelude: claimed, asked: || Asked::Verb(Verb::Resolve { token: token(), tick: 2 }) },
    Stage { name: "quarantine", prelude: claimed, asked: || Asked::Verb(Verb::Quarantine { token: token(), tick: 2 }) },
    Stage { name: "redrive", prelude: quarantined, asked: || Asked::Verb(Verb::Redrive { token: token() }) },
    Stage {
        name: "cancel",
        prelude: admitted,
        asked: || Asked::Verb(Verb::CancelUnstarted { request_id: "one".to_owned() }),
    },
];

/// What two callers ask in one commit. Asked once more afterwards, one by one, they leave the state as it is.
pub const GROUPS: [Stage; 3] = [
    Stage { name: "admit", prelude: history, asked: || Asked::Together(vec![admit("one"), admit("two")]) },
    Stage {
        name: "claim",
        prelude: two_admitted,
        asked: || Asked::Together(vec![Verb::Claim { tick: 1 }, Verb::Claim { tick: 1 }]),
    },
    Stage {
        name: "resolve",
        prelude: two_claimed,
        asked: || Asked::Together(["one", "two"].map(|id| Verb::Resolve { token: token_of(id), tick: 2 }).into()),
    },
];

/// An opening that has nothing to create.
pub const REOPENED: Stage = Stage { name: "open", prelude: claimed, asked: || Asked::Open };

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Opening the store, which creates it where there is none.
    Open,
    Verb(Verb),
    /// In one commit, where a store is shared.
    Together(Vec<Verb>),
}

/// How the store was left by the one who had it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Closed: one file, no log.
    AtRest,
    /// By a death: what the prelude wrote lies in the WAL.
    ByDeath,
    /// By a death, with a WAL so long that the next COMMIT checkpoints it.
    WithLongWal,
}

/// Frames in a long WAL: SQLite checkpoints from 1000 on, whatever their size.
const LONG_WAL_FRAMES: usize = 1000;

/// SQLite's smallest page, in bytes: a long WAL is copied some thousand times.
const SMALL_PAGE: usize = 512;

/// What a store may hold; `None` where nobody created one yet.
pub type Held = Option<State>;

/// A stage made ready.
pub struct Prepared {
    pub asked: Asked,
    pub files: Files,
    pub before: Held,
    pub after: Held,
    /// What has to be said where nothing goes wrong.
    pub reply: Reply,
}

impl Stage {
    pub fn named(name: &str) -> Option<&'static Stage> {
        STAGES.iter().find(|stage| stage.name == name)
    }

    pub fn asked(&self) -> Asked {
        (self.asked)()
    }

    /// Plays the prelude on a store in the empty folder of `path`, and takes its files as they are then. There is nothing
    /// to be left where the store is yet to be created.
    ///
    /// # Errors
    /// A prelude that can't be played.
    pub fn prepare(&self, left: Left, path: &Path) -> Result<Prepared, NotMeasured> {
        let failed =
            |what: String| NotMeasured { what: format!("{}: the store can't be prepared ({what})", self.name) };
        let prelude = (self.prelude)();
        let asked = self.asked();
        let mut before = None;
        let mut files = Files::default();
        if !prelude.is_empty() {
            files = play(&prelude, left, path).map_err(failed)?;
            let start = State::default();
            let end =
                prelude.iter().try_fold(start, |state, verb| step(&FIXTURE, &state, verb).map(|(after, _)| after));
            before = Some(end.map_err(|error| failed(error.name().to_owned()))?);
        }
        let (after, reply) = asked.step(&before).map_err(failed)?;
        Ok(Prepared { asked, files, before, after, reply })
    }
}

fn play(prelude: &[Verb], left: Left, path: &Path) -> Result<Files, String> {
    match left {
        Left::AtRest | Left::ByDeath => {}
        Left::WithLongWal => blank_with_small_pages(path).map_err(|error| error.to_string())?,
    }
    let mut store = Store::open(path, &library_limits(&FIXTURE)).map_err(|error| error.to_string())?;
    for verb in prelude {
        match perform(&mut store, verb) {
            Said::Heard(Ok(_)) => {}
            said @ (Said::Heard(Err(_)) | Said::Failed(_)) => return Err(format!("{verb:?} said {said:?}")),
        }
    }
    match left {
        Left::AtRest => store.close().map_err(|error| error.to_string())?,
        Left::ByDeath => leave_log(store, path, 0)?,
        Left::WithLongWal => leave_log(store, path, LONG_WAL_FRAMES)?,
    }
    let mut files = Files::default();
    for role in Role::ALL {
        files[role] = match fs::read(beside(path, role)) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error.to_string()),
        };
    }
    Ok(files)
}

/// A database without a table, as an initialisation that never came to its end leaves one.
fn blank_with_small_pages(path: &Path) -> rusqlite::Result<()> {
    Connection::open(path)?.execute_batch(&format!("PRAGMA page_size = {SMALL_PAGE}; PRAGMA journal_mode = WAL"))
}

/// Closes the store as a death would, with its log where it is, made longer by at least so many frames that come to nothing.
fn leave_log(store: Store, path: &Path, frames: usize) -> Result<(), String> {
    let last = connection_that_keeps_the_log(path).map_err(|error| error.to_string())?;
    store.close().map_err(|error| error.to_string())?;
    lengthen_log(&last, frames).map_err(|error| error.to_string())
}

fn connection_that_keeps_the_log(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF")?;
    // It counts as a connection to the log only once it has read.
    connection.query_row("SELECT count(*) FROM store", [], |_| Ok(()))?;
    Ok(connection)
}

fn lengthen_log(connection: &Connection, frames: usize) -> rusqlite::Result<()> {
    for change in ["tick + 1", "tick - 1"].iter().cycle().take(frames.next_multiple_of(2)) {
        connection.prepare_cached(&format!("UPDATE store SET tick = {change}"))?.execute([])?;
    }
    Ok(())
}

/// Into a folder that has none of them.
pub fn lay_out(files: &Files, path: &Path) -> Result<(), NotMeasured> {
    for role in Role::ALL {
        if let Some(bytes) = &files[role] {
            let file = beside(path, role);
            fs::write(&file, bytes).map_err(|error| NotMeasured {
                what: format!("{} can't be written ({error}); make room and run again", file.display()),
            })?;
        }
    }
    Ok(())
}

/// What a store says that works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Opened,
    /// An answer, or an error that follows from the protocol.
    Said(Result<Answer, Error>),
    /// To each of those who asked together.
    Each(Vec<Result<Answer, Error>>),
}

impl Reply {
    pub fn name(&self) -> String {
        let said = |heard: &Result<Answer, Error>| match heard {
            Ok(answer) => answer.name(),
            Err(error) => error.name(),
        };
        match self {
            Reply::Opened => "opened".to_owned(),
            Reply::Said(heard) => said(heard).to_owned(),
            Reply::Each(heard) => heard.iter().map(said).collect::<Vec<_>>().join(" and "),
        }
    }
}

impl Asked {
    /// What the model says: the state after it, and the reply.
    ///
    /// # Errors
    /// A sentence for a verb that is asked of no store.
    pub fn step(&self, held: &Held) -> Result<(Held, Reply), String> {
        match (self, held) {
            (Asked::Open, held) => Ok((Some(held.clone().unwrap_or_default()), Reply::Opened)),
            (Asked::Verb(verb), Some(state)) => {
                let (after, heard) = hear(state, verb);
                Ok((Some(after), Reply::Said(heard)))
            }
            (Asked::Together(verbs), Some(state)) => {
                let (mut state, mut each) = (state.clone(), Vec::new());
                for verb in verbs {
                    let (after, heard) = hear(&state, verb);
                    state = after;
                    each.push(heard);
                }
                Ok((Some(state), Reply::Each(each)))
            }
            (Asked::Verb(_) | Asked::Together(_), None) => Err(format!("{self:?} of no store")),
        }
    }

    /// Asks the real store at `path`. One is opened where none is open; opening an open one closes it first. Of one caller's
    /// store those who ask together ask one after the other.
    ///
    /// # Errors
    /// What the model doesn't know: errors of the machine, also of the opening.
    pub fn put(&self, path: &Path, options: OpenOptions, store: &mut Option<Store>) -> Result<Reply, library::Error> {
        let open = || Store::open_with(path, &library_limits(&FIXTURE), options);
        match self {
            Asked::Open => {
                *store = None;
                *store = Some(open()?);
                Ok(Reply::Opened)
            }
            Asked::Verb(verb) => {
                let store = match store {
                    Some(store) => store,
                    None => store.insert(open()?),
                };
                perform(store, verb).heard().map(Reply::Said)
            }
            Asked::Together(verbs) => {
                let store = match store {
                    Some(store) => store,
                    None => store.insert(open()?),
                };
                let each: Result<_, _> = verbs.iter().map(|verb| perform(store, verb).heard()).collect();
                each.map(Reply::Each)
            }
        }
    }
}

fn hear(state: &State, verb: &Verb) -> (State, Result<Answer, Error>) {
    match step(&FIXTURE, state, verb) {
        Ok((after, answer)) => (after, Ok(answer)),
        Err(error) => (state.clone(), Err(error)),
    }
}

/// A store's contents in a few words.
pub fn told(held: &Held) -> String {
    let Some(state) = held else { return "no store yet".to_owned() };
    let tasks: Vec<String> = state
        .tasks
        .iter()
        .map(|task| format!("{} {} generation {}", task.request.id, task.phase.name(), task.generation))
        .collect();
    format!("tick {}, {}", state.tick, if tasks.is_empty() { "no tasks".to_owned() } else { tasks.join(", ") })
}

fn admit(id: &str) -> Verb {
    Verb::Admit(Request::new(id, "a", "abc"))
}

fn token() -> Token {
    token_of("one")
}

fn token_of(request_id: &str) -> Token {
    Token { request_id: request_id.to_owned(), generation: 1 }
}

/// Something that has ended, so that no verb works on an empty store.
fn history() -> Vec<Verb> {
    vec![Verb::Admit(Request::new("ended", "b", "withdrawn")), Verb::CancelUnstarted { request_id: "ended".to_owned() }]
}

fn admitted() -> Vec<Verb> {
    [history(), vec![admit("one")]].concat()
}

fn claimed() -> Vec<Verb> {
    [admitted(), vec![Verb::Claim { tick: 1 }]].concat()
}

fn two_admitted() -> Vec<Verb> {
    [admitted(), vec![admit("two")]].concat()
}

fn two_claimed() -> Vec<Verb> {
    [two_admitted(), vec![Verb::Claim { tick: 1 }, Verb::Claim { tick: 1 }]].concat()
}

fn quarantined() -> Vec<Verb> {
    [claimed(), vec![Verb::Quarantine { token: token(), tick: 2 }]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_changes_the_state_and_asking_again_changes_nothing() {
        for stage in STAGES.iter().chain(&GROUPS) {
            let folder = tempfile::tempdir().expect("a folder");
            let Prepared { asked, before, after, .. } =
                stage.prepare(Left::AtRest, &folder.path().join("store.db")).expect("prepares");
            assert_ne!(before, after, "{}", stage.name);
            assert_eq!(asked.step(&after).expect("has an answer").0, after, "{}", stage.name);
        }
    }

    #[test]
    fn a_store_left_by_a_death_has_its_prelude_in_the_wal_and_one_at_rest_has_none() {
        let wal = |left| {
            let folder = tempfile::tempdir().expect("a folder");
            let stage = Stage::named("admit").expect("is there");
            let prepared = stage.prepare(left, &folder.path().join("store.db")).expect("prepares");
            prepared.files[Role::Wal].as_ref().map_or(0, Vec::len)
        };
        assert_eq!(wal(Left::AtRest), 0);
        assert!(wal(Left::ByDeath) > 0);
        assert!(wal(Left::WithLongWal) > LONG_WAL_FRAMES * SMALL_PAGE);
    }
}
