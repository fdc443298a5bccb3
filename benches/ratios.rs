//! How fast the verbs are, as ratios to a floor measured in the same run: rounds of floor and verb take turns on
//! one disk, and what is printed is the median of the rounds. `scripts/bench` runs it; sections can be named.
//!
//! A plain program and no benchmark framework: what counts is the ratio of two rates under the same weather, over
//! threads, processes and stores of several gigabytes.

use std::env;
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use durable_admission::{Admission, Allowance, Limits, OpenOptions, Request, SharedStore, Store};
use rusqlite::Connection;

type Outcome<T> = Result<T, Box<dyn Error>>;

const SECTIONS: [(&str, Section); 7] = [
    ("one-caller", one_caller),
    ("many-callers", many_callers),
    ("processes", processes),
    ("outstanding", outstanding),
    ("ended", ended),
    ("memory", memory),
    ("peers", peers),
];

type Section = fn(&Path) -> Outcome<()>;

const USAGE: &str = "ratios [--folder FOLDER] [SECTION ...]; sections: one-caller, many-callers, processes, \
                     outstanding, ended, memory, peers. FOLDER has to lie on the disk to be measured";

/// Odd, so that the median is one of them.
const ROUNDS: usize = 9;
const PER_ROUND: usize = 400;
/// Commits after which each WAL has started anew.
const WARM_UP: usize = 2_000;
const CALLERS: usize = 64;
const PROCESSES: usize = 12;
const OUTSTANDING: u64 = 1_000_000;
const ENDED: u64 = 10_000_000;
const BACKLOGS: [u64; 3] = [0, 20_000, 100_000];
/// With a limit they count what waits, as admission does; without, they do less, and are quicker.
const PEERS: [(&str, &str); 4] =
    [("localqueue", "limited"), ("localqueue", "unlimited"), ("litequeue", "limited"), ("litequeue", "unlimited")];
/// Tens of milliseconds each, where a peer sorts its whole backlog.
const PER_PEER_ROUND: usize = 100;
const TENANT: &str = "tenant";
const PAYLOAD: &str = "sixty-four bytes of payload, which is neither long nor very short";

/// Nothing here runs into them.
const LIMITS: Limits = Limits {
    global: Allowance { count: 1 << 40, bytes: 1 << 50 },
    tenant: Allowance { count: 1 << 40, bytes: 1 << 50 },
    payload_bytes: 1 << 20,
};

/// The command line is not understood.
#[derive(Debug)]
struct Misused(String);

impl Display for Misused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Misused {}

fn main() -> ExitCode {
    match run(env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ratios: {error}");
            ExitCode::from(if error.is::<Misused>() { 2 } else { 3 })
        }
    }
}

fn run(arguments: Vec<String>) -> Outcome<()> {
    if let [work, path, count, prefix] = &arguments[..]
        && work == "--process"
    {
        return process_work(Path::new(path), count.parse()?, prefix);
    }
    // Cargo's own.
    let mut arguments = arguments.into_iter().filter(|argument| argument != "--bench");
    let (mut folder, mut chosen) = (None, Vec::new());
    while let Some(argument) = arguments.next() {
        if argument == "--folder" {
            folder = Some(PathBuf::from(arguments.next().ok_or_else(|| Misused(USAGE.to_owned()))?));
        } else {
            let known = SECTIONS.iter().find(|(name, _)| *name == argument);
            chosen.push(*known.ok_or_else(|| Misused(format!("no section {argument:?}; {USAGE}")))?);
        }
    }
    // Where the build lies is a disk; a temporary folder may be memory.
    let within = folder.unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    fs::create_dir_all(&within)
        .map_err(|error| format!("{}: {error}; name a folder with --folder", within.display()))?;
    let folder = tempfile::Builder::new().prefix("ratios-").tempdir_in(&within)?;
    println!("SQLite {}, on {}", rusqlite::version(), within.display());
    for (name, section) in if chosen.is_empty() { SECTIONS.to_vec() } else { chosen } {
        println!("\n{name}");
        let place = folder.path().join(name);
        fs::create_dir(&place)?;
        section(&place)?;
        fs::remove_dir_all(&place)?;
    }
    Ok(())
}

