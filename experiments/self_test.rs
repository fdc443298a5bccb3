//! The judge's own trial: every field of a frozen file is spoiled in turn, and the judge has to name it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::baseline::load::{LoadError, load};
use crate::baseline::outcome::{Outcome, Run, Scope, Seen, Verdict, judge};
use crate::baseline::read::Document;
use crate::baseline::tamper::{Tamper, tampers};
use crate::baseline::write::canonical;
use crate::job::{Job, Played};
use crate::parallel;
use crate::process::NotMeasured;
use crate::progress::Progress;

/// How many wrong sentences are printed.
const SHOWN: usize = 20;

/// Spoiled copies in memory.
const AT_ONCE: usize = 128;

/// Captures one run, and judges it against every spoiled copy of the file at `path`, each read back from its text.
/// The text to print and whether all went well.
///
/// # Errors
/// If the file is not readable, or the run does not agree with it before anything is spoiled.
pub fn self_test(job: &dyn Job, path: &Path) -> Result<Trial, NoTrial> {
    let original = load(path, job.subject())?;
    let (subject, names) = (job.subject(), job.names());
    let progress = Progress::new(names.len() as u64);
    let played = job.play(&names, &progress);
    progress.finish();
    let Played { document, seen } = played?;
    let judged = |baseline: &Document| {
        let seen = seen.iter().map(|seen| Seen { run: Run::Measured, ..seen.clone() }).collect();
        judge(subject, path.to_string_lossy(), Scope::Whole, baseline, &document, seen)
    };
    for entry in &seen {
        match &entry.run {
            Run::Measured => {}
            Run::Broken(_) => return Err(NoTrial::Disagrees { path: path.to_path_buf() }),
            Run::NotMeasured(what) => return Err(NotMeasured { what: format!("{}: {what}", entry.name) }.into()),
        }
    }
    if judged(&original).verdict() != Verdict::Pass {
        return Err(NoTrial::Disagrees { path: path.to_path_buf() });
    }
    let mut trial = Trial { tampers: BTreeMap::new(), acquitted: Vec::new() };
    let mut tampers = tampers(&original, subject);
    loop {
        let some: Vec<Tamper> = tampers.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            break;
        }
        let sentences = parallel::map(&some, parallel::cores(), |tamper| {
            let text = canonical(tamper.document.root());
            let spoiled = Document::read(text.as_bytes()).map_err(|error| error.to_string());
            spoiled.and_then(|spoiled| convicted(tamper, &judged(&spoiled))).err()
        });
        trial.acquitted.extend(sentences.into_iter().flatten());
        for tamper in &some {
            *trial.tampers.entry(tamper.deed.name()).or_default() += 1;
        }
    }
    Ok(trial)
}

/// Why there is nothing to spoil.
#[derive(Debug, Error)]
pub enum NoTrial {
    #[error(transparent)]
    Unreadable(#[from] LoadError),
    #[error(transparent)]
    NotMeasured(#[from] NotMeasured),
    #[error("{path}: a run does not agree with it as it is; see --check first")]
    Disagrees { path: PathBuf },
}

/// What the self-test came to.
pub struct Trial {
    /// How many of each kind were tried.
    tampers: BTreeMap<&'static str, usize>,
    /// What should have been said and what was, of each tamper that was not named exactly.
    acquitted: Vec<String>,
}

impl Trial {
    pub fn verdict(&self) -> Verdict {
        if self.acquitted.is_empty() && !self.tampers.is_empty() { Verdict::Pass } else { Verdict::Fail }
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for (deed, count) in &self.tampers {
            text += &format!("{deed:<14} {count:>5}\n");
        }
        for sentence in self.acquitted.iter().take(SHOWN) {
            text += &format!("not convicted: {sentence}\n");
        }
        let total: usize = self.tampers.values().sum();
        text + &match self.verdict() {
            Verdict::Pass => format!("PASS: {total} tampers, each convicted by its pointer\n"),
            Verdict::Fail | Verdict::Unreadable | Verdict::NotMeasured => {
                format!("FAIL: {} of {total} tampers not convicted by their pointer\n", self.acquitted.len())
            }
        }
    }
}

/// The check must fail, and name exactly the one place and kind.
fn convicted(tamper: &Tamper, outcome: &Outcome) -> Result<(), String> {
    let inside = outcome.entries().iter().flat_map(|entry| entry.status.differences());
    let said: Vec<String> = outcome
        .outside()
        .iter()
        .chain(inside)
        .map(|difference| format!("{} {}", difference.kind.name(), difference.pointer.as_str()))
        .collect();
    let wanted = format!("{} {}", tamper.deed.kind_in_baseline().name(), tamper.pointer.as_str());
    if said == [wanted.as_str()] && outcome.verdict() == Verdict::Fail {
        return Ok(());
    }
    Err(format!("{} (verdict {}) was said of what is {wanted}", said.join(", "), outcome.verdict().name()))
}
