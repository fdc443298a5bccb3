//! SQL mutants: what a mutator of the source can't reach. Each constraint of the schema, each conjunct of a WHERE or an ON, each
//! ORDER BY and LIMIT of a statement is dropped in turn, and something has to notice.
//!
//! The mutants are generated from the schema and the statements that stand in `src/`. None of them is compiled: the built
//! program holds each statement as it was written, and a mutant is a copy of it in which that text is overwritten in place.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{BUILD, Extent, FORMAT, PLAY, Stop, Workshop, run};
use crate::baseline::load::load;
use crate::baseline::outcome::{Run, Seen};
use crate::baseline::read::Document;
use crate::baseline::write::{canonical, document_of};
use crate::baseline::{self, Subject};
use crate::groups::GROUPS;
use crate::job::{Job, Played};
use crate::process::{Exit, NotMeasured};
use crate::progress::Progress;

/// Mutants that nothing can convict, each with why. One that is neither convicted nor in here is a hole in the harness.
const EQUIVALENT: &[(&str, &str)] = &[
    ("check_limits SELECT: without id = 1", "the table has one row, whose id a CHECK says is 1"),
    (
        "claim SELECT: without ORDER BY task.sequence",
        "the index that finds what is due gives it in that order; any other order is convicted",
    ),
    ("claim SELECT: without LIMIT 1", "only the first row is asked for; the limit spares SQLite the rest"),
    (
        "held_by SELECT: without state = 'inflight'",
        "only what is inflight has a lease, as a CHECK says, and a lease is asked for",
    ),
    (
        "snapshot ORDER: without ORDER BY task.sequence",
        "both tables are walked by their key, which is the sequence; any other order is convicted",
    ),
];

/// The tests that break every constraint on purpose; the verbs never run into one.
const TRIPWIRES: &str = "tripwires";

/// The library's own tests, which look at the statements' plans. Asked last.
const UNIT_TESTS: &str = "unit tests";

/// What takes long and finds what the groups don't.
const SWEEP: &str = "exhaustive";

/// Groups in which processes race: what they find may hang on who wins.
const RACES: [&str; 2] = ["race-of-twelve-tenants", "race-of-one-tenant"];

/// One statement with one piece of it overwritten.
pub struct Mutant {
    /// Where it stands, and what is missing.
    pub name: &'static str,
    /// What it is missing from.
    pub sentence: String,
    /// Of the schema, not of a verb.
    is_constraint: bool,
    statement: String,
    mutated: String,
}

/// The job behind `experiments/flaws/sql.json`.
pub struct SqlMutants {
    pub checkout: PathBuf,
    pub extent: Extent,
    mutants: Vec<Mutant>,
    /// Statements in which another one may stand.
    statements: Vec<String>,
}

/// Who convicted a mutant, by name. The first kind that does is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Convicted {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    groups: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    sweeps: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    tests: BTreeSet<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Row {
    Convicted { convicted_by: Convicted },
    Equivalent { equivalent: &'static str },
}

#[derive(Serialize)]
struct File {
    format: u32,
    #[serde(serialize_with = "crate::record::in_order")]
    mutants: Vec<(&'static str, Row)>,
}

impl SqlMutants {
    /// # Errors
    /// A sentence: the sources can't be read, or hold SQL that the generator does not understand.
    pub fn of(checkout: PathBuf, extent: Extent) -> Result<SqlMutants, String> {
        let statements = statements_of(&checkout.join("src"))?;
        let mutants = mutants_of(&statements)?;
        let statements = statements.into_iter().map(|statement| statement.text).collect();
        Ok(SqlMutants { checkout, extent, mutants, statements })
    }

    pub fn mutants(&self) -> &[Mutant] {
        &self.mutants
    }
}

impl Job for SqlMutants {
    fn subject(&self) -> Subject {
        baseline::SQL_MUTANTS
    }

    fn names(&self) -> Vec<&'static str> {
        self.mutants.iter().map(|mutant| mutant.name).collect()
    }

