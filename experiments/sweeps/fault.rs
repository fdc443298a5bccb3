//! Each fault that a disk reports, at every call that it can meet: while a store is created, opened, recovered, asked,
//! checkpointed and closed.
//!
//! What the store may hold is kept as a set. A reply leaves in it what can have given that reply; an error leaves it as it
//! is, but for a COMMIT of unknown outcome, which adds the state after. Whatever is found at the end has to be in the set.
//!
//! One fault is beyond the contract: a short read of the database. The file's end is the only place for one, SQLite takes
//! the rest for zeros, and a file that ends before what was synced has lost it. What comes of it is counted, not judged.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use durable_admission::{Error, OpenOptions, Store};
use serde::{Serialize, Serializer};

use super::aftermath::{ask_again, look, remove_folder_of};
use super::ground::Ground;
use super::stage::{Asked, Held, Left, Prepared, REOPENED, Reply, STAGES, Stage, lay_out, told};
use super::{Found, Replay};
use crate::disk::log::Role;
use crate::disk::plan::{self, Call, Fault, Plan, Span};
use crate::disk::recorder::Recorder;
use crate::disk::vfs;
use crate::model::{Request, Verb};
use crate::process::NotMeasured;

/// What is asked of which store, and which of its calls are struck.
struct Scene {
    name: &'static str,
    stage: &'static Stage,
    left: Left,
    struck: Struck,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Struck {
    All,
    /// Not those of the opening, which a scene of its own strikes.
    AfterOpening,
}

const fn verb(stage: &'static Stage) -> Scene {
    Scene { name: stage.name, stage, left: Left::AtRest, struck: Struck::AfterOpening }
}

const SCENES: [Scene; 10] = [
    Scene { name: "initialise", stage: &STAGES[0], left: Left::AtRest, struck: Struck::All },
    Scene { name: "open", stage: &REOPENED, left: Left::AtRest, struck: Struck::All },
    Scene { name: "recover", stage: &REOPENED, left: Left::ByDeath, struck: Struck::All },
    verb(&STAGES[1]),
    verb(&STAGES[2]),
    verb(&STAGES[3]),
    verb(&STAGES[4]),
    verb(&STAGES[5]),
    verb(&STAGES[6]),
    Scene { name: "checkpoint", stage: &STAGES[1], left: Left::WithLongWal, struck: Struck::AfterOpening },
];

/// What comes after the reply or the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Then {
    Close,
    Die,
    /// The same again and further verbs on the same connection, then a death.
    GoOn,
}

impl Then {
    const ALL: [Then; 3] = [Then::Close, Then::Die, Then::GoOn];

    fn name(self) -> &'static str {
        match self {
            Then::Close => "close",
            Then::Die => "die",
            Then::GoOn => "go_on",
        }
    }
}

/// As text `admit.eio.once.close.7`.
#[derive(Clone, Copy)]
struct Point {
    scene: &'static Scene,
    fault: Fault,
    span: Span,
    then: Then,
    /// Counted from 1 among the calls that this fault can meet.
    at: u64,
}

struct Measured {
    scene: &'static Scene,
    prepared: Prepared,
    opened: Totals,
    replied: Totals,
    closed: Totals,
}

/// How many calls of each kind there were by then.
#[derive(Clone, Copy)]
struct Totals([u64; Call::ALL.len()]);

impl Totals {
    fn of(recorder: &Recorder) -> Totals {
        Totals(Call::ALL.map(|call| recorder.total(&[call])))
    }

    fn met_by(&self, fault: Fault) -> u64 {
        fault.calls().iter().map(|call| self.0[*call as usize]).sum()
    }
}

