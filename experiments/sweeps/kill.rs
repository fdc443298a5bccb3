//! Real children that die at every write, truncate, sync and delete of every verb, before the call and after it.
//!
//! A first child counts the calls. Each further one has to reach its point, to name it, and to die there with exit code
//! 73; the last is to die at a point that is not there, and has to come to its ordinary end instead.

use std::fmt;
use std::mem;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use durable_admission::{OpenOptions, Store};
use serde::{Serialize, Serializer};

use super::aftermath::{ask_again, look_and_audit, remove_folder_of};
use super::ground::Ground;
use super::perform::{Said, library_limits};
use super::stage::{Asked, GROUPS, Left, Prepared, Reply, STAGES, Stage, lay_out, told};
use super::together::{Heard, Together};
use super::{Found, Replay};
use crate::child::{self, deadline};
use crate::disk::log::{Entry, Log};
use crate::disk::plan::{Call, Plan, Side};
use crate::disk::recorder::Recorder;
use crate::disk::vfs;
use crate::model::FIXTURE;
use crate::process::{Child, NotMeasured, PLANNED_EXIT_CODE, PlannedDeath, die_at, tell_parent};

/// How the store is found, and how the child that asked its verb ends if nothing kills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Found at rest; closed, which checkpoints.
    Closing,
    /// Found with the log of a process that died, to be recovered first; never closed.
    Kept,
    /// As `Kept`, with a log so long that the verb's COMMIT checkpoints.
    Checkpointing,
    /// As `Kept`, asked by two callers in one commit.
    Group,
}

impl Form {
    const ALL: [Form; 4] = [Form::Closing, Form::Kept, Form::Checkpointing, Form::Group];

    fn name(self) -> &'static str {
        match self {
            Form::Closing => "closing",
            Form::Kept => "kept",
            Form::Checkpointing => "checkpointing",
            Form::Group => "group",
        }
    }

    fn left(self) -> Left {
        match self {
            Form::Closing => Left::AtRest,
            Form::Kept | Form::Group => Left::ByDeath,
            Form::Checkpointing => Left::WithLongWal,
        }
    }

    /// What the verb of this name is played on, if it is played in this form. Where there is no store yet, nobody has left one.
    fn stage(self, name: &str) -> Option<&'static Stage> {
        match self {
            Form::Closing => Stage::named(name),
            Form::Kept | Form::Checkpointing => Stage::named(name).filter(|stage| stage.asked() != Asked::Open),
            Form::Group => GROUPS.iter().find(|stage| stage.name == name),
        }
    }
}

/// One verb in one form: what one child plays. As text `admit.closing`.
#[derive(Clone, Copy)]
pub struct Scene {
    stage: &'static Stage,
    form: Form,
}

impl Scene {
    fn all() -> Vec<Scene> {
        let forms_of = |stage: &Stage| {
            let name = stage.name;
            Form::ALL.into_iter().filter_map(move |form| Some(Scene { stage: form.stage(name)?, form }))
        };
        STAGES.iter().flat_map(forms_of).collect()
    }
}

/// Where to die. As text `7.before`; the first call is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    at: u64,
    side: Side,
}

/// As text `admit.closing.7.before`.
#[derive(Clone, Copy)]
struct Point {
    scene: Scene,
    place: Place,
}

/// What a scene's first child counted.
struct Measured {
    scene: Scene,
    prepared: Prepared,
    /// In order, such as `sync of wal`.
    calls: Vec<String>,
    /// So many of them come before the answer.
    before_answer: u64,
}