    fn steady_runs(&self) -> usize {
        1
    }

    fn play(&self, selected: &[&'static str], progress: &Progress) -> Result<Played, NotMeasured> {
        let bench = Bench::set_up(self)?;
        let frozen = match &self.extent {
            Extent::Everything => None,
            Extent::Frozen(file) | Extent::Quick(file) => load(file, self.subject()).ok(),
        };
        let mut measured = Vec::new();
        let mut seen = Vec::new();
        for mutant in self.mutants.iter().filter(|mutant| selected.contains(&mutant.name)) {
            progress.begin(mutant.name);
            let before = frozen.as_ref().and_then(|frozen| convicted_before(frozen, mutant.name));
            let equivalent = EQUIVALENT.iter().find(|(name, _)| *name == mutant.name).map(|(_, why)| *why);
            let fate = match (equivalent, &self.extent) {
                (Some(_), Extent::Frozen(_) | Extent::Quick(_)) => Ok(Convicted::default()),
                (Some(_), Extent::Everything) | (None, Extent::Everything | Extent::Frozen(_) | Extent::Quick(_)) => {
                    bench.convict(mutant, before.as_ref())
                }
            };
            let (run, what) = match (fate, equivalent) {
                (Ok(convicted_by), None) if convicted_by == Convicted::default() => (
                    Run::Broken(vec!["nothing convicts it; mend the harness, or say why it is equivalent".to_owned()]),
                    "goes free",
                ),
                (Ok(convicted_by), Some(equivalent)) if convicted_by == Convicted::default() => {
                    measured.push((mutant.name, Row::Equivalent { equivalent }));
                    (Run::Measured, "is equivalent")
                }
                (Ok(convicted_by), Some(_)) => (
                    Run::Broken(vec![format!("listed as equivalent, and convicted by {convicted_by:?}")]),
                    "is not equivalent",
                ),
                (Ok(convicted_by), None) => {
                    measured.push((mutant.name, Row::Convicted { convicted_by }));
                    (Run::Measured, "is convicted")
                }
                (Err(Stop::Stale(sentence)), _) => (Run::Broken(vec![sentence]), "can't be made"),
                (Err(Stop::NotMeasured(error)), _) => (Run::NotMeasured(error.what), "could not be measured"),
            };
            progress.end(&format!("{} {what}", mutant.name));
            seen.push(Seen { name: mutant.name.to_owned(), sentence: mutant.sentence.clone(), run });
        }
        for (name, _) in EQUIVALENT.iter().filter(|(name, _)| self.mutants.iter().all(|mutant| mutant.name != *name)) {
            let run =
                Run::Broken(vec!["listed as equivalent, and no mutant has that name; take it off the list".to_owned()]);
            seen.push(Seen { name: (*name).to_owned(), sentence: String::new(), run });
        }
        let document = document_of(&File { format: FORMAT, mutants: measured })
            .map_err(|error| NotMeasured { what: error.to_string() })?;
        Ok(Played { document, seen })
    }
}

fn convicted_before(frozen: &Document, name: &str) -> Option<Convicted> {
    #[derive(Deserialize)]
    struct Before {
        convicted_by: Convicted,
    }
    let entry = frozen.entries(baseline::SQL_MUTANTS.member).iter().find(|entry| entry.name == name)?;
    serde_json::from_str::<Before>(&canonical(&entry.node)).ok().map(|before| before.convicted_by)
}

/// The built program and tests, of which mutants are made.
struct Bench<'j> {
    job: &'j SqlMutants,
    workshop: Workshop,
    program: Vec<u8>,
    tripwires: Vec<u8>,
    unit_tests: Vec<u8>,
}

