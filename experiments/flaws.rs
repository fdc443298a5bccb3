//! The gallery of flaws: small, plausible diffs that a colleague might submit, each built and tried, and what convicted it.
//! A harness that was never seen to fail is no evidence.
//!
//! A flaw is a row of the table and `flaws/NAME.patch`, which begins with a line `Wrong:` and a line `Shipped by:`.

pub mod sql;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::baseline::load::load;
use crate::baseline::outcome::{Run, Seen};
use crate::baseline::read::Document;
use crate::baseline::write::{canonical, document_of};
use crate::baseline::{self, Subject};
use crate::groups::GROUPS;
use crate::job::{Job, Played};
use crate::process::{Child, Exit, NotMeasured, Start};
use crate::progress::Progress;
use crate::sweeps::SWEEPS;

pub const FLAWS: [Flaw; 30] = [
    flaw!("capacity-before-identity"),
    flaw!("refusal-binds-the-id"),
    flaw!("conflict-ignores-the-tenant"),
    flaw!("bytes-counted-as-characters"),
    flaw!("capacity-read-outside-the-transaction"),
    flaw!("intent-and-task-in-two-transactions"),
    flaw!("answered-before-commit"),
    flaw!("quarantined-not-counted"),
    flaw!("room-given-back-at-claim"),
    flaw!("lease-compared-with-less-than"),
    flaw!("synchronous-normal"),
    flaw!("resolve-without-the-fence"),
    flaw!("cancel-of-a-claimed-one"),
    flaw!("effect-committed-before-done"),
    flaw!("redrive-admits-anew"),
    flaw!("audit-only-integrity-check"),
    flaw!("child-exits-1"),
    flaw!("ledger-decremented-twice"),
    flaw!("ledger-not-restored-on-rollback"),
    flaw!("answered-before-the-groups-commit"),
    flaw!("crossing-dropped"),
    flaw!("boundary-moved-past-commit"),
    flaw!("claim-by-due-then-sequence"),
    flaw!("tick-stored-only-when-claimed"),
    flaw!("replay-folds-case"),
    flaw!("snapshot-in-several-transactions"),
    flaw!("emptied-ledger-rows-deleted"),
    flaw!("commit-error-swallowed"),
    flaw!("limits-of-the-last-opener"),
    flaw!("refusal-in-a-group-keeps-its-charge"),
];

pub struct Flaw {
    pub name: &'static str,
    patch: &'static str,
}

macro_rules! flaw {
    ($name:literal) => {
        Flaw { name: $name, patch: include_str!(concat!("flaws/", $name, ".patch")) }
    };
}
use flaw;

impl Flaw {
    pub fn wrong(&self) -> &'static str {
        self.line("Wrong: ")
    }

    fn shipped_by(&self) -> &'static str {
        self.line("Shipped by: ")
    }

    /// Paths of what it changes.
    fn files(&self) -> impl Iterator<Item = &'static str> {
        self.patch.lines().filter_map(|line| line.strip_prefix("+++ b/"))
    }

    fn line(&self, start: &str) -> &'static str {
        self.patch.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default()
    }
}

/// Sweeps in which processes or threads really race: what convicts a flaw there may not do so every time.
const CHANCY: [&str; 3] = ["nemesis", "histories", "snapshot"];
/// How often a run that rests on chance is played: all of them have to convict before it is frozen, one when it is checked.
const TRIES: usize = 3;

const BUILD: Duration = Duration::from_secs(600);
const PLAY: Duration = Duration::from_secs(300);

/// The job behind `experiments/flaws/matrix.json`.
pub struct Gallery {
    pub checkout: PathBuf,
    pub extent: Extent,
}

/// How much is played for a flaw.
pub enum Extent {
    /// All groups and sweeps.
    Everything,
    /// The groups, and the sweeps that convicted it when this file was frozen: they still have to.
    Frozen(PathBuf),
    /// As `Frozen`, but of the sweeps only the quickest; the others are taken at their word.
    Quick(PathBuf),
}

