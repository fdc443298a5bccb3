//! Lays out one disk that a power cut may have left, has it recovered, and holds what is there against the model.
//!
//! Each disk is recovered in an emptied folder by the library's own `Store::open` on an unrecorded connection: stock SQLite on
//! the stock VFS. What it then holds is read by plain SQL, audited, and asked again for everything that was asked before.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use durable_admission::{OpenOptions, Store};
use nix::sys::statvfs::statvfs;
use rusqlite::{Connection, MAIN_DB};
use xxhash_rust::xxh3::xxh3_128;

use super::bench::whole_state;
use super::ground::Ground;
use super::journey::{Journey, Step};
use super::perform::{Said, perform};
use crate::audit::audit;
use crate::disk::image::{Disk, Enumeration, Image, Rule, enumerate};
use crate::fixture::LIMITS;
use crate::model::{FIXTURE, State, Verb, step};
use crate::process::NotMeasured;

/// What was found on one disk. Steps are counted as in [`Journey::states`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that was acknowledged and nothing that was not called.
    Legal { reached: usize },
    /// The state after `reached` steps, though step `lost` had been acknowledged.
    Lost { reached: usize, lost: usize, integrity: String },
    /// No state that the model was ever in; or one that was not called yet; or a store that does not go on.
    Broken { why: String, found: Option<State>, integrity: String },
}

/// Everything legal after a cut anywhere in one run, and what became of it.
pub struct Swept<'j> {
    pub journey: &'j Journey,
    pub found: Enumeration,
    /// One for each image.
    pub verdicts: Vec<Verdict>,
}

impl<'j> Swept<'j> {
    /// # Errors
    /// A disk that could not be laid out.
    pub fn over(ground: &Ground<'_>, journey: &'j Journey, rule: &Rule) -> Result<Swept<'j>, NotMeasured> {
        let found = enumerate(&journey.log, rule);
        let recovery = Recovery::new(ground, journey);
        let verdicts = ground.for_each(&found.images, |image| {
            let again = if image.id.serial.is_multiple_of(WHOLE_RUN_EVERY) { Again::WholeRun } else { Again::Requests };
            recovery.judge(&found, image, again)
        })?;
        Ok(Swept { journey, found, verdicts })
    }

    pub fn images(&self) -> impl Iterator<Item = (&Image, &Verdict)> {
        self.found.images.iter().zip(&self.verdicts)
    }
}

/// What a recovered store is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Every request, by its id.
    Requests,
    /// Every request, then all that the run had still to do, then every request once more.
    WholeRun,
}

/// Of the images of a window. The others are asked for the requests alone.
pub const WHOLE_RUN_EVERY: u32 = 8;

/// Judges images of one run, on as many threads as want to.
pub struct Recovery<'r> {
    ground: &'r Ground<'r>,
    journey: &'r Journey,
    /// Of the threads that are not at work.
    places: Mutex<Vec<Place>>,
    /// Digests of all pages of databases that an audit found nothing in.
    sound: Mutex<HashSet<u128>>,
}

/// Two folders: the library creates a store where it finds none, so what was there before is told in another one.
struct Place {
    library: PathBuf,
    plain: PathBuf,
}

const DATABASE: &str = "store.db";

/// In bytes: many times what any image of these runs and its recovery take.
const ROOM_TO_RECOVER: u128 = 4 << 20;

/// Nobody else is there to be waited for.
const OPTIONS: OpenOptions = OpenOptions { busy_timeout: Duration::from_millis(100) };