impl<'j> Bench<'j> {
    fn set_up(job: &'j SqlMutants) -> Result<Bench<'j>, NotMeasured> {
        let workshop = Workshop::set_up(&job.checkout)?;
        workshop.control()?;
        let Built { program, tripwires, unit_tests } = build(&workshop)?;
        for (name, tests) in [(TRIPWIRES, &tripwires), (UNIT_TESTS, &unit_tests)] {
            let ended = run(name, tests, [OsString::from("--quiet")], PLAY)?;
            if ended.exit != Exit::Code(0) {
                let what = format!("without any mutant the {name} end with {}; see to that first", ended.exit);
                return Err(NotMeasured { what });
            }
        }
        let read = |path: PathBuf| {
            fs::read(&path).map_err(|error| NotMeasured { what: format!("{}: {error}; run again", path.display()) })
        };
        let [program, tripwires, unit_tests] = [read(program)?, read(tripwires)?, read(unit_tests)?];
        Ok(Bench { job, workshop, program, tripwires, unit_tests })
    }

    /// The first kind that convicts it: a constraint by its tripwire, a statement by the groups. Where it is known who did
    /// before, only those are asked.
    fn convict(&self, mutant: &Mutant, before: Option<&Convicted>) -> Result<Convicted, Stop> {
        let wanted = |named: fn(&Convicted) -> &BTreeSet<String>| before.is_none_or(|before| !named(before).is_empty());
        let mut convicted = Convicted::default();
        if mutant.is_constraint && wanted(|before| &before.tests) {
            convicted.tests = self.by_tests(TRIPWIRES, &self.tripwires, mutant)?;
        }
        // What the harness never asks is in the library's own tests only.
        let is_played = overwritten(&self.program, mutant, &self.job.statements).is_some();
        if convicted == Convicted::default() && is_played && wanted(|before| &before.groups) {
            convicted.groups = self.by_groups(mutant, before.map(|before| &before.groups))?;
        }
        if convicted == Convicted::default() && is_played && wanted(|before| &before.sweeps) {
            let program = self.make(&self.program, mutant)?;
            let frozen = self.job.checkout.join("experiments").join("sweeps.json");
            convicted.sweeps = self.workshop.play(&program, &["sweep", SWEEP], &[SWEEP], &frozen)?.convicted;
        }
        if convicted == Convicted::default() && !mutant.is_constraint && wanted(|before| &before.tests) {
            convicted.tests = self.by_tests(UNIT_TESTS, &self.unit_tests, mutant)?;
        }
        Ok(convicted)
    }

    fn by_tests(&self, name: &str, tests: &[u8], mutant: &Mutant) -> Result<BTreeSet<String>, Stop> {
        let tests = self.make(tests, mutant)?;
        let ended = run(name, tests, [OsString::from("--quiet")], PLAY)?;
        match ended.exit {
            Exit::Code(0) => Ok(BTreeSet::new()),
            Exit::Code(101) => Ok([name.to_owned()].into()),
            other => {
                Err(NotMeasured { what: format!("the {name} ended with {other}: {}", ended.stderr.trim()) }.into())
            }
        }
    }

    /// Without the races, unless only they do.
    fn by_groups(&self, mutant: &Mutant, before: Option<&BTreeSet<String>>) -> Result<BTreeSet<String>, Stop> {
        let program = self.make(&self.program, mutant)?;
        let groups: Vec<&str> = match before {
            Some(before) => before.iter().map(String::as_str).collect(),
            None => GROUPS.iter().map(|group| group.name).collect(),
        };
        let frozen = self.job.checkout.join("results.json");
        let mut found = self.workshop.play(&program, &groups, &groups, &frozen)?.convicted;
        if found.iter().any(|name| !RACES.contains(&name.as_str())) {
            found.retain(|name| !RACES.contains(&name.as_str()));
        }
        Ok(found)
    }

    /// Lays the mutant of a program out, always at the same place.
    fn make(&self, program: &[u8], mutant: &Mutant) -> Result<PathBuf, Stop> {
        let path = self.workshop.target.join("mutant");
        let told = |error: io::Error| NotMeasured {
            what: format!("{}: the mutant can't be written ({error}); make room and run again", path.display()),
        };
        let mutated = overwritten(program, mutant, &self.job.statements).ok_or_else(|| {
            Stop::Stale(format!("what was built does not hold {:?} as it is written", squeezed(&mutant.statement)))
        })?;
        // What runs can't be written to, and a new file can.
        if path.exists() {
            fs::remove_file(&path).map_err(told)?;
        }
        fs::write(&path, mutated).map_err(told)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755)).map_err(told)?;
        Ok(path)
    }
}

