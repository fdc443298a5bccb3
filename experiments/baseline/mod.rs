//! The frozen files (`results.json`, `experiments/sweeps.json`, `experiments/flaws/matrix.json`) and their judge.
//!
//! Reading order: [`read`] takes the text strictly, [`write`] gives its one canonical form, [`load`] fetches it from
//! disk, [`compare`] finds the differences, [`outcome`] turns them into a verdict, [`show`] renders that, [`emit`]
//! prints it, [`splice`] and [`replace`] are the only way a baseline changes. [`tamper`] spoils it on purpose, to see it convicted.
//!
//! ```text
//! let baseline = load(path, GROUPS)?;
//! let actual = document_of(&results)?;
//! let outcome = judge(GROUPS, shown_path, Scope::Whole, &baseline, &actual, seen);
//! let code = emit(&render(&outcome, Format::Text, Style::Plain, Extent::Capped), outcome.verdict(), &mut out, &mut err);
//! if !baseline.same_values(&actual) { replace(path, write::canonical(actual.root()).as_bytes())?; }
//! ```

pub mod read;

pub mod write;

pub mod load;

pub mod compare;

pub mod outcome;

pub mod show;

pub mod emit;

pub mod splice;

pub mod replace;

pub mod tamper;

#[cfg(test)]
mod faults;

/// What a frozen file holds: its entries' top-level member, and what to call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Name of the top-level member holding the entries by name; also the short noun ("3 of 11 groups").
    pub member: &'static str,
    /// One entry in prose.
    pub one: &'static str,
    /// Several entries in prose.
    pub many: &'static str,
}

/// `results.json`.
pub const GROUPS: Subject = Subject { member: "groups", one: "scenario group", many: "scenario groups" };

/// `experiments/sweeps.json`.
pub const SWEEPS: Subject = Subject { member: "sweeps", one: "sweep", many: "sweeps" };

/// `experiments/flaws/matrix.json`.
pub const FLAWS: Subject = Subject { member: "flaws", one: "flaw", many: "flaws" };

/// `experiments/flaws/sql.json`.
pub const SQL_MUTANTS: Subject = Subject { member: "mutants", one: "SQL mutant", many: "SQL mutants" };