/// Sweeps by how soon they convict.
const QUICKEST_FIRST: [&str; SWEEPS.len()] = [
    "limits",
    "audit",
    "group",
    "random",
    "exhaustive",
    "kill",
    "fault",
    "teeth",
    "power",
    "snapshot",
    "histories",
    "nemesis",
];

/// Who convicted a flaw, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Convicted {
    groups: BTreeSet<String>,
    sweeps: BTreeSet<String>,
    /// Groups and sweeps that could not measure it, which is no pass; where nobody else convicts it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    not_measured: BTreeSet<String>,
}

/// What became of the groups or sweeps that a program played.
#[derive(Default)]
struct Verdicts {
    convicted: BTreeSet<String>,
    not_measured: BTreeSet<String>,
}

impl Verdicts {
    /// As JSON tells them, of `names` alone.
    fn told(json: &str, names: &[&str]) -> serde_json::Result<Verdicts> {
        #[derive(Deserialize)]
        struct Said {
            entries: Vec<Entry>,
        }
        #[derive(Deserialize)]
        struct Entry {
            name: String,
            status: String,
        }
        let mut verdicts = Verdicts::default();
        for Entry { name, status } in serde_json::from_str::<Said>(json)?.entries {
            match status.as_str() {
                _ if !names.contains(&name.as_str()) => {}
                "agrees" => {}
                "not-measured" => drop(verdicts.not_measured.insert(name)),
                _ => drop(verdicts.convicted.insert(name)),
            }
        }
        Ok(verdicts)
    }
}

impl Convicted {
    /// With the quickest of its sweeps alone; and the others.
    fn quickest(self) -> (Convicted, BTreeSet<String>) {
        let Convicted { groups, mut sweeps, not_measured } = self;
        let quickest = QUICKEST_FIRST.iter().find_map(|name| sweeps.take(*name));
        // Nobody is believed whom nobody knows.
        sweeps.retain(|name| QUICKEST_FIRST.contains(&name.as_str()));
        (Convicted { groups, sweeps: quickest.into_iter().collect(), not_measured }, sweeps)
    }
}

impl Display for Convicted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut before = "Convicted by";
        let kinds =
            [("groups", &self.groups), ("sweeps", &self.sweeps), ("refusing to measure it:", &self.not_measured)];
        for (kind, names) in kinds {
            if !names.is_empty() {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                write!(f, "{before} {kind} {}", names.join(", "))?;
                before = ";";
            }
        }
        f.write_str(".")
    }
}

#[derive(Serialize)]
struct Row {
    wrong: &'static str,
    shipped_by: &'static str,
    convicted_by: Convicted,
}

impl Job for Gallery {
    fn subject(&self) -> Subject {
        baseline::FLAWS
    }

    fn names(&self) -> Vec<&'static str> {
        FLAWS.iter().map(|flaw| flaw.name).collect()
    }

    /// What rests on chance is repeated flaw by flaw.
    fn steady_runs(&self) -> usize {
        1
    }

    fn play(&self, selected: &[&'static str], progress: &Progress) -> Result<Played, NotMeasured> {
        let workshop = Workshop::set_up(&self.checkout)?;
        progress.begin("the sources as they are");
        workshop.control()?;
        let frozen = match &self.extent {
            Extent::Everything => None,
            Extent::Frozen(file) | Extent::Quick(file) => load(file, self.subject()).ok(),
        };
        let mut measured = Vec::new();
        let mut seen = Vec::new();
        for flaw in FLAWS.iter().filter(|flaw| selected.contains(&flaw.name)) {
            progress.begin(flaw.name);
            let began = Instant::now();
            let before = frozen.as_ref().map(|frozen| convicted_before(frozen, flaw.name));
            let (asked, believed) = match (&self.extent, before) {
                (Extent::Everything, _) | (_, None) => (None, BTreeSet::new()),
                (Extent::Frozen(_), Some(before)) => (Some(before), BTreeSet::new()),
                (Extent::Quick(_), Some(before)) => {
                    let (quickest, others) = before.quickest();
                    (Some(quickest), others)
                }
            };
            let convicted = workshop.convict(flaw, asked.as_ref(), progress).map(|mut convicted| {
                // Somebody who was really asked has to have convicted it.
                if convicted != Convicted::default() {
                    convicted.sweeps.extend(believed);
                }
                convicted
            });
            let mut sentence = flaw.wrong().to_owned();
            let (run, what) = match convicted {
                Ok(convicted_by) if convicted_by == Convicted::default() => {
                    (Run::Broken(vec!["nothing convicts it; the harness is to be mended".to_owned()]), "goes free")
                }
                Ok(convicted_by) => {
                    sentence = format!("{sentence} {convicted_by}");
                    let row = Row { wrong: flaw.wrong(), shipped_by: flaw.shipped_by(), convicted_by };
                    measured.push((flaw.name, row));
                    (Run::Measured, "is convicted")
                }
                Err(Stop::Stale(sentence)) => (Run::Broken(vec![sentence]), "no longer applies"),
                Err(Stop::NotMeasured(error)) => (Run::NotMeasured(error.what), "could not be measured"),
            };
            progress.end(&format!("{} {what} ({} ms)", flaw.name, began.elapsed().as_millis()));
            seen.push(Seen { name: flaw.name.to_owned(), sentence, run });
        }
        let document = document_of(&Matrix { format: FORMAT, flaws: measured })
            .map_err(|error| NotMeasured { what: error.to_string() })?;
        Ok(Played { document, seen })
    }
}