/// `None`: the statement stands nowhere of its own.
fn overwritten(program: &[u8], mutant: &Mutant, statements: &[String]) -> Option<Vec<u8>> {
    let longer = statements
        .iter()
        .filter(|other| other.len() > mutant.statement.len() && other.contains(mutant.statement.as_str()));
    let taken: Vec<Range<usize>> = longer.flat_map(|other| occurrences(program, other)).collect();
    let own: Vec<Range<usize>> = occurrences(program, &mutant.statement)
        .filter(|own| !taken.iter().any(|taken| taken.start <= own.start && own.end <= taken.end))
        .collect();
    let mut mutated = program.to_vec();
    for at in &own {
        mutated[at.clone()].copy_from_slice(mutant.mutated.as_bytes());
    }
    (!own.is_empty()).then_some(mutated)
}

fn occurrences(program: &[u8], text: &str) -> impl Iterator<Item = Range<usize>> {
    let text = text.as_bytes();
    let starts = program.windows(text.len()).enumerate().filter(move |(_, window)| *window == text);
    starts.map(move |(start, _)| start..start + text.len())
}

/// What mutants are made of.
struct Built {
    program: PathBuf,
    tripwires: PathBuf,
    unit_tests: PathBuf,
}

/// The sources as they are.
fn build(workshop: &Workshop) -> Result<Built, NotMeasured> {
    workshop.copy_sources()?;
    let arguments: [OsString; 12] = [
        "test".into(),
        "--no-run".into(),
        "--quiet".into(),
        "--locked".into(),
        "--profile=flaw".into(),
        "--message-format=json".into(),
        "--lib".into(),
        format!("--test={TRIPWIRES}").into(),
        "--manifest-path".into(),
        workshop.tree.join("Cargo.toml").into(),
        "--target-dir".into(),
        workshop.target.clone().into(),
    ];
    let built = run("cargo test --no-run", "cargo", arguments, BUILD)?;
    #[derive(Deserialize)]
    struct Artifact {
        target: Target,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let artifacts: Vec<Artifact> = built.lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let executable = |name: &str| {
        let of = artifacts.iter().rfind(|artifact| artifact.target.name == name && artifact.executable.is_some());
        of.and_then(|artifact| artifact.executable.clone())
    };
    // Of a library only its tests are an executable.
    let library = env!("CARGO_PKG_NAME").replace('-', "_");
    match (built.exit, executable(env!("CARGO_PKG_NAME")), executable(TRIPWIRES), executable(&library)) {
        (Exit::Code(0), Some(program), Some(tripwires), Some(unit_tests)) => {
            Ok(Built { program, tripwires, unit_tests })
        }
        (exit, _, _, _) => {
            Err(NotMeasured { what: format!("nothing to mutate was built ({exit}): {}", built.stderr.trim()) })
        }
    }
}

/// SQL that stands in the sources.
struct Statement {
    /// The function or constant around it.
    within: String,
    text: String,
}

/// All of a folder's, in the order of its files' names; what is only there for tests left out.
fn statements_of(src: &Path) -> Result<Vec<Statement>, String> {
    let told = |path: &Path, error: io::Error| format!("{}: {error}; run inside a checkout", path.display());
    let root = src.join("lib.rs");
    let root = fs::read_to_string(&root).map_err(|error| told(&root, error))?;
    let mut files: Vec<PathBuf> = fs::read_dir(src)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|error| told(src, error))?;
    files.retain(|file| {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        file.extension().is_some_and(|extension| extension == "rs")
            && !root.contains(&format!("#[cfg(test)]\nmod {stem};"))
    });
    files.sort();
    let mut statements: Vec<Statement> = Vec::new();
    for file in files {
        let source = fs::read_to_string(&file).map_err(|error| told(&file, error))?;
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        for Literal { within, text } in literals(source) {
            // A statement may go on from a constant.
            let text = text.rsplit_once('}').map_or(text, |(_, rest)| rest);
            let first = text.split_whitespace().next().unwrap_or_default();
            let is_sql = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "WHERE", "ORDER"].contains(&first);
            if is_sql && !statements.iter().any(|known| known.text == text) {
                if text.contains('\\') {
                    return Err(format!(
                        "{}: SQL with an escape, {:?}: write it without",
                        file.display(),
                        squeezed(text)
                    ));
                }
                statements.push(Statement { within: within.to_owned(), text: text.to_owned() });
            }
        }
    }
    Ok(statements)
}

