//! Every disk that a power cut may leave, from the log of one run.
//!
//! # The disk model
//!
//! After a cut, each file holds what was synced plus, of what was not, **any** part: the file system writes back in
//! whatever order it likes.
//!
//! - An unsynced write is lost, whole, or torn at 512-byte sectors: a head of it, a tail of it, or a patchwork. Its
//!   range may read as zeros (the file grew, the data did not arrive) or as garbage (the sector was under the head
//!   when the power went). Bytes outside the range of a write never change (powersafe overwrite, which the unix VFS
//!   promises SQLite).
//! - An unsynced truncation happened or did not.
//! - A name stands for whatever it stood for at the last sync of the directory or at any time since: a file that was
//!   created may be missing although it was synced itself, a file that was deleted may come back. Each name alone.
//! - Shared memory is never synced: absent, as it was, or garbage.
//!
//! This allows more than a disk does: two writes into one sector, or two names in one directory, part freely.
//!
//! Out of contract, here as in SQLite's own assumptions: losing what was synced, bit rot, writes to the wrong place,
//! a sync that answered before it was done (that is a [wrong disk](super::wrong), and must be convicted). Not modelled:
//! a sync that *failed* and took the dirty pages with it; after one, what was unsynced stays so until the next sync.
//!
//! # From cuts to windows
//!
//! As long as nothing is synced, every further operation only adds legal disks. So all cuts between two syncs are one
//! [`Window`]: the disks legal at its last cut include those of all others. An image is legal from the first cut
//! after the last operation it shows any of, to the window's end; so what it must contain is counted at its *latest*
//! cut ([`Image::latest_cut`]), and what it may contain at its *earliest* ([`Image::earliest_cut`]).
//!
//! # What is tried
//!
//! A window whose combinations of outcomes number at most [`Rule::full_product`] is enumerated whole; of patchworks,
//! which have no end, two of each write are tried besides. Any other window is sampled, by rule and seed: subsets of
//! whole writes (all of them up to [`Rule::subsets_up_to`] operations, beyond that each prefix, suffix, single one,
//! all but one, and some at random), each single damage with all others whole and with all later ones lost, and
//! "storms" where each operation meets a random outcome. [`Counts`] says how many combinations there were and how
//! many were tried.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::log::{ByRole, Creation, DirectorySync, Entry, Files, Inode, Log, Role};
use super::recorder::beside;
use crate::dice::splitmix64;

/// Bytes that a disk writes whole or not at all.
pub const SECTOR: usize = 512;

/// How far each window is explored. Changing anything here changes the pinned counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Up to so many combinations, all of them.
    pub full_product: u128,
    /// Up to so many operations, every subset of them.
    pub subsets_up_to: usize,
    /// Beyond that: so many subsets at random.
    pub random_subsets: usize,
    /// Single damages at most; where there are more, so many drawn at random.
    pub damages: usize,
    /// States in which each operation meets a random outcome.
    pub storms: usize,
    pub seed: u64,
}

impl Default for Rule {
    fn default() -> Self {
        Rule { full_product: 1024, subsets_up_to: 10, random_subsets: 128, damages: 2048, storms: 128, seed: 73 }
    }
}

/// All windows of a log and all distinct images in them.
pub struct Enumeration {
    pub windows: Vec<Window>,
    pub images: Vec<Image>,
    pub counts: Counts,
    /// [`Counts::tried`] by the first cut that can leave what was tried.
    pub tried_from: BTreeMap<usize, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Places between entries where the power can go: one more than there are entries.
    pub cuts: u64,
    pub windows: u64,
    /// Windows where every combination of outcomes was tried (of patchworks, some); all others are sampled.
    pub exhaustive: u64,
    /// Combinations of outcomes over all windows (a patchwork not counted among the outcomes; at most 2^128 - 1).
    pub combinations: u128,
    /// Combinations tried, before images that are the same were put together.
    pub tried: u64,
    pub distinct: u64,
}