/// Raised when the shape of the file changes.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Matrix {
    format: u32,
    #[serde(serialize_with = "crate::record::in_order")]
    flaws: Vec<(&'static str, Row)>,
}

fn convicted_before(frozen: &Document, name: &str) -> Convicted {
    let entry = frozen.entries(baseline::FLAWS.member).iter().find(|entry| entry.name == name);
    #[derive(Deserialize)]
    struct Before {
        convicted_by: Convicted,
    }
    entry
        .and_then(|entry| serde_json::from_str::<Before>(&canonical(&entry.node)).ok())
        .map_or_else(Convicted::default, |before| before.convicted_by)
}

enum Stop {
    /// The patch is out of date: a fault of the gallery.
    Stale(String),
    NotMeasured(NotMeasured),
}

impl From<NotMeasured> for Stop {
    fn from(error: NotMeasured) -> Self {
        Stop::NotMeasured(error)
    }
}

const TARGET: &str = "target/flaws";
const TREE: &str = "target/flaws/tree";

/// A copy of the sources under `target`, always at the same place, so that Cargo rebuilds only what a flaw changes.
struct Workshop {
    checkout: PathBuf,
    tree: PathBuf,
    target: PathBuf,
    /// Held as long as something is built and played there.
    _lock: fs::File,
}

impl Workshop {
    fn set_up(checkout: &Path) -> Result<Workshop, NotMeasured> {
        let (target, tree) = (checkout.join(TARGET), checkout.join(TREE));
        let told = |error: io::Error| NotMeasured {
            what: format!(
                "{}: the sources can't be copied there ({error}); make room, or the right to write",
                tree.display()
            ),
        };
        fs::create_dir_all(&tree).map_err(told)?;
        let lock = fs::File::create(target.join("lock")).map_err(told)?;
        lock.try_lock().map_err(|error| NotMeasured {
            what: format!(
                "{}: another run builds there ({error}); wait for its end, or use a checkout of its own",
                target.display()
            ),
        })?;
        Ok(Workshop { checkout: checkout.to_owned(), tree, target, _lock: lock })
    }

    fn copy_sources(&self) -> Result<(), NotMeasured> {
        mirror(&self.checkout, &self.tree).map_err(|error| self.not_copied(&error))
    }

    fn not_copied(&self, error: &io::Error) -> NotMeasured {
        let tree = self.tree.display();
        NotMeasured { what: format!("{tree}: the sources can't be copied there ({error}); make room and run again") }
    }