/// The verbs of one connection, beside what the disk and SQLite alone can do.
fn one_caller(place: &Path) -> Outcome<()> {
    let (mut raw, mut row, mut five) = (RawFloor::new(place)?, RowFloor::new(place)?, FivePagesFloor::new(place)?);
    let mut store = Store::open(place.join("store.db"), &LIMITS)?;
    let mut ids = Ids::new("one");
    let [mut raws, mut rows, mut fives, mut admits, mut cycles] = [(); 5].map(|()| Vec::new());
    // A WAL that still grows costs more than one that is written over.
    for _ in 0..WARM_UP {
        row.commit()?;
        five.commit(&ids.next())?;
        admit(&mut store, &ids.next())?;
    }
    for _ in 0..ROUNDS {
        raws.push(each(PER_ROUND, || raw.write())?);
        rows.push(each(PER_ROUND, || row.commit())?);
        fives.push(each(PER_ROUND, || five.commit(&ids.next()))?);
        admits.push(each(PER_ROUND, || admit(&mut store, &ids.next()))?);
        cycles.push(each(PER_ROUND, || claim_and_resolve(&mut store))?);
    }
    say("raw 4 KiB write + fdatasync", &raws);
    say("one-row commit", &rows);
    say("five-page commit", &fives);
    say("admit", &admits);
    say("claim + resolve", &cycles);
    compare("one-row commit / raw write, in time", &rows, &raws);
    compare("five-page commit / one-row commit, in rate", &rows, &fives);
    compare("admit / one-row commit, in rate", &rows, &admits);
    compare("admit / five-page commit, in rate", &fives, &admits);
    let two_rows: Vec<f64> = rows.iter().map(|row| 2.0 * row).collect();
    compare("claim + resolve / half the one-row commit, in rate", &two_rows, &cycles);
    Ok(())
}

fn many_callers(place: &Path) -> Outcome<()> {
    let mut row = RowFloor::new(place)?;
    let mut alone = Store::open(place.join("alone.db"), &LIMITS)?;
    let shared = SharedStore::open(place.join("shared.db"), &LIMITS)?;
    let mut ids = Ids::new("many");
    let [mut rows, mut ones, mut handles, mut manys, mut cycles] = [(); 5].map(|()| Vec::new());
    for round in 0..ROUNDS {
        rows.push(each(PER_ROUND, || row.commit())?);
        ones.push(each(PER_ROUND, || admit(&mut alone, &ids.next()))?);
        handles.push(each(PER_ROUND, || accepted(shared.admit(request(&ids.next()))?))?);
        manys.push(at_once(&shared, |store, caller, turn| {
            accepted(store.admit(request(&format!("{round}-{caller}-{turn}"))).map_err(text)?).map_err(text)
        })?);
        cycles.push(at_once(&shared, |store, _, _| {
            let claim = store.claim(0).map_err(text)?.ok_or("nothing to claim")?;
            store.resolve(&claim.token, 0).map(drop).map_err(text)
        })?);
    }
    say("one-row commit", &rows);
    say("admit, one caller", &ones);
    say("admit, one caller of the shared handle", &handles);
    say("admit, 64 callers", &manys);
    say("claim + resolve, 64 callers", &cycles);
    compare("admit, shared handle / plain store, in rate", &ones, &handles);
    compare("admit, 64 callers / one caller, in rate", &ones, &manys);
    compare("admit, 64 callers / one-row commit, in rate", &rows, &manys);
    Ok(())
}

/// Seconds for each piece of work that all callers do at once.
fn at_once(
    store: &SharedStore,
    work: impl Fn(&SharedStore, usize, usize) -> Result<(), String> + Sync,
) -> Outcome<f64> {
    let start = Barrier::new(CALLERS + 1);
    let turns = PER_ROUND / 8;
    let begun = thread::scope(|scope| {
        let caller = |caller| {
            let (store, start, work) = (store.clone(), &start, &work);
            scope.spawn(move || {
                start.wait();
                (0..turns).try_for_each(|turn| work(&store, caller, turn))
            })
        };
        let callers: Vec<_> = (0..CALLERS).map(caller).collect();
        start.wait();
        let begun = Instant::now();
        for caller in callers {
            caller.join().map_err(|_| "a caller panicked")??;
        }
        Ok::<_, Box<dyn Error>>(begun)
    })?;
    Ok(begun.elapsed().as_secs_f64() / (CALLERS * turns) as f64)
}