/// What one struck run came to.
struct Outcome {
    /// The kind of error that the one asked got, if it got one.
    error: Option<String>,
    fate: Fate,
    /// The sentence where it is a fault.
    broken: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Before,
    After,
    /// After further verbs.
    Later,
    /// Acknowledged, and not there.
    Lost,
    Broken,
    /// Beyond the contract: a short read of the database was taken for zeros.
    Believed,
}

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let _shim = vfs::register().map_err(|what| NotMeasured { what })?;
    let scenes: Vec<&'static Scene> = SCENES.iter().collect();
    let mut broken = Vec::new();
    let mut kept = Vec::new();
    for measured in ground.for_each(&scenes, |scene| measure(ground, scene))? {
        match measured {
            Ok(measured) => kept.push(measured),
            Err(sentence) => broken.push((0, sentence)),
        }
    }
    let points: Vec<(usize, Point)> = kept
        .iter()
        .enumerate()
        .flat_map(|(index, measured)| measured.points().into_iter().map(move |point| (index, point)))
        .collect();
    let outcomes = ground.for_each(&points, |(index, point)| kept[*index].play(ground, *point))?;
    let mut figures = Figures::default();
    for (index, measured) in kept.iter().enumerate() {
        let mut row = Row { calls: measured.calls(), ..Row::default() };
        for ((_, point), outcome) in points.iter().zip(&outcomes).filter(|((of, _), _)| *of == index) {
            row.count(*point, outcome, measured.changes());
            broken.extend(outcome.broken.clone().map(|sentence| (point.at, sentence)));
        }
        figures.points += row.points;
        figures.scenes.push((measured.scene.name, row));
    }
    broken.sort_by_key(|(at, _)| *at);
    Found::new(&figures, broken.into_iter().map(|(_, sentence)| sentence).collect())
}

/// `point` is a [`Point`]'s text.
pub fn replay(ground: &Ground<'_>, point: &str) -> Result<Replay, NotMeasured> {
    let point: Point = match point.parse() {
        Ok(point) => point,
        Err(sentence) => return Ok(Replay::Unknown(sentence)),
    };
    let _shim = vfs::register().map_err(|what| NotMeasured { what })?;
    let measured = match measure(ground, point.scene)? {
        Ok(measured) => measured,
        Err(sentence) => return Ok(Replay::Convicted(format!("{sentence}\n"))),
    };
    let range = measured.range(point.fault, point.then);
    if !range.contains(&point.at) {
        let (first, last) = (range.start(), range.end());
        return Ok(Replay::Unknown(format!(
            "{point}: this fault is put in at calls {first} to {last}; give one of these"
        )));
    }
    let outcome = measured.play(ground, point)?;
    let legal = format!("before: {}\nafter:  {}\n", told(&measured.prepared.before), told(&measured.prepared.after));
    Ok(match outcome.broken {
        Some(sentence) => Replay::Convicted(format!("{sentence}\n{legal}")),
        None => {
            let error = outcome.error.as_deref().unwrap_or("no error");
            Replay::Legal(format!("{point}: {error}; found {}\n{legal}", outcome.fate.name()))
        }
    })
}

/// The inner error is a sentence: even undisturbed, the store does not do what the model says.
fn measure(ground: &Ground<'_>, scene: &'static Scene) -> Result<Result<Measured, String>, NotMeasured> {
    let path = ground.folder.database(&format!("{}.prepared", scene.name))?;
    let prepared = scene.stage.prepare(scene.left, &path)?;
    remove_folder_of(&path);
    let path = ground.folder.database(&format!("{}.counted", scene.name))?;
    lay_out(&prepared.files, &path)?;
    let recorder = recorder(&path, Plan::NOTHING)?;
    let recording = vfs::record(&recorder);
    let mut store = None;
    let asked = match &prepared.asked {
        Asked::Open => Ok((Totals([0; Call::ALL.len()]), Asked::Open)),
        Asked::Verb(_) | Asked::Together(_) => Asked::Open
            .put(&path, OpenOptions::default(), &mut store)
            .map(|_| (Totals::of(&recorder), prepared.asked.clone())),
    };
    let replied = asked.and_then(|(opened, asked)| {
        let reply = asked.put(&path, OpenOptions::default(), &mut store)?;
        Ok((opened, reply, Totals::of(&recorder)))
    });
    drop(store);
    drop(recording);
    let closed = Totals::of(&recorder);
    remove_folder_of(&path);
    Ok(match replied {
        Ok((opened, reply, replied)) if reply == prepared.reply => {
            Ok(Measured { scene, prepared, opened, replied, closed })
        }
        Ok((_, reply, _)) => {
            Err(format!("{}: undisturbed it said {}, not {}", scene.name, reply.name(), prepared.reply.name()))
        }
        Err(error) => Err(format!("{}: undisturbed it failed ({error})", scene.name)),
    })
}