/// The cuts between two syncs.
pub struct Window {
    pub first_cut: usize,
    pub last_cut: usize,
    pub coverage: Coverage,
    /// In log order; an operation stays from window to window until its file is synced.
    operations: Vec<Operation>,
    /// What each name may stand for, the durable one first.
    names: ByRole<Vec<Candidate>>,
    bases: BTreeMap<Inode, Arc<Base>>,
    stale_shared_memory: Option<Arc<[u8]>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    Exhaustive,
    Sampled,
}

/// `window.serial`: the same under the same log and rule, so a counterexample can be replayed by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageId {
    pub window: u32,
    pub serial: u32,
}

/// One disk, as a recipe; [`Enumeration::files`] makes it.
#[derive(Debug, Clone)]
pub struct Image {
    pub id: ImageId,
    /// The first cut that can leave it: only what was called before it can be there.
    pub earliest_cut: usize,
    /// The last: all that was acknowledged before it must be there.
    pub latest_cut: usize,
    recipe: Recipe,
}

/// What lies in the folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    pub files: Files,
    pub shared_memory: Option<Vec<u8>>,
}

/// Walks the log window by window.
pub fn enumerate(log: &Log, rule: &Rule) -> Enumeration {
    let mut found = Enumeration {
        windows: Vec::new(),
        images: Vec::new(),
        counts: Counts { cuts: log.entries.len() as u64 + 1, ..Counts::default() },
        tried_from: BTreeMap::new(),
    };
    let mut by_digest = HashMap::new();
    for window in windows(log) {
        found.explore(window, rule, &mut by_digest);
    }
    found.counts.windows = found.windows.len() as u64;
    found.counts.distinct = found.images.len() as u64;
    found
}

impl Enumeration {
    pub fn find(&self, id: ImageId) -> Option<&Image> {
        self.images.iter().find(|image| image.id == id)
    }

    pub fn disk(&self, image: &Image) -> Disk {
        let window = &self.windows[image.id.window as usize];
        Disk {
            files: ByRole::from_fn(|role| {
                let inode = window.name(role, &image.recipe)?;
                Some(window.overlay(inode, &image.recipe).into_bytes())
            }),
            shared_memory: match image.recipe.shared_memory {
                SharedMemory::Absent => None,
                SharedMemory::Stale => window.stale_shared_memory.as_ref().map(|bytes| bytes.to_vec()),
                SharedMemory::Garbage => Some(garbage(SHARED_MEMORY_SEED, 32 * 1024)),
            },
        }
    }

    /// What was kept, torn or lost, a line each; what is whole because it was synced is not listed.
    #[cfg(test)]
    pub fn describe(&self, image: &Image) -> Vec<String> {
        let cuts = format!(
            "image {}: power cut between entries {} and {} of the log",
            image.id, image.earliest_cut, image.latest_cut
        );
        [cuts].into_iter().chain(self.describe_at(image, image.latest_cut)).collect()
    }

    /// How many unsynced operations before `cut` were not kept whole, and how many names not as they were. `cut`: one
    /// that can leave the image.
    pub fn dropped_at(&self, image: &Image, cut: usize) -> usize {
        let window = &self.windows[image.id.window as usize];
        let renamed = Role::ALL.into_iter().filter(|&role| {
            let newest = window.names[role].iter().rfind(|candidate| candidate.entry.is_none_or(|entry| entry < cut));
            newest.is_some_and(|newest| newest.inode != window.name(role, &image.recipe))
        });
        let outcomes = window.operations.iter().zip(&image.recipe.outcomes);
        let torn = outcomes
            .filter(|(operation, outcome)| {
                operation.entry < cut && window.shows(operation.inode, &image.recipe) && **outcome != Outcome::Whole
            })
            .count();
        renamed.count() + torn
    }

    /// As [`Enumeration::describe`], of the operations before one of the cuts that can leave the image.
    pub fn describe_at(&self, image: &Image, cut: usize) -> Vec<String> {
        let window = &self.windows[image.id.window as usize];
        let mut lines = Vec::new();
        for role in Role::ALL {
            let candidates = &window.names[role];
            if candidates.len() > 1 {
                let named = match window.name(role, &image.recipe) {
                    Some(inode) => inode.to_string(),
                    None => "nothing".to_owned(),
                };
                lines.push(format!("the name of the {role} stands for {named}"));
            }
        }
        let outcomes = window.operations.iter().zip(&image.recipe.outcomes);
        for (operation, outcome) in outcomes {
            if operation.entry < cut && window.shows(operation.inode, &image.recipe) {
                lines.push(format!("{operation}: {outcome}"));
            }
        }
        match image.recipe.shared_memory {
            SharedMemory::Absent => {}
            SharedMemory::Stale => lines.push("shared memory: as the last writer left it".into()),
            SharedMemory::Garbage => lines.push("shared memory: garbage".into()),
        }
        lines
    }