/// A string literal of Rust, as it is written.
struct Literal<'s> {
    within: &'s str,
    text: &'s str,
}

fn literals(source: &str) -> Vec<Literal<'_>> {
    let mut literals = Vec::new();
    let mut within = "";
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else if first == '"' {
            let mut escaped = false;
            let end = rest[1..].char_indices().find(|(_, char)| {
                let ends = *char == '"' && !escaped;
                escaped = *char == '\\' && !escaped;
                ends
            });
            let end = end.map_or(rest.len() - 1, |(at, _)| at);
            literals.push(Literal { within, text: &rest[1..1 + end] });
            rest = rest.get(end + 2..).unwrap_or_default();
        } else if first == '\'' {
            // A character; else a lifetime.
            let mut chars = rest.char_indices().skip(1);
            let end = match (chars.next(), chars.next()) {
                (Some((_, '\\')), Some(_)) => chars.find(|(_, char)| *char == '\'').map(|(at, _)| at),
                (Some(_), Some((at, '\''))) => Some(at),
                (_, _) => None,
            };
            rest = &rest[end.map_or(1, |at| at + 1)..];
        } else if first.is_alphabetic() || first == '_' {
            let end = rest.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            if ["fn", "const", "static"].contains(&word) {
                let name = after.trim_start();
                let end = name.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(name.len());
                if end > 0 && !name.starts_with("fn ") {
                    within = &name[..end];
                }
            }
            rest = after;
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    literals
}

fn mutants_of(statements: &[Statement]) -> Result<Vec<Mutant>, String> {
    let mut mutants: Vec<Mutant> = Vec::new();
    for Statement { within, text } in statements {
        let is_constraint = text.trim_start().starts_with("CREATE");
        for Change { what, at, instead } in changes(text) {
            let verb = text.split_whitespace().next().unwrap_or_default();
            let mut name = if is_constraint { format!("schema {what}") } else { format!("{within} {verb}: {what}") };
            if mutants.iter().any(|mutant| mutant.name == name) {
                name.push_str(", again");
            }
            if instead.len() > at.len() {
                return Err(format!("{name}: {instead:?} has no room where {:?} stands", &text[at]));
            }
            let mutated = format!("{}{instead:width$}{}", &text[..at.start], &text[at.end..], width = at.len());
            let sentence = if is_constraint { "the schema".to_owned() } else { squeezed(text) };
            mutants.push(Mutant { name: name.leak(), sentence, is_constraint, statement: text.clone(), mutated });
        }
    }
    Ok(mutants)
}

/// One piece of a statement, and what to write over it, filled up with blanks.
struct Change {
    what: String,
    at: Range<usize>,
    instead: String,
}