fn recorder(path: &Path, plan: Plan) -> Result<Arc<Recorder>, NotMeasured> {
    Recorder::new(path, plan)
        .map_err(|error| NotMeasured { what: format!("{} can't be recorded ({error}); run again", path.display()) })
}

impl Measured {
    /// The calls at which this fault is put in, counted from 1 among those it can meet.
    fn range(&self, fault: Fault, then: Then) -> std::ops::RangeInclusive<u64> {
        let first = match self.scene.struck {
            Struck::All => 1,
            Struck::AfterOpening => self.opened.met_by(fault) + 1,
        };
        let last = match then {
            Then::Close => self.closed,
            Then::Die | Then::GoOn => self.replied,
        };
        first..=last.met_by(fault)
    }

    fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for fault in Fault::ALL {
            for span in [Span::Once, Span::FromThenOn] {
                for then in Then::ALL {
                    // While a fault persists there is no going on.
                    if (span, then) == (Span::FromThenOn, Then::GoOn) {
                        continue;
                    }
                    let scene = self.scene;
                    points.extend(self.range(fault, then).map(|at| Point { scene, fault, span, then, at }));
                }
            }
        }
        points
    }

    fn calls(&self) -> BTreeMap<String, u64> {
        let before = match self.scene.struck {
            Struck::All => Totals([0; Call::ALL.len()]),
            Struck::AfterOpening => self.opened,
        };
        let of = |call: Call| self.closed.0[call as usize] - before.0[call as usize];
        Call::ALL.iter().map(|call| (call.to_string(), of(*call))).filter(|(_, calls)| *calls > 0).collect()
    }

    fn play(&self, ground: &Ground<'_>, point: Point) -> Result<Outcome, NotMeasured> {
        let path = ground.folder.database(&point.to_string())?;
        lay_out(&self.prepared.files, &path)?;
        let recorder = recorder(&path, Plan::fault(point.fault, point.span, point.at))?;
        let mut run = Run {
            path: &path,
            options: OpenOptions { busy_timeout: patience(point.span) },
            store: None,
            possible: vec![self.prepared.before.clone()],
            past: Vec::new(),
            broken: None,
        };
        let recording = vfs::record(&recorder);
        let played = catch_unwind(AssertUnwindSafe(|| run.play(&self.prepared.asked, point.then, &recorder)));
        drop(recording);
        let struck = recorder.struck();
        let Run { possible, past, broken, .. } = run;
        let convicted = |error, fate, what: String| {
            let at = struck.map_or_else(|| point.at.to_string(), |struck| struck.to_string());
            let what = format!(
                "{point}: {} at call {at}: {what}; again with: durable-admission sweep fault --point {point}",
                point.fault.name()
            );
            Outcome { error, fate, broken: Some(what) }
        };
        let Ok(error) = played else {
            return Ok(convicted(None, Fate::Broken, "the library panicked".to_owned()));
        };
        let Some(struck) = struck else {
            return Err(NotMeasured { what: format!("{point}: the run never came to this call; run again") });
        };
        let outcome = match (broken, look(&path)?) {
            (Some(what), _) => convicted(error, Fate::Broken, what),
            (None, Err(what)) => convicted(error, Fate::Broken, what),
            (None, Ok(found)) if possible.contains(&found) => match ask_again(&path, &self.prepared.asked, &found)? {
                Ok(_) => Outcome { error, fate: self.fate(&found), broken: None },
                Err(what) => convicted(error, Fate::Broken, what),
            },
            (None, Ok(found)) => {
                let legal: Vec<String> = possible.iter().map(told).collect();
                let fate = if past.contains(&found) { Fate::Lost } else { Fate::Broken };
                let said = error.clone().unwrap_or_else(|| "no error".to_owned());
                let what = format!("after {said} found {}; legal is {}", told(&found), legal.join(" or "));
                convicted(error, fate, what)
            }
        };
        remove_folder_of(&path);
        Ok(match (outcome.fate, beyond_contract(point.fault, struck)) {
            (Fate::Lost | Fate::Broken, true) => Outcome { fate: Fate::Believed, broken: None, ..outcome },
            (Fate::Before | Fate::After | Fate::Later | Fate::Lost | Fate::Broken | Fate::Believed, _) => outcome,
        })
    }

    fn changes(&self) -> Changes {
        if self.prepared.before == self.prepared.after { Changes::Nothing } else { Changes::State }
    }

    fn fate(&self, found: &Held) -> Fate {
        if *found == self.prepared.after {
            Fate::After
        } else if *found == self.prepared.before {
            Fate::Before
        } else {
            Fate::Later
        }
    }
}

