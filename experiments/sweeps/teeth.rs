//! The harness has teeth: the power sweep again over settings and disks that are wrong, each of which it has to convict.
//!
//! A sync changes nothing that SQLite does next, so one honest run tells what each of them would have left: its log without
//! the syncs that would not have been. That also holds for `synchronous=NORMAL` and `OFF`, which the library would not take:
//! the disk's own tests record both settings and find the log of `FULL` less those syncs, line by line.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::counterexample::{sentence, smallest};
use super::ground::Ground;
use super::journey::{Journey, Step, Unrecorded};
use super::power::{RuleFigures, record_both, replayed};
use super::recovery::{Recovery, Swept, Verdict};
use super::{Found, Replay};
use crate::disk::image::{Disk, ImageId, Rule};
use crate::disk::log::{ByRole, Role};
use crate::disk::wrong::WrongDisk;
use crate::process::NotMeasured;

/// One conviction is enough, so one run will do, the one with a kept connection, and fewer images than in the sweep whose
/// teeth these are.
const RULE: Rule = Rule { full_product: 32, subsets_up_to: 4, random_subsets: 4, damages: 16, storms: 4, seed: 73 };

struct Tooth {
    name: &'static str,
    shows: &'static str,
    /// What is wrong, one after the other.
    disks: &'static [WrongDisk],
    harm: Harm,
}

/// What a tooth has to be convicted of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// Acknowledged requests are lost, and nothing is broken.
    LosesOnly,
    /// Requests are lost, or what is there is no state.
    Any,
    /// What is there is no state: the setting beneath loses already.
    Breaks,
}

const TEETH: [Tooth; 7] = [
    Tooth {
        name: "normal",
        shows: "synchronous=NORMAL: a commit is not synced",
        disks: &[WrongDisk::CommitSyncDropped],
        harm: Harm::LosesOnly,
    },
    Tooth {
        name: "off",
        shows: "synchronous=OFF: nothing is synced",
        disks: &[WrongDisk::SyncsDoNothing],
        harm: Harm::Any,
    },
    Tooth {
        name: "syncs_do_nothing",
        shows: "FULL on a disk whose syncs do nothing",
        disks: &[WrongDisk::SyncsDoNothing],
        harm: Harm::Any,
    },
    Tooth {
        name: "commit_sync_dropped",
        shows: "FULL, and the sync of the commit is dropped",
        disks: &[WrongDisk::CommitSyncDropped],
        harm: Harm::LosesOnly,
    },
    Tooth {
        name: "directory_sync_dropped",
        shows: "FULL, and the directory is never synced",
        disks: &[WrongDisk::DirectorySyncDropped],
        harm: Harm::Any,
    },
    Tooth {
        name: "checkpoint_sync_dropped",
        shows: "FULL, and the database is not synced at a checkpoint",
        disks: &[WrongDisk::CheckpointSyncDropped],
        harm: Harm::Any,
    },
    // With FULL the commit's sync has done it already: nothing is left to be lost, and nothing to convict.
    Tooth {
        name: "wal_sync_before_checkpoint_dropped",
        shows: "NORMAL, and the WAL is not synced before a checkpoint",
        disks: &[WrongDisk::CommitSyncDropped, WrongDisk::WalSyncBeforeCheckpointDropped],
        harm: Harm::Breaks,
    },
];

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let mut figures = Figures { rule: RuleFigures::of(&RULE), teeth: BTreeMap::new(), controls: BTreeMap::new() };
    let [kept, closed] = &match record_both(ground) {
        Ok(both) => both,
        Err(Unrecorded::Disagrees(what)) => return Found::new(&figures, vec![what]),
        Err(Unrecorded::NotMeasured(error)) => return Err(error),
    };
    let mut blunt = Vec::new();
    // Two teeth of one log are one sweep.
    let mut known: BTreeMap<Vec<&str>, Convictions> = BTreeMap::new();
    for tooth in &TEETH {
        let disks: Vec<&str> = tooth.disks.iter().map(|disk| disk.name()).collect();
        let convictions = match known.get(&disks) {
            Some(convictions) => convictions.clone(),
            None => {
                let journey = wrong(kept, tooth);
                Convictions::of(&Swept::over(ground, &journey, &RULE)?)
            }
        };
        known.insert(disks, convictions.clone());
        blunt.extend(tooth.blunt(&convictions));
        figures.teeth.insert(tooth.name, ToothFigures { shows: tooth.shows, convictions });
    }
    control(ground, kept, closed, &mut figures, &mut blunt)?;
    Found::new(&figures, blunt)
}