fn processes(place: &Path) -> Outcome<()> {
    let path = place.join("store.db");
    drop(Store::open(&path, &LIMITS)?);
    let (mut ones, mut twelves) = (Vec::new(), Vec::new());
    for round in 0..5 {
        let measure = |processes: usize, count: usize, times: &mut Vec<f64>| -> Outcome<()> {
            let started: Outcome<Vec<Process>> = (0..processes)
                .map(|process| Process::start(&path, count, &format!("{round}-{processes}-{process}")))
                .collect();
            let mut started = started?;
            let begun = Instant::now();
            started.iter_mut().try_for_each(|process| process.say("go"))?;
            // An error of any of them, a lock's above all, is an error of the run.
            started.iter_mut().try_for_each(|process| process.hear("done"))?;
            times.push(begun.elapsed().as_secs_f64() / (processes * count) as f64);
            Ok(())
        };
        measure(1, 2 * PER_ROUND, &mut ones)?;
        measure(PROCESSES, PER_ROUND, &mut twelves)?;
    }
    say("admit, one process", &ones);
    say("admit, twelve processes in sum", &twelves);
    compare("twelve processes / one, in rate", &ones, &twelves);
    let OpenOptions { busy_timeout } = OpenOptions::default();
    println!("  no lock error below the busy timeout of {busy_timeout:?}");
    Ok(())
}

fn outstanding(place: &Path) -> Outcome<()> {
    let few = Filled::new(place, "few", 4, 0)?;
    let many = Filled::new(place, "many", OUTSTANDING, 0)?;
    few_and_many(place, few, many, "1,000,000 outstanding / 4, in time")
}

fn ended(place: &Path) -> Outcome<()> {
    let none = Filled::new(place, "none", 4, 0)?;
    let many = Filled::new(place, "many", 4, ENDED)?;
    few_and_many(place, none, many, "10,000,000 ended / none, in time")
}

fn few_and_many(place: &Path, mut few: Filled, mut many: Filled, what: &str) -> Outcome<()> {
    let mut row = RowFloor::new(place)?;
    let [mut rows, mut few_admits, mut many_admits, mut few_claims, mut many_claims] = [(); 5].map(|()| Vec::new());
    for _ in 0..ROUNDS {
        rows.push(each(PER_ROUND, || row.commit())?);
        few_admits.push(each(PER_ROUND, || few.admit())?);
        many_admits.push(each(PER_ROUND, || many.admit())?);
        few_claims.push(each(PER_ROUND, || claim_and_resolve(&mut few.store))?);
        many_claims.push(each(PER_ROUND, || claim_and_resolve(&mut many.store))?);
    }
    say("one-row commit", &rows);
    say("admit, few", &few_admits);
    say("admit, many", &many_admits);
    say("claim + resolve, few", &few_claims);
    say("claim + resolve, many", &many_claims);
    compare(&format!("admit, {what}"), &many_admits, &few_admits);
    compare(&format!("claim + resolve, {what}"), &many_claims, &few_claims);
    Ok(())
}

/// The largest resident size of a process that admits, claims and resolves.
fn memory(place: &Path) -> Outcome<()> {
    let mut peaks = Vec::new();
    for (name, outstanding) in [("few", 4), ("many", OUTSTANDING)] {
        let Filled { store, path, .. } = Filled::new(place, name, outstanding, 0)?;
        drop(store);
        let mut process = Process::start(&path, 5 * PER_ROUND, "memory")?;
        process.say("go")?;
        process.hear("done")?;
        let peak: f64 = process.line()?.trim().parse()?;
        println!("  {outstanding:>9} outstanding: {:.1} MiB resident at most", peak / 1024.0);
        peaks.push(peak);
    }
    println!("  {:.2} × memory, 1,000,000 outstanding / 4", peaks[1] / peaks[0]);
    Ok(())
}