    fn explore(&mut self, mut window: Window, rule: &Rule, by_digest: &mut HashMap<u128, usize>) {
        let mut random = rule.seed ^ (self.windows.len() as u64) << 32;
        let mut serial = 0;
        let mut coverage = Coverage::Exhaustive;
        for names in window.namings() {
            let tries = Tries::new(&window, names, rule);
            self.counts.combinations = self.counts.combinations.saturating_add(tries.combinations);
            if tries.combinations > rule.full_product {
                coverage = Coverage::Sampled;
            }
            for recipe in tries.all(&mut random) {
                let digest = window.digest(&recipe);
                let (earliest_cut, latest_cut) = (window.earliest_cut(&recipe), window.last_cut);
                let id = ImageId { window: self.windows.len() as u32, serial };
                serial += 1;
                *self.tried_from.entry(earliest_cut).or_default() += 1;
                let index = *by_digest.entry(digest).or_insert_with(|| {
                    self.images.push(Image { id, earliest_cut, latest_cut, recipe });
                    self.images.len() - 1
                });
                let image = &mut self.images[index];
                image.earliest_cut = image.earliest_cut.min(earliest_cut);
                image.latest_cut = image.latest_cut.max(latest_cut);
            }
        }
        self.counts.tried += u64::from(serial);
        window.coverage = coverage;
        self.counts.exhaustive += u64::from(window.coverage == Coverage::Exhaustive);
        self.windows.push(window);
    }
}

impl Disk {
    /// Puts the files into a folder and takes all others out of it: a WAL left by another image would be read.
    /// Nothing in this process may have a file of that folder open.
    pub fn lay_out(&self, folder: &Path, database: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            fs::remove_file(entry?.path())?;
        }
        let path = folder.join(database);
        for role in Role::ALL {
            if let Some(bytes) = &self.files[role] {
                fs::write(beside(&path, role), bytes)?;
            }
        }
        if let Some(bytes) = &self.shared_memory {
            fs::write(folder.join(format!("{database}-shm")), bytes)?;
        }
        Ok(())
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.window, self.serial)
    }
}

impl FromStr for ImageId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let id = text
            .split_once('.')
            .and_then(|(window, serial)| Some(ImageId { window: window.parse().ok()?, serial: serial.parse().ok()? }));
        id.ok_or_else(|| format!("{text:?} is no image: write WINDOW.SERIAL, as in 12.345"))
    }
}

/// An unsynced change to one file.
#[derive(Clone)]
struct Operation {
    /// Its place in the log.
    entry: usize,
    inode: Inode,
    change: Change,
}

#[derive(Clone)]
enum Change {
    Write { offset: u64, data: Arc<[u8]> },
    Truncate { len: u64 },
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "entry {}, {} ", self.entry, self.inode)?;
        match &self.change {
            Change::Write { offset, data } => write!(out, "write {offset}+{}", data.len()),
            Change::Truncate { len } => write!(out, "truncate to {len}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Lost,
    Whole,
    /// Its first sectors only.
    Head {
        sectors: u16,
    },
    /// Its first sectors, and the file as long as if all had come: zeros.
    HeadThenZeros {
        sectors: u16,
    },
    /// All but its first sectors.
    Tail {
        without: u16,
    },
    Zeros,
    Garbage,
    /// Each sector old, new, zeros or garbage.
    Patchwork {
        seed: u32,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Lost => write!(out, "lost"),
            Outcome::Whole => write!(out, "kept"),
            Outcome::Head { sectors } => write!(out, "torn, first {sectors} sectors kept"),
            Outcome::HeadThenZeros { sectors } => {
                write!(out, "torn, first {sectors} sectors kept, then zeros")
            }
            Outcome::Tail { without } => write!(out, "torn, first {without} sectors lost"),
            Outcome::Zeros => write!(out, "zeros in its place"),
            Outcome::Garbage => write!(out, "garbage in its place"),
            Outcome::Patchwork { seed } => write!(out, "torn, each sector by seed {seed}"),
        }
    }
}