    fn convict(&self, flaw: &Flaw, before: Option<&Convicted>, progress: &Progress) -> Result<Convicted, Stop> {
        let say = |what: &str| progress.note(|| format!("{}: {what}", flaw.name));
        say("building");
        let program = self.build(Some(flaw))?;
        let mut convicted = Convicted::default();
        let mut not_measured = BTreeSet::new();
        say("groups");
        let groups: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
        convicted.groups = self.tried(before.map(|before| before.groups.clone()), &mut not_measured, || {
            self.play(&program, &[], &groups, &self.checkout.join("results.json"))
        })?;
        for sweep in &SWEEPS {
            let names = |before: &Convicted| [&before.sweeps, &before.not_measured].map(|of| of.contains(sweep.name));
            let wanted = before.is_none_or(|before| names(before).contains(&true));
            if wanted {
                say(sweep.name);
                let frozen = self.checkout.join("experiments").join("sweeps.json");
                let once = || self.play(&program, &["sweep", sweep.name], &[sweep.name], &frozen);
                let found = match CHANCY.contains(&sweep.name) {
                    true => {
                        let before = before.map(|_| BTreeSet::from([sweep.name.to_owned()]));
                        self.tried(before, &mut not_measured, once)?
                    }
                    false => {
                        let Verdicts { convicted, not_measured: refused } = once()?;
                        not_measured.extend(refused);
                        convicted
                    }
                };
                convicted.sweeps.extend(found);
            }
        }
        if convicted == Convicted::default() {
            convicted.not_measured = not_measured;
        }
        Ok(convicted)
    }

    /// What convicts every time; or, where it is known who did `before`, who of them does so once.
    fn tried(
        &self,
        before: Option<BTreeSet<String>>,
        not_measured: &mut BTreeSet<String>,
        play: impl Fn() -> Result<Verdicts, Stop>,
    ) -> Result<BTreeSet<String>, Stop> {
        let mut once = || {
            let Verdicts { convicted, not_measured: refused } = play()?;
            not_measured.extend(refused);
            Ok::<_, Stop>(convicted)
        };
        let mut found = once()?;
        for _ in 1..TRIES {
            match &before {
                None if found.is_empty() => break,
                None => {
                    let again = once()?;
                    found.retain(|name| again.contains(name));
                }
                Some(before) if before.is_subset(&found) => break,
                Some(_) => found.extend(once()?),
            }
        }
        if let Some(before) = before {
            found.retain(|name| before.contains(name));
        }
        Ok(found)
    }

    /// The sources as they are have to pass: else what is found here says nothing of a flaw.
    fn control(&self) -> Result<(), NotMeasured> {
        let told = |what: String| NotMeasured { what: format!("without any flaw {what}; see to that first") };
        let groups: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
        let built = self.build(None).or_else(|_| {
            // A build that was killed may have torn what the next one goes on from.
            let torn = self.target.join("flaw").join("incremental");
            fs::remove_dir_all(&torn).map_err(|error| {
                Stop::NotMeasured(NotMeasured { what: format!("{}: {error}; remove it and run again", torn.display()) })
            })?;
            self.build(None)
        });
        let Verdicts { convicted, not_measured } = built
            .and_then(|program| self.play(&program, &[], &groups, &self.checkout.join("results.json")))
            .map_err(|stop| match stop {
                Stop::Stale(what) => told(what),
                Stop::NotMeasured(error) => error,
            })?;
        match convicted.iter().chain(&not_measured).next() {
            Some(group) => Err(told(format!("{group} does not agree, or can't be measured"))),
            None => Ok(()),
        }
    }

