//! The job behind `results.json`: plays the scenario groups.

use std::cell::RefCell;
use std::time::Instant;

use crate::baseline::outcome::{Run, Seen};
use crate::baseline::write::document_of;
use crate::baseline::{self, Subject};
use crate::fixture;
use crate::folder::Folder;
use crate::groups::{GROUPS, Group};
use crate::heat::Heat;
use crate::job::{Job, Played};
use crate::parallel;
use crate::process::NotMeasured;
use crate::progress::{Progress, say};
use crate::record::{self, Results};
use crate::scene::Stop;
use crate::signal;

pub struct ScenarioGroups {
    databases: Databases,
    /// Of each race that was run, in order, with its group; never frozen.
    heats: RefCell<Vec<(&'static str, Heat)>>,
}

impl ScenarioGroups {
    pub fn new(databases: Databases) -> ScenarioGroups {
        ScenarioGroups { databases, heats: RefCell::default() }
    }

    /// The groups of which there are heats.
    pub fn raced(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = self.heats.borrow().iter().map(|(name, _)| *name).collect();
        names.dedup();
        names
    }

    /// The heats of the plays so far.
    pub fn into_heats(self) -> Vec<(&'static str, Heat)> {
        self.heats.into_inner()
    }
}

/// What becomes of the databases that were used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Databases {
    Removed,
    Kept,
}

impl Job for ScenarioGroups {
    fn subject(&self) -> Subject {
        baseline::GROUPS
    }

    fn names(&self) -> Vec<&'static str> {
        GROUPS.map(|group| group.name).to_vec()
    }

    fn play(&self, selected: &[&'static str], progress: &Progress) -> Result<Played, NotMeasured> {
        let folder = Folder::create()?;
        let groups: Vec<&Group> = GROUPS.iter().filter(|group| selected.contains(&group.name)).collect();
        // They share nothing but the folder, and mostly wait: for the disk and for children.
        let ended = parallel::map(&groups, GROUPS_AT_ONCE, |group| {
            progress.begin(group.name);
            let began = Instant::now();
            let ended = play(group, &folder);
            if !matches!(ended.1, Run::Measured) {
                // It may be an interrupt's clean-up that took away what was being played with.
                signal::stand_aside();
            }
            progress.end(&format!("{} {} ({} ms)", group.name, described(&ended.1), began.elapsed().as_millis()));
            ended
        });
        let mut measured = Vec::new();
        let mut seen = Vec::new();
        for (group, (story, run, heat)) in groups.iter().zip(ended) {
            self.heats.borrow_mut().extend(heat.map(|heat| (group.name, heat)));
            measured.extend(story.map(|story| (group.name, story)));
            seen.push(Seen { name: group.name.to_owned(), sentence: group.shows.to_owned(), run });
        }
        if self.databases == Databases::Kept {
            say(&format!("the databases are in {}", folder.keep()?.display()));
        }
        let document = document_of(&Results::new(&fixture::LIMITS, measured))
            .map_err(|error| NotMeasured { what: error.to_string() })?;
        Ok(Played { document, seen })
    }
}

const GROUPS_AT_ONCE: usize = 2;

type Ended = (Option<record::Group>, Run, Option<Heat>);

fn play(group: &Group, folder: &Folder) -> Ended {
    let played = group.play(folder);
    let mut broken = played.broken;
    let (story, run) = match played.story {
        Ok(story) => {
            let run = if broken.is_empty() { Run::Measured } else { Run::Broken(broken) };
            (Some(record::Group { shows: group.shows, story }), run)
        }
        Err(Stop::NotMeasured(error)) if broken.is_empty() => (None, Run::NotMeasured(error.what)),
        Err(Stop::NotMeasured(error)) => {
            broken.push(error.what);
            (None, Run::Broken(broken))
        }
        Err(Stop::Broken(sentence)) => {
            broken.push(sentence);
            (None, Run::Broken(broken))
        }
    };
    (story, run, played.heat)
}

fn described(run: &Run) -> &'static str {
    match run {
        Run::Measured => "played",
        Run::Broken(_) => "is broken",
        Run::NotMeasured(_) => "could not be measured",
    }
}