/// What a name may stand for, and the entry that made it so (`None`: durable before the window).
#[derive(Clone, Copy)]
struct Candidate {
    entry: Option<usize>,
    inode: Option<Inode>,
}

#[derive(Debug, Clone)]
struct Recipe {
    /// Index into the window's candidates.
    names: ByRole<u16>,
    outcomes: Box<[Outcome]>,
    shared_memory: SharedMemory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SharedMemory {
    Absent,
    Stale,
    Garbage,
}

/// What is tried of the sector subsets that have no name.
const PATCHWORKS: [Outcome; 2] = [Outcome::Patchwork { seed: 1 }, Outcome::Patchwork { seed: 2 }];

/// What becomes of the operations after a damaged one.
const LATER: [Outcome; 2] = [Outcome::Whole, Outcome::Lost];

const SHARED_MEMORY_SEED: u64 = u64::MAX;

fn windows(log: &Log) -> Vec<Window> {
    let mut bases = BTreeMap::new();
    let mut names = ByRole::from_fn(|role| {
        let inode = Inode { role, birth: 0 };
        let bytes = log.initial[role].as_ref();
        bases.insert(inode, Arc::new(Base::new(role, bytes.cloned().unwrap_or_default())));
        vec![Candidate { entry: None, inode: bytes.map(|_| inode) }]
    });
    let mut operations: Vec<Operation> = Vec::new();
    let mut stale_shared_memory = None;
    let mut windows = Vec::new();
    let mut first_cut = 0;
    let window = |first_cut,
                  last_cut,
                  operations: &Vec<Operation>,
                  names: &ByRole<Vec<Candidate>>,
                  bases: &BTreeMap<Inode, Arc<Base>>,
                  stale_shared_memory: &Option<Arc<[u8]>>| Window {
        first_cut,
        last_cut,
        coverage: Coverage::Exhaustive,
        operations: operations.clone(),
        names: names.clone(),
        bases: bases.clone(),
        stale_shared_memory: stale_shared_memory.clone(),
    };
    for (index, entry) in log.entries.iter().enumerate() {
        // The window ends with the last cut before a sync does its work.
        let directory = match entry {
            Entry::Sync { directory, .. } | Entry::Delete { directory: directory @ DirectorySync::Synced, .. } => {
                windows.push(window(first_cut, index, &operations, &names, &bases, &stale_shared_memory));
                first_cut = index + 1;
                *directory
            }
            Entry::Open { .. }
            | Entry::Write { .. }
            | Entry::Truncate { .. }
            | Entry::Delete { .. }
            | Entry::SharedMemory { .. }
            | Entry::Fault { .. }
            | Entry::Called { .. }
            | Entry::Acknowledged { .. } => DirectorySync::NotSynced,
        };
        match entry {
            Entry::Open { inode, creation: Creation::Created } => {
                bases.insert(*inode, Arc::new(Base::new(inode.role, Vec::new())));
                names[inode.role].push(Candidate { entry: Some(index), inode: Some(*inode) });
            }
            Entry::Delete { inode, .. } => names[inode.role].push(Candidate { entry: Some(index), inode: None }),
            Entry::Write { inode, offset, data } => operations.push(Operation {
                entry: index,
                inode: *inode,
                change: Change::Write { offset: *offset, data: Arc::clone(data) },
            }),
            Entry::Truncate { inode, len } => {
                operations.push(Operation { entry: index, inode: *inode, change: Change::Truncate { len: *len } })
            }
            Entry::Sync { inode, .. } => {
                let mut overlay = Overlay::new(&bases[inode]);
                for operation in operations.iter().filter(|op| op.inode == *inode) {
                    overlay.apply(&operation.change, Outcome::Whole);
                }
                let synced = overlay.into_bytes();
                operations.retain(|operation| operation.inode != *inode);
                bases.insert(*inode, Arc::new(Base::new(inode.role, synced)));
            }
            Entry::SharedMemory { bytes } => stale_shared_memory = Some(Arc::clone(bytes)),
            Entry::Open { .. } | Entry::Fault { .. } | Entry::Called { .. } | Entry::Acknowledged { .. } => {}
        }
        if directory == DirectorySync::Synced {
            for role in Role::ALL {
                let now = names[role].last().and_then(|candidate| candidate.inode);
                names[role] = vec![Candidate { entry: None, inode: now }];
            }
            // What no name can stand for any more is gone for good.
            let named = |inode: &Inode| names[inode.role][0].inode == Some(*inode);
            operations.retain(|operation| named(&operation.inode));
            bases.retain(|inode, _| named(inode));
        }
    }
    windows.push(window(first_cut, log.entries.len(), &operations, &names, &bases, &stale_shared_memory));
    windows
}

impl Window {
    /// Every choice of what the names stand for.
    fn namings(&self) -> Vec<ByRole<u16>> {
        let mut namings = vec![ByRole::default()];
        for role in Role::ALL {
            let candidates = &self.names[role];
            let distinct = (0..candidates.len()).filter(|&index| {
                let inode = candidates[index].inode;
                candidates[..index].iter().all(|other| other.inode != inode)
            });
            let distinct: Vec<_> = distinct.collect();
            namings = namings
                .into_iter()
                .flat_map(|naming: ByRole<u16>| {
                    distinct.iter().map(move |&index| {
                        let mut naming = naming.clone();
                        naming[role] = index as u16;
                        naming
                    })
                })
                .collect();
        }
        namings
    }