/// Two queues from PyPI, each commit of theirs synced as ours are, with our backlog.
fn peers(place: &Path) -> Outcome<()> {
    for outstanding in BACKLOGS {
        let place = place.join(outstanding.to_string());
        fs::create_dir(&place)?;
        println!(" {outstanding} outstanding");
        let (mut present, mut absent) = (Vec::new(), Vec::new());
        for (name, limit) in PEERS {
            match Peer::start(name, limit, &place, outstanding)? {
                Ok(peer) => present.push((peer, Vec::new(), Vec::new())),
                Err(reason) => absent.push(reason),
            }
        }
        // With a limit and without, it is the same word.
        absent.dedup();
        absent.iter().for_each(|reason| println!("  {reason}"));
        if present.is_empty() {
            return Ok(());
        }
        let mut ours = Filled::new(&place, "ours", outstanding, 0)?;
        let (mut admits, mut cycles) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            admits.push(each(PER_PEER_ROUND, || ours.admit())?);
            for (peer, puts, _) in &mut present {
                puts.push(peer.seconds_each("put", PER_PEER_ROUND)?);
            }
            cycles.push(each(PER_PEER_ROUND, || claim_and_resolve(&mut ours.store))?);
            for (peer, _, their_cycles) in &mut present {
                their_cycles.push(peer.seconds_each("cycle", PER_PEER_ROUND)?);
            }
        }
        say("admit", &admits);
        say("claim + resolve", &cycles);
        for (Peer { name, .. }, puts, their_cycles) in &present {
            say(&format!("{name}, put"), puts);
            say(&format!("{name}, get + done"), their_cycles);
            compare(&format!("admit / put of {name}, in rate"), puts, &admits);
            compare(&format!("claim + resolve / get + done of {name}, in rate"), their_cycles, &cycles);
        }
    }
    Ok(())
}

/// A queue at work in a Python of its own, which takes the time itself: the pipe is no part of it.
struct Peer {
    name: String,
    process: Process,
}

impl Peer {
    /// `Err` within says why there is none here.
    fn start(name: &str, limit: &str, place: &Path, backlog: u64) -> Outcome<Result<Peer, String>> {
        let folder = place.join(format!("{name}-{limit}"));
        fs::create_dir(&folder)?;
        let mut python = Command::new("python3");
        python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/peer.py"));
        python.args([name, limit]).arg(&folder).arg(backlog.to_string());
        let mut process = match Process::spawn(&mut python) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Err(format!("skipped: {name} wants a python3 on the PATH")));
            }
            started => started?,
        };
        match process.line()?.trim() {
            "ready" => Ok(Ok(Peer { name: format!("{name} {limit}"), process })),
            reason if reason.starts_with("skipped: ") => Ok(Err(reason.to_owned())),
            other => Err(format!("{name} said {other:?}, not \"ready\"; its error stands above").into()),
        }
    }

    fn seconds_each(&mut self, work: &str, count: usize) -> Outcome<f64> {
        self.process.say(&format!("{work} {count}"))?;
        let line = self.process.line()?;
        let seconds: f64 = line.trim().parse().map_err(|_| format!("{}: no answer to {work} {count}", self.name))?;
        Ok(seconds / count as f64)
    }
}

/// A store with so many outstanding and so many ended tasks, put there in bulk, with the ledger that they add up to.
struct Filled {
    store: Store,
    path: PathBuf,
    ids: Ids,
}