/// What one death, or the ordinary end, came to.
struct Outcome {
    fate: Fate,
    /// The sentence where it is a fault.
    broken: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Before,
    After,
    /// Acknowledged, and not there.
    Lost,
    Broken,
}

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let _shim = vfs::register().map_err(|what| NotMeasured { what })?;
    let scenes = Scene::all();
    let mut figures = Figures::default();
    let mut broken = Vec::new();
    let mut points = Vec::new();
    let measured = ground.for_each(&scenes, |scene| measure(ground, *scene))?;
    let mut kept = Vec::new();
    for measured in measured {
        match measured {
            Ok(measured) => kept.push(measured),
            Err(sentence) => broken.push((0, sentence)),
        }
    }
    for (index, measured) in kept.iter().enumerate() {
        points.extend(measured.points().map(|point| (index, Some(point))));
        points.push((index, None));
    }
    let outcomes = ground.for_each(&points, |(index, point)| kept[*index].play(ground, *point))?;
    for (index, measured) in kept.iter().enumerate() {
        let mut row = Row { calls: Calls::of(&measured.calls), ..Row::default() };
        row.before_answer = measured.before_answer;
        for ((_, point), outcome) in points.iter().zip(&outcomes).filter(|((of, _), _)| *of == index) {
            if point.is_some() {
                row.count(outcome.fate);
                figures.children += 1;
            }
            broken.extend(
                outcome.broken.clone().map(|sentence| (point.map_or(u64::MAX, |point| point.place.at), sentence)),
            );
        }
        figures.enter(measured.scene, row);
    }
    if broken.is_empty() {
        kept.iter().try_for_each(Measured::is_what_it_is_called)?;
    }
    // The fewer calls a death needs the smaller a counterexample it is.
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
    if point.place.at > measured.calls.len() as u64 {
        return Ok(Replay::Unknown(format!("{} has {} calls; give one of these", point.scene, measured.calls.len())));
    }
    let outcome = measured.play(ground, Some(point))?;
    let legal = format!("before: {}\nafter:  {}\n", told(&measured.prepared.before), told(&measured.prepared.after));
    Ok(match outcome.broken {
        Some(sentence) => Replay::Convicted(format!("{sentence}\n{legal}")),
        None => Replay::Legal(format!(
            "{}: {} {}; found {}\n{legal}",
            point,
            side_name(point.place.side),
            measured.described(point.place.at),
            match outcome.fate {
                Fate::Before => "the state before",
                Fate::After => "the state after",
                Fate::Lost | Fate::Broken => "neither",
            }
        )),
    })
}

/// The inner error is a sentence: even undisturbed, the verb does not do what the model says.
fn measure(ground: &Ground<'_>, scene: Scene) -> Result<Result<Measured, String>, NotMeasured> {
    let path = ground.folder.database(&format!("{scene}.prepared"))?;
    let prepared = scene.stage.prepare(scene.form.left(), &path)?;
    remove_folder_of(&path);
    let path = ground.folder.database(&format!("{scene}.counted"))?;
    lay_out(&prepared.files, &path)?;
    let mut child = Child::spawn(&child::victim(&path, &scene.to_string(), None)?)?;
    let answer = child.expect_line(deadline())?;
    let expected = prepared.reply.name();
    if child::answer_in(&answer) != Some(&expected) {
        return Ok(Err(format!("{scene}: undisturbed the child said {answer:?}, not the answer {expected:?}")));
    }
    let calls = child.expect_line(deadline())?;
    child.finish_well(deadline())?;
    remove_folder_of(&path);
    let mut calls: Vec<String> = calls.split(", ").map(str::to_owned).collect();
    let Some(answered) = calls.iter().position(|call| call == ANSWERED) else {
        return Err(NotMeasured { what: format!("{scene}: the child counted its calls without the answer's place") });
    };
    calls.remove(answered);
    Ok(Ok(Measured { scene, prepared, before_answer: answered as u64, calls }))
}

impl Measured {
    fn points(&self) -> impl Iterator<Item = Point> {
        let scene = self.scene;
        let places =
            (1..=self.calls.len() as u64).flat_map(|at| [Side::Before, Side::After].map(|side| Place { at, side }));
        places.map(move |place| Point { scene, place })
    }