fn beyond_contract(fault: Fault, struck: plan::Point) -> bool {
    fault == Fault::ShortRead && struck.role == Role::Database
}

/// What passes is waited for; what stays is not.
fn patience(span: Span) -> Duration {
    match span {
        Span::Once => OpenOptions::default().busy_timeout,
        Span::FromThenOn => Duration::ZERO,
    }
}

/// One run, and what is known of the store.
struct Run<'r> {
    path: &'r Path,
    options: OpenOptions,
    store: Option<Store>,
    possible: Vec<Held>,
    /// What it may have held earlier and can't any more.
    past: Vec<Held>,
    broken: Option<String>,
}

impl Run<'_> {
    /// The kind of error that the first one asked got.
    fn play(&mut self, asked: &Asked, then: Then, recorder: &Recorder) -> Option<String> {
        if *asked != Asked::Open {
            self.ask(&Asked::Open);
        }
        let error = self.ask(asked);
        match then {
            Then::Close => {}
            Then::Die => recorder.halt(),
            Then::GoOn => {
                self.ask(asked);
                further().iter().for_each(|verb| drop(self.ask(verb)));
                recorder.halt();
            }
        }
        if let Some(store) = self.store.take() {
            // Whether this went well is nobody's answer.
            let _ = store.close();
        }
        error
    }

    fn ask(&mut self, asked: &Asked) -> Option<String> {
        if self.store.is_none() && *asked != Asked::Open {
            self.ask(&Asked::Open)?;
        }
        match asked.put(self.path, self.options, &mut self.store) {
            Ok(reply) => {
                self.hear(asked, &reply);
                None
            }
            Err(error) => {
                // A failed opening may have created the store, or not.
                if *asked == Asked::Open || matches!(error, Error::OutcomeUnknown(_)) {
                    let after = self.possible.iter().filter_map(|held| Some(asked.step(held).ok()?.0));
                    let after: Vec<Held> = after.filter(|held| !self.possible.contains(held)).collect();
                    self.possible.extend(after);
                }
                Some(kind(&error))
            }
        }
    }

    fn hear(&mut self, asked: &Asked, reply: &Reply) {
        let mut after = Vec::new();
        let steps: Vec<_> = self.possible.iter().filter_map(|held| asked.step(held).ok()).collect();
        for (held, said) in &steps {
            if said == reply && !after.contains(held) {
                after.push(held.clone());
            }
        }
        if after.is_empty() && self.broken.is_none() {
            let legal: Vec<String> = steps.iter().map(|(_, said)| said.name()).collect();
            self.broken = Some(format!("{asked:?} said {}; legal is {}", reply.name(), legal.join(" or ")));
        }
        self.past.append(&mut self.possible);
        self.possible = after;
    }
}