impl Filled {
    fn new(place: &Path, name: &str, outstanding: u64, ended: u64) -> Outcome<Filled> {
        let path = place.join(format!("{name}.db"));
        Store::open(&path, &LIMITS)?.close()?;
        let begun = Instant::now();
        let bulk = Connection::open(&path)?;
        bulk.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -1500000")?;
        // Identities in no order, as those of many callers are.
        bulk.execute_batch(&format!(
            "BEGIN;
             CREATE TEMP TABLE id AS WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number LIMIT {total})
                 SELECT n, lower(hex(randomblob(8))) AS id FROM number;
             INSERT INTO intent (sequence, request_id, tenant, bytes, payload)
                 SELECT n, id, '{TENANT}', {bytes}, '{PAYLOAD}' FROM temp.id ORDER BY n;
             INSERT INTO task (sequence, bytes, state, generation, due)
                 SELECT n, {bytes}, iif(n <= {ended}, 'done', 'queued'), n <= {ended}, iif(n <= {ended}, NULL, 0)
                 FROM temp.id ORDER BY n;
             INSERT INTO effect (sequence, effect) SELECT n, 'synthetic-completed' FROM temp.id WHERE n <= {ended} ORDER BY n;
             UPDATE usage SET count = {outstanding}, bytes = {outstanding} * {bytes} WHERE tenant = '';
             INSERT INTO usage (tenant, count, bytes) VALUES ('{TENANT}', {outstanding}, {outstanding} * {bytes});
             COMMIT",
            total = outstanding + ended,
            bytes = PAYLOAD.len(),
        ))?;
        bulk.close().map_err(|(_, error)| error)?;
        File::open(&path)?.sync_all()?;
        let store = Store::open(&path, &LIMITS)?;
        if store.usage()?.count != outstanding {
            return Err(format!("{}: the ledger does not hold {outstanding}", path.display()).into());
        }
        println!(
            "  built {outstanding} outstanding and {ended} ended: {} MiB in {:.1} s",
            fs::metadata(&path)?.len() >> 20,
            begun.elapsed().as_secs_f64()
        );
        Ok(Filled { store, path, ids: Ids::new(name) })
    }

    fn admit(&mut self) -> Outcome<()> {
        admit(&mut self.store, &self.ids.next())
    }
}

/// One 4 KiB block after the other, each durable before the next; over again after 4 MiB, as a WAL is.
struct RawFloor {
    file: File,
    block: u64,
}

impl RawFloor {
    fn new(place: &Path) -> Outcome<RawFloor> {
        let file = File::create(place.join("raw"))?;
        file.write_all_at(&vec![1; 4096 * 1000], 0)?;
        file.sync_all()?;
        Ok(RawFloor { file, block: 0 })
    }

    fn write(&mut self) -> Outcome<()> {
        self.block += 1;
        self.file.write_all_at(&[self.block as u8; 4096], self.block % 1000 * 4096)?;
        Ok(self.file.sync_data()?)
    }
}

/// The least that a durable request could cost on SQLite: one row, one commit, the same pragmas.
struct RowFloor {
    connection: Connection,
}

impl RowFloor {
    fn new(place: &Path) -> Outcome<RowFloor> {
        RowFloor::at(&place.join("row.db"))
    }

    fn at(path: &Path) -> Outcome<RowFloor> {
        let connection = Connection::open(path)?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;
             PRAGMA wal_autocheckpoint = 1000; PRAGMA journal_size_limit = 8388608;
             CREATE TABLE row (number INTEGER PRIMARY KEY, payload TEXT NOT NULL) STRICT;",
        )?;
        Ok(RowFloor { connection })
    }

    fn commit(&mut self) -> Outcome<()> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        self.connection.prepare_cached("INSERT INTO row (payload) VALUES (?1)")?.execute([PAYLOAD])?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

/// What a request has to leave behind: its intent, its id where it is looked up, its task, its place among the
/// claimable ones, its room. As bare rows: five pages in one commit, nothing read, nothing checked.
struct FivePagesFloor {
    connection: Connection,
}

impl FivePagesFloor {
    fn new(place: &Path) -> Outcome<FivePagesFloor> {
        let RowFloor { connection } = RowFloor::at(&place.join("five.db"))?;
        connection.execute_batch(
            "CREATE TABLE second (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
             CREATE TABLE third (number INTEGER PRIMARY KEY) STRICT;
             CREATE TABLE fourth (number INTEGER PRIMARY KEY) STRICT;
             CREATE TABLE fifth (number INTEGER PRIMARY KEY, count INTEGER NOT NULL) STRICT;
             INSERT INTO fifth VALUES (1, 0);",
        )?;
        Ok(FivePagesFloor { connection })
    }