    /// The sources with the flaw, or as they are.
    fn build(&self, flaw: Option<&Flaw>) -> Result<PathBuf, Stop> {
        self.copy_sources()?;
        if let Some(flaw) = flaw {
            let patch = self.target.join("flaw.patch");
            fs::write(&patch, flaw.patch).map_err(|error| self.not_copied(&error))?;
            // Whatever repository is around: to git these are plain files.
            let arguments: [OsString; 5] =
                ["--git-dir=/dev/null".into(), "-C".into(), self.tree.clone().into(), "apply".into(), patch.into()];
            let applied = run("git apply", "git", arguments, BUILD)?;
            let same = |file| fs::read(self.tree.join(file)).ok() == fs::read(self.checkout.join(file)).ok();
            if applied.exit != Exit::Code(0) || flaw.files().any(same) {
                return Err(Stop::Stale(format!("the patch does not apply ({}); make it anew", applied.stderr.trim())));
            }
        }
        let manifest = self.tree.join("Cargo.toml");
        let arguments: [OsString; 8] = [
            "build".into(),
            "--quiet".into(),
            "--locked".into(),
            "--profile=flaw".into(),
            "--manifest-path".into(),
            manifest.into(),
            "--target-dir".into(),
            self.target.clone().into(),
        ];
        let built = run("cargo build", "cargo", arguments, BUILD)?;
        if built.exit != Exit::Code(0) {
            let errors = built.stderr.trim();
            return Err(Stop::Stale(match flaw {
                Some(_) => format!("with the patch the sources don't build ({errors}); make it anew"),
                None => format!("the sources don't build ({errors})"),
            }));
        }
        Ok(self.target.join("flaw").join(env!("CARGO_PKG_NAME")))
    }

    /// Which of `names` are not as they should be, and of which that can't be told.
    fn play(&self, program: &Path, job: &[&str], names: &[&str], frozen: &Path) -> Result<Verdicts, Stop> {
        let mut arguments: Vec<OsString> = job.iter().map(OsString::from).collect();
        arguments.extend([
            "--check".into(),
            "--quiet".into(),
            "--format=json".into(),
            "--results".into(),
            frozen.into(),
        ]);
        let ended = run("the flawed program", program, arguments, PLAY)?;
        Verdicts::told(&ended.lines.join("\n"), names).map_err(|error| {
            let what = format!("the flawed program told no result ({}; {error}): {}", ended.exit, ended.stderr.trim());
            NotMeasured { what }.into()
        })
    }
}

fn run(
    label: &str,
    program: impl AsRef<Path>,
    arguments: impl IntoIterator<Item = OsString>,
    patience: Duration,
) -> Result<crate::process::Ended, NotMeasured> {
    Child::spawn(&Start::program(label, program, arguments))?.finish(Instant::now() + patience)
}