/// Every piece that can be dropped.
fn changes(sql: &str) -> Vec<Change> {
    let tokens = tokens(sql);
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.text == word);
    let mut changes = Vec::new();
    // Where in a schema we are.
    let (mut table, mut column, mut in_table) = ("", "", false);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if is(at, "CREATE") {
            (table, column) = (tokens.get(at + 2).map_or("", |token| token.text), "");
            in_table = is(at + 1, "TABLE");
        } else if in_table && token.depth == 1 && (is(at - 1, "(") || is(at - 1, ",")) {
            column = if token.text == "CHECK" { "" } else { token.text };
        }
        let place = match (table, column) {
            ("", _) => String::new(),
            (table, "") => format!("{table}: "),
            (table, column) => format!("{table}.{column}: "),
        };
        let mut next = at + 1;
        let mut drop = |to: usize, instead: &str| {
            let piece = token.at.start..tokens[to].at.end;
            let what = format!("{place}without {}", squeezed(&sql[piece.clone()]).trim_end_matches(','));
            changes.push(Change { what, at: piece, instead: instead.to_owned() });
        };
        match token.text {
            "CHECK" => {
                next = closing(&tokens, at + 1) + 1;
                drop(next - 1, "CHECK (1)");
            }
            "NOT" if is(at + 1, "NULL") && !is(at - 1, "IS") => drop(at + 1, ""),
            "UNIQUE" => drop(at, ""),
            "PRIMARY" => drop(at + 1, ""),
            "REFERENCES" => drop(closing(&tokens, at + 2), ""),
            "STRICT" => {
                column = "";
                let place = format!("{table}: without STRICT");
                let end = if is(at + 1, ",") { at + 1 } else { at };
                changes.push(Change { what: place, at: token.at.start..tokens[end].at.end, instead: String::new() });
            }
            "LIMIT" => drop(at + 1, ""),
            "ORDER" => {
                let end = clause_end(&tokens, at);
                drop(end - 1, "");
                // Without an order any will do, the opposite one as well.
                let piece = token.at.start..tokens[end - 1].at.end;
                let what = format!("reversed {}", squeezed(&sql[piece.clone()]));
                changes.push(Change { what, at: piece, instead: "ORDER BY 1 DESC".to_owned() });
            }
            "WHERE" => changes.extend(conjuncts(sql, &tokens, at, &place)),
            "ON" if table.is_empty() && !is(at + 1, "CONFLICT") => changes.extend(conjuncts(sql, &tokens, at, &place)),
            _ => {}
        }
        at = next;
    }
    changes
}

/// Drops each conjunct of the clause that begins at `begin`. A parameter that is no longer asked for is still there.
fn conjuncts(sql: &str, tokens: &[Token<'_>], begin: usize, place: &str) -> Vec<Change> {
    let end = clause_end(tokens, begin);
    let depth = tokens[begin].depth;
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut part = begin + 1..end;
    let mut between = false;
    for (at, token) in tokens.iter().enumerate().take(end).skip(begin + 1) {
        match token.text {
            "AND" if token.depth == depth && !between => {
                parts.push(part.start..at);
                part.start = at + 1;
            }
            "AND" if token.depth == depth => between = false,
            "BETWEEN" => between = true,
            _ => {}
        }
    }
    parts.push(part);
    let only = parts.len() == 1;
    let change = |part: Range<usize>| {
        let asked = tokens[part.start].at.start..tokens[part.end - 1].at.end;
        let parameters: BTreeSet<&str> =
            tokens[part].iter().map(|token| token.text).filter(|text| text.starts_with('?')).collect();
        let what = format!("{place}without {}", squeezed(&sql[asked.clone()]));
        match (parameters.is_empty(), only) {
            (true, true) => Change { what, at: tokens[begin].at.start..asked.end, instead: String::new() },
            (true, false) => Change { what, at: asked, instead: "TRUE".to_owned() },
            (false, _) => {
                let kept: Vec<String> =
                    parameters.iter().map(|parameter| format!("{parameter} IS {parameter}")).collect();
                Change { what, at: asked, instead: kept.join(" AND ") }
            }
        }
    };
    parts.into_iter().map(change).collect()
}

/// The token behind the clause that begins at `begin`.
fn clause_end(tokens: &[Token<'_>], begin: usize) -> usize {
    const NEXT: [&str; 9] = ["WHERE", "ORDER", "GROUP", "HAVING", "LIMIT", "RETURNING", "UNION", "JOIN", ";"];
    let depth = tokens[begin].depth;
    let ends = |token: &Token<'_>| token.depth < depth || (token.depth == depth && NEXT.contains(&token.text));
    tokens.iter().skip(begin + 1).position(ends).map_or(tokens.len(), |at| begin + 1 + at)
}

/// Where the parenthesis that opens at `open` closes.
fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let depth = tokens[open].depth;
    let closes = |token: &Token<'_>| token.text == ")" && token.depth == depth;
    tokens.iter().skip(open).position(closes).map_or(tokens.len() - 1, |at| open + at)
}

struct Token<'s> {
    text: &'s str,
    at: Range<usize>,
    /// Parentheses around it.
    depth: usize,
}