/// `point`: the tooth, a slash, the image's id.
pub fn replay(ground: &Ground<'_>, point: &str) -> Result<Replay, NotMeasured> {
    let unknown = || Replay::Unknown(format!("{point:?} is no point of this sweep; write one as in normal/12.345"));
    let named = point
        .split_once('/')
        .and_then(|(tooth, id)| Some((TEETH.iter().find(|row| row.name == tooth)?, id.parse::<ImageId>().ok()?)));
    let Some((tooth, id)) = named else { return Ok(unknown()) };
    let [kept, _] = &record_both(ground)?;
    Ok(replayed(ground, &wrong(kept, tooth), &RULE, id, "teeth", point)?.unwrap_or_else(unknown))
}

fn wrong(journey: &Journey, tooth: &Tooth) -> Journey {
    tooth.disks.iter().fold(journey.clone(), |journey, disk| journey.on(*disk))
}

impl Tooth {
    /// A sentence if it was not convicted of what it does.
    fn blunt(&self, convictions: &Convictions) -> Option<String> {
        let Convictions { lost, broken, .. } = *convictions;
        let (convicted, wanted) = match self.harm {
            Harm::LosesOnly => (lost > 0 && broken == 0, "requests lost and nothing broken"),
            Harm::Any => (lost + broken > 0, "requests lost or a store broken"),
            Harm::Breaks => (broken > 0, "a store broken"),
        };
        (!convicted).then(|| {
            format!("{}: {lost} images lost a request and {broken} are broken; there should be {wanted}", self.name)
        })
    }
}

#[derive(Serialize)]
struct Figures {
    rule: RuleFigures,
    teeth: BTreeMap<&'static str, ToothFigures>,
    controls: BTreeMap<&'static str, BTreeMap<&'static str, String>>,
}

#[derive(Serialize)]
struct ToothFigures {
    shows: &'static str,
    #[serde(flatten)]
    convictions: Convictions,
}

#[derive(Clone, Default, Serialize)]
struct Convictions {
    states: u64,
    images: u64,
    legal: u64,
    lost: u64,
    broken: u64,
    /// Of the lost and of the broken: those that `integrity_check` calls sound.
    lost_yet_sound: u64,
    broken_yet_sound: u64,
    /// How many acknowledged requests are the first to be missing from some image, and the first of all.
    requests_lost: usize,
    first_lost: Option<String>,
    /// The conviction by the fewest dropped writes.
    smallest: Option<String>,
}

impl Convictions {
    fn of(swept: &Swept<'_>) -> Convictions {
        let journey = swept.journey;
        let counts = &swept.found.counts;
        let mut figures = Convictions { states: counts.tried, images: counts.distinct, ..Convictions::default() };
        let mut requests = BTreeSet::new();
        for verdict in &swept.verdicts {
            match verdict {
                Verdict::Legal { .. } => figures.legal += 1,
                Verdict::Lost { lost, integrity, .. } => {
                    figures.lost += 1;
                    figures.lost_yet_sound += u64::from(integrity == SOUND);
                    requests.insert(*lost);
                }
                Verdict::Broken { integrity, .. } => {
                    figures.broken += 1;
                    figures.broken_yet_sound += u64::from(integrity == SOUND);
                }
            }
        }
        figures.requests_lost = requests.len();
        figures.first_lost = requests.first().map(|&step| journey.steps[step].to_string());
        figures.smallest =
            smallest(swept, |verdict| !matches!(verdict, Verdict::Legal { .. })).map(|(image, _)| image.id.to_string());
        figures
    }
}

const SOUND: &str = "ok";