    /// Without a checkpoint before the answer its form would show nothing of its own.
    fn is_what_it_is_called(&self) -> Result<(), NotMeasured> {
        let mut before_answer = self.calls.iter().take(self.before_answer as usize);
        if self.scene.form != Form::Checkpointing || before_answer.any(|call| call == "write of database") {
            return Ok(());
        }
        let what = format!("{}: COMMIT checkpoints nothing of the long WAL; make it longer in stage.rs", self.scene);
        Err(NotMeasured { what })
    }

    fn described(&self, at: u64) -> String {
        let call = self.calls.get(at as usize - 1).map_or("unknown", String::as_str);
        format!("call {at} of {}, {call}", self.calls.len())
    }

    /// One child that dies at `point`, or is to die beyond the last call and so comes to its end.
    fn play(&self, ground: &Ground<'_>, point: Option<Point>) -> Result<Outcome, NotMeasured> {
        let beyond = Place { at: self.calls.len() as u64 + 1, side: Side::Before };
        let place = point.map_or(beyond, |point| point.place);
        let name = Point { scene: self.scene, place }.to_string();
        let path = ground.folder.database(&name)?;
        lay_out(&self.prepared.files, &path)?;
        let mut child = Child::spawn(&child::victim(&path, &self.scene.to_string(), Some(&place.to_string()))?)?;
        let mut answered = place.at > self.before_answer;
        if answered {
            child.expect(&child::answer_line(&self.prepared.reply.name()), deadline())?;
        } else if self.scene.form == Form::Group {
            // An answer that came before the COMMIT is as good as any.
            answered = child.expect_line(deadline())? == EARLY;
        }
        match point {
            Some(_) => {
                let call = &self.calls[place.at as usize - 1];
                drop(PlannedDeath::witness(child, &format!("{name} {call}"), deadline())?);
            }
            None => {
                child.expect(&in_order(&self.calls, self.before_answer as usize), deadline())?;
                child.finish_well(deadline())?;
            }
        }
        let outcome = self.judge(&path, place, answered)?;
        remove_folder_of(&path);
        Ok(outcome)
    }

    fn judge(&self, path: &Path, place: Place, answered: bool) -> Result<Outcome, NotMeasured> {
        let Prepared { asked, before, after, reply, .. } = &self.prepared;
        let convicted = |fate, what: String| {
            let died = match place.at > self.calls.len() as u64 {
                true => "after its ordinary end".to_owned(),
                false => format!("dead {} {}", side_name(place.side), self.described(place.at)),
            };
            let point = Point { scene: self.scene, place };
            let sentence = format!("{point}: {died}: {what}; again with: durable-admission sweep kill --point {point}");
            Outcome { fate, broken: Some(sentence) }
        };
        let found = match look_and_audit(path)? {
            Ok(found) => found,
            Err(what) => {
                return Ok(convicted(Fate::Broken, format!("{what}; legal is {} or {}", told(before), told(after))));
            }
        };
        let fate = match (&found == before, &found == after) {
            (_, true) => Fate::After,
            (true, false) if answered => {
                let what = format!(
                    "{} was acknowledged and is lost: found {}, not {}",
                    reply.name(),
                    told(before),
                    told(after)
                );
                return Ok(convicted(Fate::Lost, what));
            }
            (true, false) => Fate::Before,
            (false, false) => {
                let what = format!("found {}; legal is {} or {}", told(&found), told(before), told(after));
                return Ok(convicted(Fate::Broken, what));
            }
        };
        Ok(match ask_again(path, asked, &found)? {
            Ok(held) if held == *after => Outcome { fate, broken: None },
            Ok(held) => {
                let what = format!("asked again it came to {}, not to {}", told(&held), told(after));
                convicted(Fate::Broken, what)
            }
            Err(what) => convicted(Fate::Broken, what),
        })
    }
}