    fn commit(&mut self, id: &str) -> Outcome<()> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        self.connection.prepare_cached("INSERT INTO row (payload) VALUES (?1)")?.execute([PAYLOAD])?;
        self.connection.prepare_cached("INSERT INTO second VALUES (?1)")?.execute([id])?;
        self.connection.prepare_cached("INSERT INTO third VALUES (NULL)")?.execute([])?;
        self.connection.prepare_cached("INSERT INTO fourth VALUES (NULL)")?.execute([])?;
        self.connection.prepare_cached("UPDATE fifth SET count = count + 1 WHERE number = 1")?.execute([])?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

/// Identities in no order, none of them twice.
struct Ids {
    prefix: String,
    number: u64,
}

impl Ids {
    fn new(prefix: &str) -> Ids {
        Ids { prefix: prefix.to_owned(), number: 0 }
    }

    fn next(&mut self) -> String {
        self.number += 1;
        // An odd factor is a permutation of the 64-bit numbers.
        format!("{:016x}-{}", self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15), self.prefix)
    }
}

fn request(request_id: &str) -> Request<'_> {
    Request { request_id, tenant: TENANT, payload: PAYLOAD }
}

fn admit(store: &mut Store, request_id: &str) -> Outcome<()> {
    accepted(store.admit(request(request_id))?)
}

fn accepted(answer: Admission) -> Outcome<()> {
    match answer {
        Admission::Accepted => Ok(()),
        other => Err(format!("a request was answered {other}; what was measured is no admission").into()),
    }
}

fn claim_and_resolve(store: &mut Store) -> Outcome<()> {
    let claim = store.claim(0)?.ok_or("nothing to claim")?;
    match store.resolve(&claim.token, 0)?.name() {
        "done" => Ok(()),
        other => Err(format!("a claim ended {other}").into()),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Another program with a share of the work, told what to do line by line; this one again, or a peer.
struct Process {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(path: &Path, count: usize, prefix: &str) -> Outcome<Process> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("--process").arg(path).args([&count.to_string(), prefix]);
        let mut process = Process::spawn(&mut command)?;
        process.hear("ready")?;
        Ok(process)
    }

    fn spawn(command: &mut Command) -> std::io::Result<Process> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().ok_or(ErrorKind::BrokenPipe)?);
        Ok(Process { child, said })
    }

    fn say(&mut self, word: &str) -> Outcome<()> {
        Ok(writeln!(self.child.stdin.as_mut().ok_or("a process without input")?, "{word}")?)
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line)
    }

    fn hear(&mut self, word: &str) -> Outcome<()> {
        match self.line()?.trim() {
            heard if heard == word => Ok(()),
            heard => Err(format!("a process said {heard:?}, not {word:?}; its error stands above").into()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn process_work(path: &Path, count: usize, prefix: &str) -> Outcome<()> {
    let mut store = Store::open(path, &LIMITS)?;
    println!("ready");
    if std::io::stdin().lines().next().is_none() {
        return Ok(());
    }
    let mut ids = Ids::new(prefix);
    for _ in 0..count {
        admit(&mut store, &ids.next())?;
    }
    println!("done");
    if prefix == "memory" {
        (0..count).try_for_each(|_| claim_and_resolve(&mut store))?;
        let status = fs::read_to_string("/proc/self/status")?;
        let peak =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc/self/status")?;
        println!("{}", peak.trim().trim_end_matches("kB").trim());
    }
    Ok(())
}

/// Seconds for each of so many.
fn each(count: usize, mut work: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let begun = Instant::now();
    for _ in 0..count {
        black_box(work()?);
    }
    Ok(begun.elapsed().as_secs_f64() / count as f64)
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn say(what: &str, seconds: &[f64]) {
    let each = median(seconds.iter().copied());
    println!(
        "  {what:<45} {:>9.0} /s  {:>9.1} µs each",
        1.0 / each,
        Duration::from_secs_f64(each).as_nanos() as f64 / 1e3
    );
}

/// The median of the rounds' own ratios: both halves of each had the same weather.
fn compare(what: &str, numerator: &[f64], denominator: &[f64]) {
    println!("  {:.2} × {what}", median(numerator.iter().zip(denominator).map(|(above, below)| above / below)));
}