/// Makes `tree` hold the sources of `checkout`, and leaves what is the same already, with its time stamp, to Cargo.
/// What is neither a file nor a folder (a pipe, a link to nothing or to a folder) is no source.
fn mirror(checkout: &Path, tree: &Path) -> io::Result<()> {
    for entry in fs::read_dir(tree)? {
        let entry = entry?;
        let origin = checkout.join(entry.file_name());
        match (entry.file_type()?.is_dir(), origin.is_dir(), origin.is_file()) {
            (true, true, _) | (false, _, true) => {}
            (true, false, _) => fs::remove_dir_all(entry.path())?,
            (false, _, false) => fs::remove_file(entry.path())?,
        }
    }
    for entry in fs::read_dir(checkout)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        let copy = tree.join(&name);
        let origin = entry.path();
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&copy)?;
            mirror(&origin, &copy)?;
        } else if origin.is_file() {
            let wanted = fs::read(&origin)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", origin.display())))?;
            if fs::read(&copy).ok().as_ref() != Some(&wanted) {
                fs::write(&copy, wanted)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sweep_has_its_place_among_the_quickest() {
        let mut ordered = QUICKEST_FIRST;
        ordered.sort_unstable();
        let mut table = SWEEPS.map(|sweep| sweep.name);
        table.sort_unstable();
        assert_eq!(ordered, table);
    }

    #[test]
    fn the_copy_holds_the_sources_alone_and_what_is_the_same_stays_untouched() {
        let folder = tempfile::tempdir().expect("a folder");
        let [checkout, tree] = ["checkout", "tree"].map(|name| folder.path().join(name));
        for (file, text) in [("kept.rs", "kept"), ("module/part.rs", "part"), ("target/built", ""), (".git/index", "")]
        {
            let file = checkout.join(file);
            fs::create_dir_all(file.parent().expect("a parent")).expect("a folder");
            fs::write(file, text).expect("a source");
        }
        nix::unistd::mkfifo(&checkout.join("pipe"), nix::sys::stat::Mode::S_IRUSR).expect("a pipe");
        std::os::unix::fs::symlink("nowhere", checkout.join("dangling")).expect("a link to nothing");
        fs::create_dir(&tree).expect("a folder");
        mirror(&checkout, &tree).expect("is copied");
        let held = || {
            let mut names: Vec<_> =
                fs::read_dir(&tree).expect("is read").map(|e| e.expect("an entry").file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(held(), ["kept.rs", "module"]);
        assert_eq!(fs::read_to_string(tree.join("module/part.rs")).expect("is read"), "part");

        // Older than any tick of a coarse clock.
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        let kept = tree.join("kept.rs");
        fs::File::options().append(true).open(&kept).and_then(|file| file.set_modified(long_ago)).expect("is dated");
        fs::remove_dir_all(checkout.join("module")).expect("is removed");
        fs::write(checkout.join("module"), "a file now").expect("is written");
        fs::remove_file(checkout.join("pipe")).expect("is removed");
        fs::write(checkout.join("changed.rs"), "before").expect("is written");
        mirror(&checkout, &tree).expect("is copied");
        fs::write(checkout.join("changed.rs"), "after").expect("is written");
        mirror(&checkout, &tree).expect("is copied");
        assert_eq!(held(), ["changed.rs", "kept.rs", "module"]);
        assert_eq!(fs::read_to_string(tree.join("module")).expect("is read"), "a file now");
        assert_eq!(fs::read_to_string(tree.join("changed.rs")).expect("is read"), "after");
        let dated = fs::metadata(kept).and_then(|file| file.modified()).expect("a time");
        assert_eq!(dated, long_ago, "what is the same was not written again");
    }

    #[test]
    fn what_differs_or_is_broken_convicts_and_what_could_not_be_measured_does_not() {
        let entry =
            |name: &str, status: &str| format!(r#"{{"name": "{name}", "status": "{status}", "differences": []}}"#);
        let entries = [
            entry("agreeing", "agrees"),
            entry("differing", "differs"),
            entry("broken", "broken"),
            entry("unknown", "not-measured"),
            entry("not asked", "differs"),
        ];
        let json = format!(r#"{{"verdict": "fail", "entries": [{}]}}"#, entries.join(", "));
        let told = Verdicts::told(&json, &["agreeing", "differing", "broken", "unknown"]).expect("is read");
        assert_eq!(Vec::from_iter(&told.convicted), ["broken", "differing"]);
        assert_eq!(Vec::from_iter(&told.not_measured), ["unknown"]);
        assert!(Verdicts::told("", &[]).is_err());
    }

    #[test]
    fn the_quickest_is_asked_and_the_others_are_believed() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        let convicted = |groups: &[&str], sweeps: &[&str], not_measured: &[&str]| Convicted {
            groups: names(groups),
            sweeps: names(sweeps),
            not_measured: names(not_measured),
        };
        let (quickest, others) = convicted(&["a"], &["power", "random", "nemesis", "unknown"], &[]).quickest();
        assert_eq!(quickest, convicted(&["a"], &["random"], &[]));
        assert_eq!(others, names(&["nemesis", "power"]));
        assert_eq!(quickest.to_string(), "Convicted by groups a; sweeps random.");
        assert_eq!(convicted(&["b", "c"], &[], &[]).to_string(), "Convicted by groups b, c.");
        assert_eq!(convicted(&[], &[], &["d"]).to_string(), "Convicted by refusing to measure it: d.");
    }

    #[test]
    fn every_patch_is_in_the_table_and_says_what_is_wrong_and_who_shipped_it() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments").join("flaws");
        let mut patches: Vec<String> = fs::read_dir(folder)
            .expect("the gallery")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
            .filter_map(|name| name.strip_suffix(".patch").map(str::to_owned))
            .collect();
        patches.sort();
        let mut table: Vec<&str> = FLAWS.iter().map(|flaw| flaw.name).collect();
        table.sort_unstable();
        assert_eq!(patches, table);
        for flaw in &FLAWS {
            assert!(!flaw.wrong().is_empty(), "{} says what is wrong", flaw.name);
            assert!(!flaw.shipped_by().is_empty(), "{} says who shipped it", flaw.name);
        }
    }
}