    fn name(&self, role: Role, recipe: &Recipe) -> Option<Inode> {
        self.names[role][usize::from(recipe.names[role])].inode
    }

    fn shows(&self, inode: Inode, recipe: &Recipe) -> bool {
        self.name(inode.role, recipe) == Some(inode)
    }

    /// Right after the last operation that the image shows anything of.
    fn earliest_cut(&self, recipe: &Recipe) -> usize {
        let operations = self.operations.iter().zip(&recipe.outcomes);
        let shown = operations
            .filter(|(operation, outcome)| **outcome != Outcome::Lost && self.shows(operation.inode, recipe))
            .map(|(operation, _)| operation.entry + 1);
        let named = Role::ALL.into_iter().filter_map(|role| {
            let candidate = self.names[role][usize::from(recipe.names[role])];
            Some(candidate.entry? + 1)
        });
        shown.chain(named).fold(self.first_cut, usize::max)
    }

    fn overlay(&self, inode: Inode, recipe: &Recipe) -> Overlay<'_> {
        let mut overlay = Overlay::new(&self.bases[&inode]);
        for (operation, outcome) in self.operations.iter().zip(&recipe.outcomes) {
            if operation.inode == inode {
                overlay.apply(&operation.change, *outcome);
            }
        }
        overlay
    }

    /// Two images with one digest are taken for the same. The digest is a sum of 128-bit hashes, one of each sector
    /// with its place; among a million images that nobody chose in order to collide, the odds are about 2^-89.
    fn digest(&self, recipe: &Recipe) -> u128 {
        let files = Role::ALL
            .into_iter()
            .map(|role| self.name(role, recipe).map_or(0, |inode| self.overlay(inode, recipe).digest()));
        let shared_memory = match (recipe.shared_memory, &self.stale_shared_memory) {
            (SharedMemory::Absent, _) | (SharedMemory::Stale, None) => 0,
            (SharedMemory::Stale, Some(bytes)) => xxh3_128_with_seed(bytes, SHARED_MEMORY_SEED),
            (SharedMemory::Garbage, _) => xxh3_128_with_seed(b"garbage", SHARED_MEMORY_SEED),
        };
        files.fold(shared_memory, u128::wrapping_add)
    }
}

/// The combinations to try in one window, under one choice of names.
struct Tries<'window> {
    window: &'window Window,
    names: ByRole<u16>,
    rule: &'window Rule,
    /// The operations that can be seen under these names, and what may become of each.
    seen: Vec<(usize, Vec<Outcome>)>,
    combinations: u128,
}