/// What is asked once the fault has passed: they write to the same pages, and are acknowledged.
fn further() -> [Asked; 3] {
    [
        Asked::Verb(Verb::Admit(Request::new("later", "c", "afterwards"))),
        Asked::Verb(Verb::Claim { tick: 20 }),
        Asked::Verb(Verb::CancelUnstarted { request_id: "later".to_owned() }),
    ]
}

/// The variant's name: messages carry codes that differ from machine to machine.
fn kind(error: &Error) -> String {
    match error {
        Error::Input { .. } => "input".to_owned(),
        Error::TickMovedBack { .. } => "tick_moved_back".to_owned(),
        Error::Ceiling { .. } => "ceiling".to_owned(),
        Error::LimitsDiffer { .. } => "limits_differ".to_owned(),
        Error::NotOurs { .. } => "not_ours".to_owned(),
        Error::Setting { .. } => "setting".to_owned(),
        Error::Busy(_) => "busy".to_owned(),
        Error::DiskFull(_) => "disk_full".to_owned(),
        Error::Io(_) => "io".to_owned(),
        Error::Unavailable(_) => "unavailable".to_owned(),
        Error::Corrupt(_) => "corrupt".to_owned(),
        Error::OutcomeUnknown(error) => format!("outcome_unknown: {}", kind(error)),
        Error::Sqlite(_) => "sqlite".to_owned(),
        // The library may get more of them.
        _ => "unheard_of".to_owned(),
    }
}

impl Fate {
    fn name(self) -> &'static str {
        match self {
            Fate::Before => "the state before",
            Fate::After => "the state after",
            Fate::Later => "a later state",
            Fate::Lost | Fate::Broken => "none of these",
            Fate::Believed => "what a database cut short gives, which is beyond the contract",
        }
    }
}

fn span_name(span: Span) -> &'static str {
    match span {
        Span::Once => "once",
        Span::FromThenOn => "from_then_on",
    }
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { scene, fault, span, then, at } = self;
        write!(out, "{}.{}.{}.{}.{at}", scene.name, fault.name(), span_name(*span), then.name())
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Point, String> {
        let point = || {
            let mut parts = text.split('.');
            let mut next = || parts.next();
            let (scene, fault, span, then, at) = (next()?, next()?, next()?, next()?, next()?);
            let point = Point {
                scene: SCENES.iter().find(|known| known.name == scene)?,
                fault: Fault::ALL.into_iter().find(|known| known.name() == fault)?,
                span: [Span::Once, Span::FromThenOn].into_iter().find(|known| span_name(*known) == span)?,
                then: Then::ALL.into_iter().find(|known| known.name() == then)?,
                at: at.parse().ok()?,
            };
            parts.next().is_none().then_some(point)
        };
        point().ok_or_else(|| format!("{text:?} is no point; give one such as admit.eio.once.close.7"))
    }
}

/// Whether there is anything that an error could hide.
#[derive(Clone, Copy)]
enum Changes {
    State,
    Nothing,
}