impl<'r> Recovery<'r> {
    pub fn new(ground: &'r Ground<'r>, journey: &'r Journey) -> Recovery<'r> {
        Recovery { ground, journey, places: Mutex::new(Vec::new()), sound: Mutex::default() }
    }

    /// # Errors
    /// The disk could not be laid out.
    pub fn judge(&self, found: &Enumeration, image: &Image, again: Again) -> Result<Verdict, NotMeasured> {
        let marks = &self.journey.marks;
        // What must be there is counted at the last cut that can leave this disk, what may be there at the first.
        let (acknowledged, called) = (marks.acknowledged[image.latest_cut], marks.called[image.earliest_cut]);
        self.at_a_place(|place| self.recover(&found.disk(image), place, acknowledged, called, again))
    }

    /// `acknowledged` steps must be there, no more than `called` may be.
    ///
    /// # Errors
    /// As [`Recovery::judge`].
    pub fn judge_disk(&self, disk: &Disk, acknowledged: usize, called: usize) -> Result<Verdict, NotMeasured> {
        self.at_a_place(|place| self.recover(disk, place, acknowledged, called, Again::WholeRun))
    }

    /// The same in a folder where another disk lies already.
    ///
    /// # Errors
    /// As [`Recovery::judge`].
    pub fn judge_disk_after(
        &self,
        other: &Disk,
        disk: &Disk,
        acknowledged: usize,
        called: usize,
    ) -> Result<Verdict, NotMeasured> {
        self.at_a_place(|place| {
            lay_out(other, &place.library)?;
            self.recover(disk, place, acknowledged, called, Again::WholeRun)
        })
    }

    fn at_a_place(&self, judge: impl FnOnce(&Place) -> Result<Verdict, NotMeasured>) -> Result<Verdict, NotMeasured> {
        let idle = self.places.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
        let place = match idle {
            Some(place) => place,
            None => self.make_place()?,
        };
        let verdict = judge(&place).and_then(|verdict| match verdict {
            Verdict::Legal { .. } => Ok(verdict),
            Verdict::Lost { .. } | Verdict::Broken { .. } => with_room_at(&place.library).map(|()| verdict),
        });
        self.places.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(place);
        verdict
    }

    fn make_place(&self) -> Result<Place, NotMeasured> {
        let folder = |name| -> Result<PathBuf, NotMeasured> {
            let database = self.ground.folder.database(name)?;
            Ok(database.parent().map(Path::to_owned).unwrap_or_default())
        };
        Ok(Place { library: folder("recovered")?, plain: folder("plain")? })
    }

    fn recover(
        &self,
        disk: &Disk,
        place: &Place,
        acknowledged: usize,
        called: usize,
        again: Again,
    ) -> Result<Verdict, NotMeasured> {
        lay_out(disk, &place.library)?;
        let path = place.library.join(DATABASE);
        let broken = |why: String, found: Option<State>| Verdict::Broken { why, found, integrity: integrity(&path) };
        let mut store = match Store::open_with(&path, &LIMITS, OPTIONS) {
            Ok(store) => store,
            Err(error) => return Ok(broken(format!("the store does not open: {error}"), None)),
        };
        let read = || Connection::open(&path).and_then(|beside| Ok((whole_state(&beside)?, beside)));
        let (state, mut beside) = match read() {
            Ok((Ok(state), beside)) => (state, beside),
            Ok((Err(why), _)) => return Ok(broken(why, None)),
            Err(error) => return Ok(broken(format!("it cannot be read: {error}"), None)),
        };
        if let Err(why) = self.audited(&path, &mut beside) {
            return Ok(broken(why, Some(state)));
        }
        // An empty store may have been there, or have been made just now.
        let recovered = match state == State::default() {
            false => Some(state.clone()),
            true => {
                lay_out(disk, &place.plain)?;
                match plain_state(&place.plain.join(DATABASE)) {
                    Ok(there) => there,
                    Err(why) => return Ok(broken(format!("stock SQLite alone: {why}"), Some(state))),
                }
            }
        };
        let states = &self.journey.states;
        let Some(reached) = states.iter().position(|legal| *legal == recovered) else {
            return Ok(broken("no state that the run was ever in".to_owned(), Some(state)));
        };
        if reached > called {
            return Ok(broken(
                format!("it holds {}, which was not called yet", self.journey.steps[reached - 1]),
                Some(state),
            ));
        }
        if let Err(why) = self.ask_again(&mut store, &beside, reached, &state, again) {
            return Ok(broken(why, Some(state)));
        }
        Ok(match (reached..acknowledged).find(|&step| states[step + 1] != recovered) {
            Some(lost) => Verdict::Lost { reached, lost, integrity: integrity(&path) },
            None => Verdict::Legal { reached },
        })
    }

    /// Most disks recover to pages that another one had recovered to already: an audit, which reads nothing else, finds
    /// there what it found before.
    fn audited(&self, path: &Path, beside: &mut Connection) -> Result<(), String> {
        let pages = beside.serialize(MAIN_DB).map(|pages| xxh3_128(&pages));
        let pages = pages.map_err(|error| format!("its pages cannot be read: {error}"))?;
        let sound = || self.sound.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if sound().contains(&pages) {
            return Ok(());
        }
        match audit(path)? {
            offences if offences.is_empty() => {
                sound().insert(pages);
                Ok(())
            }
            offences => Err(offences.join("; ")),
        }
    }

    /// Each answer must be the model's, and so must the end.
    fn ask_again(
        &self,
        store: &mut Store,
        beside: &Connection,
        reached: usize,
        recovered: &State,
        again: Again,
    ) -> Result<(), String> {
        let verbs = |steps: &'r [Step]| steps.iter().flat_map(Step::verbs);
        let all = &self.journey.steps;
        let requests = || verbs(all).filter(|verb| matches!(verb, Verb::Admit(_)));
        let mut state = recovered.clone();
        let run_ends_as = match again {
            Again::Requests => {
                for verb in requests() {
                    ask(store, &mut state, verb)?;
                }
                None
            }
            Again::WholeRun => {
                // What would be accepted now has its turn later in the run.
                for verb in requests() {
                    if matches!(step(&FIXTURE, &state, verb), Ok((after, _)) if after == state) {
                        ask(store, &mut state, verb)?;
                    }
                }
                for verb in verbs(&all[reached..]).chain(requests()) {
                    ask(store, &mut state, verb)?;
                }
                self.journey.states.last().and_then(Option::as_ref)
            }
        };
        let found = whole_state(beside).map_err(|error| format!("after all was asked again: {error}"))?;
        match found {
            Ok(found) if found == state && run_ends_as.is_none_or(|end| found == *end) => Ok(()),
            other => Err(format!("all was asked again, and it came to {other:?}")),
        }
    }
}

fn ask(store: &mut Store, state: &mut State, verb: &Verb) -> Result<(), String> {
    let expected = step(&FIXTURE, state, verb);
    match (perform(store, verb), expected) {
        (Said::Heard(Ok(answer)), Ok((after, expected))) if answer == expected => {
            *state = after;
            Ok(())
        }
        (Said::Heard(Err(error)), Err(expected)) if error == expected => Ok(()),
        (said, expected) => {
            let expected = expected.map(|(_, answer)| answer);
            Err(format!("{} again: {said:?}, and the model says {expected:?}", Step::Verb(verb.clone())))
        }
    }
}

/// What was found where recovery had no room is no finding.
fn with_room_at(folder: &Path) -> Result<(), NotMeasured> {
    let told = |why: String| NotMeasured { what: format!("{}: {why}", folder.display()) };
    let found =
        statvfs(folder).map_err(|errno| told(format!("its room can't be told ({errno}); use another TMPDIR")))?;
    let bytes = u128::from(found.blocks_available()) * u128::from(found.fragment_size());
    match bytes < ROOM_TO_RECOVER {
        true => Err(told(format!("only {bytes} bytes are left there; make room"))),
        false => Ok(()),
    }
}

fn lay_out(disk: &Disk, folder: &Path) -> Result<(), NotMeasured> {
    disk.lay_out(folder, DATABASE).map_err(|error| NotMeasured {
        what: format!("{}: no disk can be laid out: {error}; make room", folder.display()),
    })
}

/// `None`: no store.
fn plain_state(path: &Path) -> Result<Option<State>, String> {
    let read = || {
        let connection = Connection::open(path)?;
        let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if objects == 0 {
            return Ok(Ok(None));
        }
        Ok(whole_state(&connection)?.map(Some))
    };
    read().unwrap_or_else(|error: rusqlite::Error| Err(error.to_string()))
}

/// What many take for an oracle; kept beside a conviction to show that it is none.
fn integrity(path: &Path) -> String {
    let check = || Connection::open(path)?.query_row("PRAGMA integrity_check", [], |row| row.get(0));
    check().unwrap_or_else(|error: rusqlite::Error| error.to_string())
}

/// The steps of a run that are legal at a cut.
pub fn legal_at(journey: &Journey, cut: usize) -> RangeInclusive<usize> {
    journey.marks.acknowledged[cut]..=journey.marks.called[cut]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::journey::Connections;
    use super::*;
    use crate::disk::log::Role;
    use crate::progress::Progress;

    /// A store in which the first step or two of the tour were taken, then `sql`, closed; as a disk.
    fn made(ground: &Ground<'_>, verbs: usize, sql: &str) -> Disk {
        let path = ground.folder.database("made").expect("a folder");
        let mut store = Store::open(&path, &LIMITS).expect("opens");
        for verb in super::super::tour::tour().iter().take(verbs) {
            assert!(matches!(perform(&mut store, verb), Said::Heard(Ok(_))));
        }
        store.close().expect("closes");
        Connection::open(&path).and_then(|beside| beside.execute_batch(sql)).expect("is changed");
        let mut disk = Disk::default();
        disk.files[Role::Database] = Some(fs::read(&path).expect("is there"));
        disk
    }

    /// Steps are numbered from the making of the store: after two of them `one` is admitted.
    #[test]
    fn only_what_was_called_and_all_that_was_acknowledged_is_legal() {
        let ground = Ground::prepare("test", &Progress::Quiet).expect("a folder");
        let journey = Journey::record(&ground, Connections::Kept).expect("records");
        let recovery = Recovery::new(&ground, &journey);
        let judge =
            |disk: &Disk, acknowledged, called| recovery.judge_disk(disk, acknowledged, called).expect("lays out");
        let one_admitted = made(&ground, 1, "");
        assert_eq!(judge(&one_admitted, 1, 2), Verdict::Legal { reached: 2 });
        assert_eq!(judge(&one_admitted, 2, 2), Verdict::Legal { reached: 2 });
        assert!(matches!(judge(&one_admitted, 3, 3), Verdict::Lost { reached: 2, lost: 2, .. }));
        assert!(matches!(judge(&one_admitted, 1, 1), Verdict::Broken { why, .. } if why.contains("not called yet")));
        assert_eq!(judge(&Disk::default(), 0, 1), Verdict::Legal { reached: 0 });
        assert!(matches!(judge(&Disk::default(), 1, 1), Verdict::Lost { reached: 0, lost: 0, .. }));
    }

    #[test]
    fn what_integrity_check_calls_sound_is_convicted_all_the_same() {
        let ground = Ground::prepare("test", &Progress::Quiet).expect("a folder");
        let journey = Journey::record(&ground, Connections::Kept).expect("records");
        let recovery = Recovery::new(&ground, &journey);
        for sql in [
            "DELETE FROM task",
            "UPDATE usage SET count = count + 1",
            "UPDATE store SET tick = 1",
            "UPDATE task SET generation = 1",
        ] {
            let disk = made(&ground, 1, sql);
            match recovery.judge_disk(&disk, 0, journey.steps.len()).expect("lays out") {
                Verdict::Broken { integrity, .. } => assert_eq!(integrity, "ok", "{sql}"),
                other => panic!("{sql}: {other:?}"),
            }
        }
    }
}