impl<'window> Tries<'window> {
    fn new(window: &'window Window, names: ByRole<u16>, rule: &'window Rule) -> Self {
        let bare = Recipe { names: names.clone(), outcomes: Box::default(), shared_memory: SharedMemory::Absent };
        let operations = window.operations.iter().enumerate();
        let seen: Vec<_> = operations
            .filter(|(_, operation)| window.shows(operation.inode, &bare))
            .map(|(index, operation)| {
                let base = &window.bases[&operation.inode];
                (index, outcomes(&operation.change, base))
            })
            .collect();
        let combinations =
            seen.iter().fold(1_u128, |product, (_, outcomes)| product.saturating_mul(outcomes.len() as u128));
        Tries { window, names, rule, seen, combinations }
    }

    fn all(&self, random: &mut u64) -> Vec<Recipe> {
        let mut recipes = Vec::new();
        if self.combinations <= self.rule.full_product {
            self.full_product(&mut recipes);
            self.patchworks(&mut recipes);
        } else {
            self.subsets(random, &mut recipes);
            self.damages(random, &mut recipes);
            self.storms(random, &mut recipes);
        }
        // Recovery must ignore shared memory whatever else there is; so it is varied on the two plainest disks only.
        for plain in [Outcome::Lost, Outcome::Whole] {
            for shared_memory in [SharedMemory::Stale, SharedMemory::Garbage] {
                if shared_memory == SharedMemory::Stale && self.window.stale_shared_memory.is_none() {
                    continue;
                }
                let mut recipe = self.recipe(|_| plain);
                recipe.shared_memory = shared_memory;
                recipes.push(recipe);
            }
        }
        recipes
    }

    fn full_product(&self, recipes: &mut Vec<Recipe>) {
        for combination in 0..self.combinations {
            let mut rest = combination;
            recipes.push(self.recipe(|position| {
                let outcomes = &self.seen[position].1;
                let outcome = outcomes[(rest % outcomes.len() as u128) as usize];
                rest /= outcomes.len() as u128;
                outcome
            }));
        }
    }

    fn subsets(&self, random: &mut u64, recipes: &mut Vec<Recipe>) {
        let n = self.seen.len();
        if n <= self.rule.subsets_up_to {
            for subset in 0..1_u64 << n {
                recipes.push(self.recipe(|position| kept_if(subset >> position & 1 == 1)));
            }
            return;
        }
        for edge in 0..=n {
            recipes.push(self.recipe(|position| kept_if(position < edge)));
            recipes.push(self.recipe(|position| kept_if(position >= edge)));
            recipes.push(self.recipe(|position| kept_if(position == edge)));
            recipes.push(self.recipe(|position| kept_if(position != edge)));
        }
        for _ in 0..self.rule.random_subsets {
            recipes.push(self.recipe(|_| kept_if(splitmix64(random) & 1 == 1)));
        }
    }

    /// Of the outcomes that are named, all; of the patchworks, two.
    fn damages(&self, random: &mut u64, recipes: &mut Vec<Recipe>) {
        let mut damages = Vec::new();
        for (position, (_, outcomes)) in self.seen.iter().enumerate() {
            let torn = outcomes.iter().filter(|outcome| !matches!(outcome, Outcome::Lost | Outcome::Whole));
            damages.extend(torn.copied().chain(PATCHWORKS).map(|outcome| (position, outcome)));
        }
        let mut damages: Vec<_> =
            damages.into_iter().flat_map(|(position, outcome)| LATER.map(|later| (position, outcome, later))).collect();
        if damages.len() > self.rule.damages {
            shuffle(&mut damages, random);
            damages.truncate(self.rule.damages);
        }
        for (position, outcome, later) in damages {
            recipes.push(self.damaged(position, outcome, later));
        }
    }

    fn patchworks(&self, recipes: &mut Vec<Recipe>) {
        for position in 0..self.seen.len() {
            for outcome in PATCHWORKS {
                recipes.extend(LATER.map(|later| self.damaged(position, outcome, later)));
            }
        }
    }