/// In the child: asks the verb on the recording disk, and dies where it is told to.
///
/// # Errors
/// A sentence; undisturbed, no verb of a scene errs.
pub fn be_killed(store: &Path, scene: Scene, place: Option<Place>) -> Result<(), String> {
    let _shim = vfs::register()?;
    let plan = place.map_or(Plan::NOTHING, |place| Plan::die(place.side, place.at));
    let recorder = Recorder::new(store, plan).map_err(|error| error.to_string())?;
    let heard = Arc::<Heard>::default();
    if let Some(Place { side, .. }) = place {
        // What is announced is where the disk says it is, not where it was told to be.
        let heard = Arc::clone(&heard);
        recorder.announce_death(Box::new(move |reached| {
            if scene.form == Form::Group {
                tell_parent(if heard.listen() { EARLY } else { NOBODY_HEARD });
            }
            let point = Point { scene, place: Place { at: reached.n, side } };
            die_at(&format!("{point} {} of {}", reached.call, reached.role))
        }));
    }
    let _recording = vfs::record(&recorder);
    let mut open = None;
    let asked = scene.stage.asked();
    let reply = match &asked {
        Asked::Together(verbs) => {
            let store = Store::open(store, &library_limits(&FIXTURE)).map_err(|error| error.to_string())?;
            let together = Together::of(store, heard, None).map_err(|error| error.to_string())?;
            let each = together.ask(verbs)?.into_iter().map(Said::heard).collect::<Result<_, _>>();
            mem::forget(together);
            each.map(Reply::Each)
        }
        Asked::Open | Asked::Verb(_) => asked.put(store, OpenOptions::default(), &mut open),
    };
    let reply = reply.map_err(|error| error.to_string())?.name();
    tell_parent(&child::answer_line(&reply));
    recorder.acknowledged(0, &reply);
    match (scene.form, open) {
        (Form::Closing, Some(open)) => open.close().map_err(|error| error.to_string())?,
        (Form::Kept | Form::Checkpointing | Form::Group, open) => mem::forget(open),
        (Form::Closing, None) => {}
    }
    let (calls, before_answer) = calls_of(&recorder.log());
    if calls.len() as u64 != recorder.total(Call::CHANGING) {
        return Err("a call failed, and nobody made it fail".to_owned());
    }
    tell_parent(&in_order(&calls, before_answer));
    Ok(())
}

/// Said of a group before a planned death: whether one of its callers had its answer already.
const EARLY: &str = "heard before the COMMIT";
const NOBODY_HEARD: &str = "nobody has heard";

/// Stands for the answer in the list of calls.
const ANSWERED: &str = "the answer";

fn in_order(calls: &[String], before_answer: usize) -> String {
    let (before, after) = calls.split_at(before_answer.min(calls.len()));
    [before, &[ANSWERED.to_owned()], after].concat().join(", ")
}

/// What changed the disk, and how much of it came before the answer.
fn calls_of(log: &Log) -> (Vec<String>, usize) {
    let mut calls = Vec::new();
    let mut before_answer = 0;
    for entry in &log.entries {
        let (call, inode) = match entry {
            Entry::Write { inode, .. } => (Call::Write, inode),
            Entry::Truncate { inode, .. } => (Call::Truncate, inode),
            Entry::Sync { inode, .. } => (Call::Sync, inode),
            Entry::Delete { inode, .. } => (Call::Delete, inode),
            Entry::Acknowledged { .. } => {
                before_answer = calls.len();
                continue;
            }
            Entry::Open { .. } | Entry::SharedMemory { .. } | Entry::Fault { .. } | Entry::Called { .. } => continue,
        };
        calls.push(format!("{call} of {}", inode.role));
    }
    (calls, before_answer)
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Before => "before",
        Side::After => "after",
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.stage.name, self.form.name())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.at, side_name(self.side))
    }
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.scene, self.place)
    }
}

impl FromStr for Scene {
    type Err = String;