/// Three ways in which such a harness fools itself.
fn control(
    ground: &Ground<'_>,
    kept: &Journey,
    closed: &Journey,
    figures: &mut Figures,
    blunt: &mut Vec<String>,
) -> Result<(), NotMeasured> {
    let mut freeze = |control, what, verdict: String| {
        figures.controls.entry(control).or_default().insert(what, verdict);
    };

    // The WAL is the store as long as nothing was written back from it.
    let written_back = cut_before(kept, |step| matches!(step, Step::Checkpoint(_)))?;
    let whole = Disk { files: kept.log.files_at(written_back), shared_memory: None };
    let without_wal = Disk { files: only(&whole, Role::Database), shared_memory: None };
    let there = kept.marks.acknowledged[written_back];
    let recovery = Recovery::new(ground, kept);
    for (what, disk, convicts) in
        [("database_and_wal", &whole, Convicts::No), ("database_alone", &without_wal, Convicts::Yes)]
    {
        let verdict = recovery.judge_disk(disk, there, there)?;
        blunt.extend(convicts.unlike(&verdict, "copy_without_wal", what));
        freeze("copy_without_wal", what, sentence(kept, &verdict));
    }

    // A store just made and closed, where another run has left its WAL.
    let made = cut_before(closed, |step| matches!(step, Step::Verb(_)))?;
    let new = Disk { files: closed.log.files_at(made), shared_memory: None };
    let mut stale = new.clone();
    stale.files[Role::Wal] = whole.files[Role::Wal].clone();
    let there = closed.marks.acknowledged[made];
    let recovery = Recovery::new(ground, closed);
    let emptied = recovery.judge_disk_after(&whole, &new, there, there)?;
    let beside = recovery.judge_disk(&stale, there, there)?;
    for (what, verdict, convicts) in
        [("emptied_folder", emptied, Convicts::No), ("beside_stale_wal", beside, Convicts::Yes)]
    {
        blunt.extend(convicts.unlike(&verdict, "stale_wal", what));
        freeze("stale_wal", what, sentence(closed, &verdict));
    }

    // `integrity_check` is content with any sound file.
    let teeth = || figures.teeth.values().map(|tooth| &tooth.convictions);
    let lost: u64 = teeth().map(|tooth| tooth.lost_yet_sound).sum();
    let broken: u64 = teeth().map(|tooth| tooth.broken_yet_sound).sum();
    if lost == 0 || broken == 0 {
        blunt.push(format!(
            "integrity_check was content with {lost} lost and {broken} broken images; there should be some of each"
        ));
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Convicts {
    Yes,
    No,
}

impl Convicts {
    fn unlike(self, verdict: &Verdict, control: &str, what: &str) -> Option<String> {
        match (self, verdict) {
            (Convicts::No, Verdict::Legal { .. }) | (Convicts::Yes, Verdict::Lost { .. } | Verdict::Broken { .. }) => {
                None
            }
            (Convicts::No, Verdict::Lost { .. } | Verdict::Broken { .. }) | (Convicts::Yes, Verdict::Legal { .. }) => {
                Some(format!("{control}, {what}: {verdict:?}"))
            }
        }
    }
}

fn only(disk: &Disk, wanted: Role) -> ByRole<Option<Vec<u8>>> {
    ByRole::from_fn(|role| disk.files[role].clone().filter(|_| role == wanted))
}

/// The cut before the first such step is called.
fn cut_before(journey: &Journey, wanted: impl Fn(&Step) -> bool) -> Result<usize, NotMeasured> {
    let step = journey.steps.iter().position(wanted);
    let step = step.ok_or_else(|| NotMeasured { what: "the run has no such step".to_owned() })?;
    Ok(journey.marks.called.partition_point(|called| *called <= step) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;

    #[test]
    fn a_conviction_names_what_was_lost_and_its_point_plays_it_again() {
        let ground = Ground::prepare("test", &Progress::Quiet).expect("a folder");
        // The database and the WAL at the first commit: the header is synced, its frames are not.
        match replay(&ground, "normal/3.23").expect("is measured") {
            Replay::Convicted(text) => {
                assert!(text.contains("init was acknowledged and is lost"), "{text}");
                assert!(text.contains("durable-admission sweep teeth --point normal/3.23"), "{text}");
            }
            Replay::Legal(text) | Replay::Unknown(text) => panic!("{text}"),
        }
        for unknown in ["normal", "normal/3", "normal/3.99999999", "sharp/3.23", "normal/kept/3.23"] {
            assert!(matches!(replay(&ground, unknown).expect("is measured"), Replay::Unknown(_)), "{unknown}");
        }
    }

    #[test]
    fn a_tooth_that_convicts_of_nothing_or_of_too_much_is_blunt() {
        let convicted = |lost, broken| Convictions { lost, broken, ..Convictions::default() };
        let blunt = |harm, lost, broken| {
            let tooth = Tooth { name: "tooth", shows: "", disks: &[], harm };
            tooth.blunt(&convicted(lost, broken)).is_some()
        };
        assert!(blunt(Harm::LosesOnly, 0, 0) && blunt(Harm::LosesOnly, 1, 1) && !blunt(Harm::LosesOnly, 1, 0));
        assert!(blunt(Harm::Any, 0, 0) && !blunt(Harm::Any, 1, 0) && !blunt(Harm::Any, 0, 1));
        assert!(blunt(Harm::Breaks, 1, 0) && !blunt(Harm::Breaks, 0, 1));
    }
}