fn tokens(sql: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while let Some(first) = sql[at..].chars().next() {
        let is_word = |char: char| char.is_alphanumeric() || matches!(char, '_' | '.' | '?');
        let length = match first {
            '\'' => sql[at + 1..].find('\'').map_or(sql.len() - at, |end| end + 2),
            first if is_word(first) => sql[at..].find(|char| !is_word(char)).unwrap_or(sql.len() - at),
            other => other.len_utf8(),
        };
        let text = &sql[at..at + length];
        if text == ")" {
            depth -= 1;
        }
        if !first.is_whitespace() {
            tokens.push(Token { text, at: at..at + length, depth });
        }
        if text == "(" {
            depth += 1;
        }
        at += length;
    }
    tokens
}

/// On one line, one blank between words.
fn squeezed(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutated(sql: &str) -> Vec<(&'static str, String)> {
        let statement = Statement { within: "verb".to_owned(), text: sql.to_owned() };
        let mutants = mutants_of(&[statement]).expect("mutants");
        assert!(mutants.iter().all(|mutant| mutant.mutated.len() == sql.len()), "a mutant keeps the length");
        mutants.iter().map(|mutant| (mutant.name, squeezed(&mutant.mutated))).collect()
    }

    #[test]
    fn each_conjunct_goes_in_turn_and_its_parameters_stay() {
        let found = mutated("UPDATE t SET a = ?1 WHERE b BETWEEN 1 AND ?2 AND c = 'x AND y' AND (d = 1 OR e AND f)");
        let found: Vec<_> = found.iter().map(|(name, sql)| (*name, sql.as_str())).collect();
        assert_eq!(
            found,
            [
                (
                    "verb UPDATE: without b BETWEEN 1 AND ?2",
                    "UPDATE t SET a = ?1 WHERE ?2 IS ?2 AND c = 'x AND y' AND (d = 1 OR e AND f)"
                ),
                (
                    "verb UPDATE: without c = 'x AND y'",
                    "UPDATE t SET a = ?1 WHERE b BETWEEN 1 AND ?2 AND TRUE AND (d = 1 OR e AND f)"
                ),
                (
                    "verb UPDATE: without (d = 1 OR e AND f)",
                    "UPDATE t SET a = ?1 WHERE b BETWEEN 1 AND ?2 AND c = 'x AND y' AND TRUE"
                ),
            ]
        );
    }

    #[test]
    fn joins_orders_and_limits_go_too() {
        let found = mutated("SELECT a FROM t JOIN u ON u.a = t.a WHERE b = 0 ORDER BY t.along LIMIT 1");
        let found: Vec<_> = found.iter().map(|(_, sql)| sql.as_str()).collect();
        assert_eq!(
            found,
            [
                "SELECT a FROM t JOIN u WHERE b = 0 ORDER BY t.along LIMIT 1",
                "SELECT a FROM t JOIN u ON u.a = t.a ORDER BY t.along LIMIT 1",
                "SELECT a FROM t JOIN u ON u.a = t.a WHERE b = 0 LIMIT 1",
                "SELECT a FROM t JOIN u ON u.a = t.a WHERE b = 0 ORDER BY 1 DESC LIMIT 1",
                "SELECT a FROM t JOIN u ON u.a = t.a WHERE b = 0 ORDER BY t.along",
            ]
        );
    }

    #[test]
    fn each_constraint_of_a_schema_goes_in_turn() {
        let found = mutated(
            "CREATE TABLE t (a INTEGER PRIMARY KEY REFERENCES u (a), b TEXT NOT NULL UNIQUE CHECK (f(b) IS NOT NULL),
             CHECK (a > 0 OR b = ')')) STRICT, WITHOUT ROWID; CREATE INDEX i ON t (b) WHERE b IS NOT NULL;",
        );
        let found: Vec<_> = found.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            found,
            [
                "schema t.a: without PRIMARY KEY",
                "schema t.a: without REFERENCES u (a)",
                "schema t.b: without NOT NULL",
                "schema t.b: without UNIQUE",
                "schema t.b: without CHECK (f(b) IS NOT NULL)",
                "schema t: without CHECK (a > 0 OR b = ')')",
                "schema t: without STRICT",
                "schema i: without b IS NOT NULL",
            ]
        );
    }

    #[test]
    fn literals_are_found_behind_comments_characters_and_lifetimes() {
        let source =
            "// \"no\"\nfn one<'a>(x: &'a str) { f('\"', '\\'', \"SELECT 1\"); }\nconst TWO: &str = \"a \\\" b\";";
        let found: Vec<_> = literals(source).iter().map(|literal| (literal.within, literal.text)).collect();
        assert_eq!(found, [("one", "SELECT 1"), ("TWO", "a \\\" b")]);
    }

    #[test]
    fn a_statement_is_overwritten_wherever_it_stands_and_not_inside_a_longer_one() {
        let statement = |text: &str| Statement { within: "verb".to_owned(), text: text.to_owned() };
        let statements = [statement("WHERE abc = ?1"), statement("SELECT b WHERE abc = ?1")];
        let mutants = mutants_of(&statements).expect("mutants");
        let texts: Vec<String> = statements.into_iter().map(|statement| statement.text).collect();
        let overwrite = |program: &str| overwritten(program.as_bytes(), &mutants[0], &texts);
        let mutated = overwrite("SELECT b WHERE abc = ?1\0WHERE abc = ?1WHERE abc = ?1").expect("it stands there");
        assert_eq!(String::from_utf8_lossy(&mutated), "SELECT b WHERE abc = ?1\0WHERE ?1 IS ?1WHERE ?1 IS ?1");
        assert!(overwrite("SELECT b WHERE abc = ?1").is_none(), "only inside the longer one");
    }

    /// The generator and the sources: what it finds in them is what stands there.
    #[test]
    fn the_sources_give_a_mutant_for_each_constraint_and_conjunct() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let statements = statements_of(&src).expect("statements");
        let mutants = mutants_of(&statements).expect("mutants");
        let names: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), mutants.len(), "each has a name of its own");
        let schema = &statements.iter().find(|statement| statement.within == "CREATE").expect("the schema").text;
        let of =
            |word: &str| mutants.iter().filter(|mutant| mutant.is_constraint && mutant.name.contains(word)).count();
        assert_eq!(of("without CHECK"), schema.matches("CHECK (").count());
        assert_eq!(of("without REFERENCES"), schema.matches("REFERENCES").count());
        assert_eq!(of("without STRICT"), schema.matches(") STRICT").count());
        for name in [
            "held_by SELECT: without lease > ?3",
            "standing SELECT: without own.tenant = ?2",
            "claim SELECT: reversed ORDER BY task.sequence",
        ] {
            assert!(names.contains(name), "{names:#?}");
        }
    }
}