    fn from_str(text: &str) -> Result<Scene, String> {
        let found = text.split_once('.').and_then(|(stage, form)| {
            let form = Form::ALL.into_iter().find(|known| known.name() == form)?;
            Some(Scene { stage: form.stage(stage)?, form })
        });
        found.ok_or_else(|| {
            let stages = STAGES.iter().map(|stage| stage.name).collect::<Vec<_>>().join(", ");
            let forms = Form::ALL.map(Form::name).join(", ");
            let groups = GROUPS.map(|stage| stage.name).join(", ");
            format!(
                "{text:?} is no verb and form; give one of {stages}, a dot and one of {forms} (initialise: closing; group: {groups})"
            )
        })
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let found = text.split_once('.').and_then(|(at, side)| {
            let at = at.parse().ok().filter(|at| *at > 0)?;
            let side = [Side::Before, Side::After].into_iter().find(|known| side_name(*known) == side)?;
            Some(Place { at, side })
        });
        found.ok_or_else(|| {
            format!("{text:?} is no place to die; give the call's number and `before` or `after`: 7.before")
        })
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Point, String> {
        let found = text.match_indices('.').nth(1).map(|(dot, _)| (&text[..dot], &text[dot + 1..]));
        let Some((scene, place)) = found else {
            return Err(format!("{text:?} is no point; give one such as admit.closing.7.before"));
        };
        Ok(Point { scene: scene.parse()?, place: place.parse()? })
    }
}

#[derive(Default, Serialize)]
struct Figures {
    /// Each died with this code, and by its own word at its point.
    exit_code: ExitCode,
    children: u64,
    #[serde(serialize_with = "in_order_of_rows")]
    verbs: Vec<(&'static str, Forms)>,
}

struct ExitCode(i32);

impl Default for ExitCode {
    fn default() -> Self {
        ExitCode(PLANNED_EXIT_CODE)
    }
}

impl Serialize for ExitCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i32(self.0)
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct Forms(#[serde(serialize_with = "in_order_of_rows")] Vec<(&'static str, Row)>);

#[derive(Default, Serialize)]
struct Row {
    calls: Calls,
    before_answer: u64,
    points: u64,
    recovered_to_before: u64,
    recovered_to_after: u64,
    lost: u64,
    broken: u64,
}

#[derive(Default, Serialize)]
struct Calls {
    write: usize,
    truncate: usize,
    sync: usize,
    delete: usize,
}

impl Calls {
    fn of(calls: &[String]) -> Calls {
        let count = |kind: Call| calls.iter().filter(|call| call.starts_with(&format!("{kind} "))).count();
        Calls {
            write: count(Call::Write),
            truncate: count(Call::Truncate),
            sync: count(Call::Sync),
            delete: count(Call::Delete),
        }
    }
}

impl Row {
    fn count(&mut self, fate: Fate) {
        self.points += 1;
        *match fate {
            Fate::Before => &mut self.recovered_to_before,
            Fate::After => &mut self.recovered_to_after,
            Fate::Lost => &mut self.lost,
            Fate::Broken => &mut self.broken,
        } += 1;
    }
}

impl Figures {
    fn enter(&mut self, scene: Scene, row: Row) {
        let row = (scene.form.name(), row);
        match self.verbs.last_mut() {
            Some((stage, forms)) if *stage == scene.stage.name => forms.0.push(row),
            Some(_) | None => self.verbs.push((scene.stage.name, Forms(vec![row]))),
        }
    }
}

fn in_order_of_rows<T: Serialize, S: Serializer>(rows: &[(&'static str, T)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(rows.iter().map(|(name, row)| (name, row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_found_by_its_name() {
        for text in ["initialise.closing.1.before", "cancel.checkpointing.20.after", "claim.group.3.after"] {
            assert_eq!(text.parse::<Point>().map(|point| point.to_string()), Ok(text.to_owned()));
        }
        for text in
            ["", "admit", "admit.closing", "admit.closing.0.after", "initialise.kept.1.before", "cancel.group.1.before"]
        {
            assert!(text.parse::<Point>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_answer_keeps_its_place_in_the_list_of_calls() {
        let calls = ["write of wal", "sync of wal", "delete of wal"].map(str::to_owned);
        assert_eq!(in_order(&calls, 2), "write of wal, sync of wal, the answer, delete of wal");
    }
}