    /// One operation damaged, all before it whole.
    fn damaged(&self, damaged: usize, outcome: Outcome, later: Outcome) -> Recipe {
        self.recipe(|position| match position.cmp(&damaged) {
            Ordering::Less => Outcome::Whole,
            Ordering::Equal => outcome,
            Ordering::Greater => later,
        })
    }

    fn storms(&self, random: &mut u64, recipes: &mut Vec<Recipe>) {
        for _ in 0..self.rule.storms {
            recipes.push(self.recipe(|position| {
                let outcomes = &self.seen[position].1;
                let draw = splitmix64(random);
                match outcomes.get(draw as usize % (outcomes.len() + 1)) {
                    Some(outcome) => *outcome,
                    None => Outcome::Patchwork { seed: (draw >> 32) as u32 },
                }
            }));
        }
    }

    /// `outcome` is asked for each operation that can be seen, by its position among those.
    fn recipe(&self, mut outcome: impl FnMut(usize) -> Outcome) -> Recipe {
        let mut outcomes = vec![Outcome::Lost; self.window.operations.len()];
        for (position, (index, _)) in self.seen.iter().enumerate() {
            outcomes[*index] = outcome(position);
        }
        Recipe { names: self.names.clone(), outcomes: outcomes.into(), shared_memory: SharedMemory::Absent }
    }
}

fn kept_if(kept: bool) -> Outcome {
    if kept { Outcome::Whole } else { Outcome::Lost }
}

/// Every outcome but the patchworks, of which there are too many to name.
fn outcomes(change: &Change, base: &Base) -> Vec<Outcome> {
    let (offset, data) = match change {
        Change::Truncate { .. } => return vec![Outcome::Lost, Outcome::Whole],
        Change::Write { offset, data } => (*offset as usize, data),
    };
    let mut outcomes = vec![Outcome::Lost, Outcome::Whole, Outcome::Zeros, Outcome::Garbage];
    let grows = offset + data.len() > base.bytes.len();
    for sectors in 1..pieces(offset, data.len()).count() as u16 {
        outcomes.push(Outcome::Head { sectors });
        outcomes.push(Outcome::Tail { without: sectors });
        if grows {
            outcomes.push(Outcome::HeadThenZeros { sectors });
        }
    }
    outcomes
}

/// The parts of a write that lie in one sector each, as ranges within its data.
fn pieces(offset: usize, len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let (first, last) = (offset / SECTOR, (offset + len).div_ceil(SECTOR));
    (first..last).map(move |sector| {
        let from = (sector * SECTOR).max(offset) - offset;
        let to = ((sector + 1) * SECTOR).min(offset + len) - offset;
        from..to
    })
}

/// What of a file is durable.
struct Base {
    role: Role,
    bytes: Vec<u8>,
    /// Of each sector.
    digests: Vec<u128>,
    /// Their sum.
    digest: u128,
}

impl Base {
    fn new(role: Role, bytes: Vec<u8>) -> Self {
        let sectors = bytes.chunks(SECTOR).enumerate();
        let digests: Vec<_> = sectors.map(|(index, sector)| sector_digest(role, index, &padded(sector))).collect();
        let digest = digests.iter().copied().fold(0, u128::wrapping_add);
        Base { role, bytes, digests, digest }
    }
}

fn padded(bytes: &[u8]) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    sector[..bytes.len()].copy_from_slice(bytes);
    sector
}

fn sector_digest(role: Role, index: usize, sector: &[u8; SECTOR]) -> u128 {
    xxh3_128_with_seed(sector, (role as u64) << 56 | index as u64)
}

/// A file as its durable part with some sectors put over it: an image costs what was unsynced, not what the file holds.
struct Overlay<'base> {
    base: &'base Base,
    len: usize,
    /// From here on nothing of the base is left: it was truncated.
    base_len: usize,
    sectors: BTreeMap<usize, [u8; SECTOR]>,
}

impl<'base> Overlay<'base> {
    fn new(base: &'base Base) -> Self {
        Overlay { base, len: base.bytes.len(), base_len: base.bytes.len(), sectors: BTreeMap::new() }
    }

