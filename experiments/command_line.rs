//! The command line.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::baseline::show::Format;
use crate::child;
use crate::flaws::FLAWS;
use crate::groups::GROUPS;
use crate::sweeps::SWEEPS;

/// Plays the scenario groups for real and compares what it sees, field by field, with the frozen results.json.
///
/// Exit codes: 0 agrees, 1 differs, 2 usage or baseline unreadable or not writable, 3 could not measure.
#[derive(Parser)]
#[command(name = "durable-admission", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct CommandLine {
    #[command(subcommand)]
    pub job: Option<Job>,

    /// Only these scenario groups (see --list); the others are neither run nor changed
    #[arg(value_name = "GROUP", value_parser = PossibleValuesParser::new(GROUPS.map(|group| group.name)), hide_possible_values = true)]
    pub groups: Vec<String>,

    /// Print the scenario groups, each with what it shows, and run nothing
    #[arg(long, conflicts_with_all = ["check", "groups"])]
    pub list: bool,

    /// Leave the databases behind and say where
    #[arg(long)]
    pub keep: bool,

    #[command(flatten)]
    pub judging: Judging,
}

/// How what was seen is judged, shown and kept.
#[derive(Args)]
pub struct Judging {
    /// Compare only; without it, the frozen file is rewritten where a value changed
    #[arg(long)]
    pub check: bool,

    /// The frozen file [default: that of this checkout]
    #[arg(long, value_name = "PATH")]
    pub results: Option<PathBuf>,

    /// Show what regenerating would change, and write nothing
    #[arg(long, conflicts_with = "check")]
    pub dry_run: bool,

    /// Write what was seen to this file, and leave the frozen file as it is
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub out: Option<PathBuf>,

    /// Let a run regenerate the frozen file though the environment variable CI is set
    #[arg(long, conflicts_with = "check")]
    pub regenerate_in_ci: bool,

    /// Check so many times, and report any run that differed
    #[arg(long, value_name = "N", default_value_t = 1, requires = "check", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,

    /// How the result is printed on standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub format: FormatName,

    /// Print every difference in full
    #[arg(long)]
    pub full: bool,

    /// When to use colors; `auto` asks the terminal and NO_COLOR
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: When,

    /// No progress, and of a text result only the verdict
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    Text,
    Json,
    Junit,
    Github,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Text => Format::Text,
            FormatName::Json => Format::Json,
            FormatName::Junit => Format::Junit,
            FormatName::Github => Format::Github,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}

#[derive(Subcommand)]
pub enum Job {
    /// Tamper with every field of the frozen results, one at a time, and demand that the judge names each
    SelfTest {
        /// The frozen file [default: results.json of this checkout]
        #[arg(long, value_name = "PATH")]
        results: Option<PathBuf>,
    },
    /// Walk over all that could happen, and compare the counts with the frozen experiments/sweeps.json
    Sweep {
        /// Only these sweeps (see --list); the others are neither run nor changed
        #[arg(value_name = "SWEEP", value_parser = PossibleValuesParser::new(SWEEPS.iter().map(|sweep| sweep.name)), hide_possible_values = true)]
        names: Vec<String>,

        /// Print the sweeps, each with what it shows, and run nothing
        #[arg(long, conflicts_with_all = ["check", "names"])]
        list: bool,

        /// Play one point of one sweep again, by the id that its counterexample gave, and compare with no file
        #[arg(long, value_name = "ID", requires = "names", conflicts_with_all = ["list", "Judging"])]
        point: Option<String>,

        #[command(flatten)]
        judging: Judging,
    },
    /// Build each flaw of the gallery, try it, and compare what convicted it with the frozen experiments/flaws/matrix.json
    ///
    /// With --check, of the sweeps only those are played that convicted the flaw before.
    Flaws {
        /// Only these flaws (see --list); the others are neither built nor changed
        #[arg(value_name = "FLAW", value_parser = PossibleValuesParser::new(FLAWS.iter().map(|flaw| flaw.name)), hide_possible_values = true)]
        names: Vec<String>,

        /// Print the flaws, each with what is wrong, and build nothing
        #[arg(long, conflicts_with_all = ["check", "names"])]
        list: bool,

        /// Of the sweeps that convicted a flaw, play only the quickest, and take the others at their word
        #[arg(long, requires = "check")]
        quick: bool,

        #[command(flatten)]
        judging: Judging,
    },
    /// Play the groups, and write what was seen as report.html, report.md and evidence.intoto.json
    ///
    /// Exit codes: those of the verdict; 2 also where the files can't be written.
    Report {
        /// The folder for the three files, made where it is missing [default: target/report of this checkout]
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,

        /// Run the sweeps, too; without it, what is frozen of them is shown
        #[arg(long)]
        sweeps: bool,
    },
    /// Drop each constraint, conjunct and order of the SQL in src/, try it, and compare what convicted each mutant with the frozen experiments/flaws/sql.json
    ///
    /// With --check, only that is played which convicted the mutant before.
    SqlMutants {
        /// Only these mutants (see --list); the others are neither made nor changed
        #[arg(value_name = "MUTANT")]
        names: Vec<String>,

        /// Print the mutants, each as it is played, and build nothing
        #[arg(long, conflicts_with_all = ["check", "names"])]
        list: bool,

        #[command(flatten)]
        judging: Judging,
    },
    /// Audit a store, also one in use: every invariant, and the usage ledger against what its tasks sum up to
    ///
    /// Reads only. Exit codes: 0 all holds, 1 something is broken, 2 no store that can be read.
    Audit {
        #[arg(value_name = "DB")]
        database: PathBuf,
    },
    /// Print a shell's completions
    Completions { shell: Shell },
    /// Print the manual page
    Man,
    /// What a child process of a run does
    #[command(subcommand, hide = true)]
    Child(child::Role),
}