#[derive(Default, Serialize)]
struct Figures {
    points: u64,
    #[serde(serialize_with = "in_order")]
    scenes: Vec<(&'static str, Row)>,
}

#[derive(Default, Serialize)]
struct Row {
    calls: BTreeMap<String, u64>,
    points: u64,
    points_by_fault: BTreeMap<&'static str, u64>,
    /// Where no error came back: retried, or not noticed.
    answered: u64,
    errors: BTreeMap<String, u64>,
    /// The error came back, and afterwards the commit was there all the same.
    errors_that_hid_a_commit: BTreeMap<String, u64>,
    recovered_to_before: u64,
    recovered_to_after: u64,
    /// Where it went on.
    recovered_to_later: u64,
    /// Beyond the contract.
    short_reads_believed: u64,
    lost: u64,
    broken: u64,
}

impl Row {
    fn count(&mut self, point: Point, outcome: &Outcome, changes: Changes) {
        self.points += 1;
        *self.points_by_fault.entry(point.fault.name()).or_default() += 1;
        match &outcome.error {
            None => self.answered += 1,
            Some(error) => *self.errors.entry(error.clone()).or_default() += 1,
        }
        match (outcome.fate, point.then, &outcome.error, changes) {
            (Fate::After, then @ (Then::Close | Then::Die), Some(error), Changes::State) => {
                let hidden = format!("{error}, then {}", then.name());
                *self.errors_that_hid_a_commit.entry(hidden).or_default() += 1;
            }
            (Fate::After, Then::Close | Then::Die, Some(_), Changes::Nothing)
            | (Fate::After, Then::Close | Then::Die, None, _)
            | (Fate::After, Then::GoOn, _, _)
            | (Fate::Before | Fate::Later | Fate::Lost | Fate::Broken | Fate::Believed, _, _, _) => {}
        }
        *match outcome.fate {
            Fate::Before => &mut self.recovered_to_before,
            Fate::After => &mut self.recovered_to_after,
            Fate::Later => &mut self.recovered_to_later,
            Fate::Lost => &mut self.lost,
            Fate::Broken => &mut self.broken,
            Fate::Believed => &mut self.short_reads_believed,
        } += 1;
    }
}

fn in_order<S: Serializer>(rows: &[(&'static str, Row)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(rows.iter().map(|(name, row)| (name, row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;

    fn outcome(point: &str) -> Outcome {
        let _shim = vfs::register().expect("registers");
        let point: Point = point.parse().expect("is a point");
        let ground = Ground::prepare("fault", &Progress::Quiet).expect("a folder");
        let measured = measure(&ground, point.scene).expect("measures").expect("works undisturbed");
        measured.play(&ground, point).expect("is measured")
    }

    /// The second write of an initialisation belongs to the switch to WAL, whose answer comes before its commit.
    #[test]
    fn a_switch_to_wal_that_fails_is_an_error_and_never_a_store_without_wal() {
        let outcome = outcome("initialise.disk_full.once.close.2");
        assert_eq!((outcome.error.as_deref(), outcome.broken), (Some("disk_full"), None));
    }

    #[test]
    fn a_commit_whose_sync_failed_is_of_unknown_outcome_and_there_after_a_death() {
        let scene = SCENES.iter().find(|scene| scene.name == "admit").expect("is there");
        let ground = Ground::prepare("fault", &Progress::Quiet).expect("a folder");
        let shim = vfs::register().expect("registers");
        let measured = measure(&ground, scene).expect("measures").expect("works undisturbed");
        drop(shim);
        // The last call of the verb that changes anything is the sync of its COMMIT.
        let last = measured.range(Fault::InputOutput, Then::Die);
        let hidden = last.map(|at| outcome(&format!("admit.eio.once.die.{at}"))).filter(|outcome| {
            assert_eq!(outcome.broken, None);
            // What fails once the commit is through is not the answer's affair.
            outcome.fate == Fate::After && outcome.error.is_some()
        });
        let errors: Vec<_> = hidden.map(|outcome| outcome.error).collect();
        assert_eq!(errors, [Some("outcome_unknown: io".to_owned())]);
    }

    #[test]
    fn a_point_is_found_by_its_name() {
        for text in ["initialise.eio.once.close.1", "checkpoint.short_write_full.from_then_on.die.20"] {
            assert_eq!(text.parse::<Point>().map(|point| point.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "admit", "admit.eio.once.close", "admit.eio.once.close.x", "admit.eio.once.close.1.2"] {
            assert!(text.parse::<Point>().is_err(), "{text}");
        }
    }
}