    fn apply(&mut self, change: &Change, outcome: Outcome) {
        let (offset, data) = match change {
            Change::Truncate { len } => {
                if outcome != Outcome::Lost {
                    self.truncate(*len as usize);
                }
                return;
            }
            Change::Write { offset, data } => (*offset as usize, data),
        };
        let cut = |sectors: u16| {
            let piece = pieces(offset, data.len()).nth(usize::from(sectors));
            piece.map_or(data.len(), |piece| piece.start)
        };
        match outcome {
            Outcome::Lost => {}
            Outcome::Whole => self.write(offset, data),
            Outcome::Head { sectors } => self.write(offset, &data[..cut(sectors)]),
            Outcome::HeadThenZeros { sectors } => {
                self.write(offset, &vec![0; data.len()]);
                self.write(offset, &data[..cut(sectors)]);
            }
            Outcome::Tail { without } => {
                let from = cut(without);
                self.write(offset + from, &data[from..]);
            }
            Outcome::Zeros => self.write(offset, &vec![0; data.len()]),
            Outcome::Garbage => self.write(offset, &garbage(offset as u64, data.len())),
            Outcome::Patchwork { seed } => {
                let mut random = u64::from(seed);
                for piece in pieces(offset, data.len()) {
                    let at = offset + piece.start;
                    match splitmix64(&mut random) % 4 {
                        0 => {}
                        1 => self.write(at, &data[piece]),
                        2 => self.write(at, &vec![0; piece.len()]),
                        _ => self.write(at, &garbage(at as u64, piece.len())),
                    }
                }
            }
        }
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        for piece in pieces(offset, data.len()) {
            let at = offset + piece.start;
            let within = at % SECTOR;
            let sector = self.sector(at / SECTOR);
            sector[within..within + piece.len()].copy_from_slice(&data[piece]);
        }
        self.len = self.len.max(offset + data.len());
    }

    fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.base_len = self.base_len.min(len);
            self.sectors.split_off(&len.div_ceil(SECTOR));
            if !len.is_multiple_of(SECTOR) {
                self.sector(len / SECTOR)[len % SECTOR..].fill(0);
            }
        }
        self.len = len;
    }

    fn sector(&mut self, index: usize) -> &mut [u8; SECTOR] {
        let left = &self.base.bytes[..self.base_len];
        self.sectors.entry(index).or_insert_with(|| {
            let from = (index * SECTOR).min(left.len());
            let to = ((index + 1) * SECTOR).min(left.len());
            padded(&left[from..to])
        })
    }

    fn digest(&self) -> u128 {
        let role = self.base.role;
        let length = xxh3_128_with_seed(&self.len.to_le_bytes(), (role as u64) << 56 | 0xff << 48);
        let mut sum = self.base.digest.wrapping_add(length);
        let base_sectors = self.base.digests.len();
        let left = self.base_len.div_ceil(SECTOR);
        for digest in &self.base.digests[left..] {
            sum = sum.wrapping_sub(*digest);
        }
        for (&index, sector) in &self.sectors {
            if index < left {
                sum = sum.wrapping_sub(self.base.digests[index]);
            }
            sum = sum.wrapping_add(sector_digest(role, index, sector));
        }
        debug_assert!(left <= base_sectors);
        // Holes: neither base nor written.
        for index in left..self.len.div_ceil(SECTOR) {
            if !self.sectors.contains_key(&index) {
                sum = sum.wrapping_add(sector_digest(role, index, &[0; SECTOR]));
            }
        }
        sum
    }

    fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.base.bytes[..self.base_len].to_vec();
        bytes.resize(self.len, 0);
        for (index, sector) in self.sectors {
            let from = index * SECTOR;
            let to = (from + SECTOR).min(self.len);
            bytes[from..to].copy_from_slice(&sector[..to - from]);
        }
        bytes
    }
}

fn garbage(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed ^ 0x6a72_6261_6765_0000;
    let words = len.div_ceil(8);
    let mut bytes: Vec<_> = (0..words).flat_map(|_| splitmix64(&mut state).to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Fisher and Yates.
fn shuffle<T>(items: &mut [T], random: &mut u64) {
    for last in (1..items.len()).rev() {
        items.swap(last, splitmix64(random) as usize % (last + 1));
    }
}
