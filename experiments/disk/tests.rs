//! A plain workload on SQLite itself: two tables and an index, WAL, one transaction a request. Row `n` is in both tables
//! or in none; request `n` is acknowledged once its COMMIT has returned.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use super::image::{Coverage, Disk, Enumeration, Rule, enumerate};
use super::log::{ByRole, Creation, DirectorySync, Entry, Inode, Log, Role, SyncPurpose};
use super::plan::{Call, Fault, Plan, Side, Span};
use super::recorder::{PLANNED_DEATH, Recorder};
use super::vfs;
use super::wrong::WrongDisk;

#[derive(Clone, Copy)]
enum Connections {
    Kept,
    OnePerRequest,
}

const REQUESTS: u64 = 6;

fn open(path: &Path, synchronous: &str) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.busy_timeout(Duration::from_millis(100))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", synchronous)?;
    // Small, so that a checkpoint and a WAL restart fall into the run.
    db.pragma_update(None, "wal_autocheckpoint", 12)?;
    Ok(db)
}

fn init(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(
        "BEGIN IMMEDIATE;
         CREATE TABLE IF NOT EXISTS a (n INTEGER PRIMARY KEY, text TEXT UNIQUE);
         CREATE TABLE IF NOT EXISTS b (n INTEGER PRIMARY KEY, text TEXT);
         COMMIT",
    )
}

fn insert(db: &Connection, n: u64) -> rusqlite::Result<()> {
    db.execute_batch(&format!(
        "BEGIN IMMEDIATE; INSERT INTO a VALUES ({n}, 'row {n}'); INSERT INTO b VALUES ({n}, 'row {n}'); COMMIT"
    ))
}

/// Request 0 creates the tables, the others insert a row each.
fn run(path: &Path, synchronous: &str, connections: Connections, recorder: &Arc<Recorder>) {
    let _recording = vfs::record(recorder);
    let mut kept = None;
    for n in 0..=REQUESTS {
        recorder.called(n);
        let db = kept.take().unwrap_or_else(|| open(path, synchronous).expect("opens"));
        if n == 0 {
            init(&db).expect("creates");
        } else {
            insert(&db, n).expect("inserts");
        }
        recorder.acknowledged(n, "done");
        match connections {
            Connections::Kept => kept = Some(db),
            Connections::OnePerRequest => drop(db),
        }
    }
}

fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).expect("a folder")
    } else {
        tempfile::tempdir().expect("a folder")
    }
}

fn recorded(synchronous: &str, connections: Connections) -> Log {
    let _shim = vfs::register().expect("registers");
    let folder = folder();
    let path = folder.path().join("x.db");
    let recorder = Recorder::new(&path, Plan::NOTHING).expect("records");
    run(&path, synchronous, connections, &recorder);
    assert_eq!(recorder.open_files(), 0);
    recorder.log()
}

/// Rows in both tables; an error where they differ or the database is not sound.
fn recovered(folder: &Path, disk: &Disk) -> Result<u64, String> {
    disk.lay_out(folder, "x.db").expect("lays out");
    let db = Connection::open(folder.join("x.db")).map_err(|error| error.to_string())?;
    let read = |sql: &str| db.query_row(sql, [], |row| row.get::<_, String>(0));
    match read("PRAGMA integrity_check") {
        Ok(verdict) if verdict == "ok" => {}
        Ok(verdict) => return Err(verdict),
        Err(error) => return Err(error.to_string()),
    }
    if read("SELECT count(*)||'' FROM sqlite_schema").is_ok_and(|tables| tables == "0") {
        return Ok(0);
    }
    let rows = read(
        "SELECT coalesce((SELECT group_concat(n) FROM (SELECT n FROM a ORDER BY n)), '') || '|' ||
                coalesce((SELECT group_concat(n) FROM (SELECT n FROM b ORDER BY n)), '')",
    )
    .map_err(|error| error.to_string())?;
    let (a, b) = rows.split_once('|').expect("two lists");
    let count = a.split(',').filter(|n| !n.is_empty()).count() as u64;
    let expected: Vec<_> = (1..=count).map(|n| n.to_string()).collect();
    if a != b || a != expected.join(",") {
        return Err(format!("no prefix: {rows}"));
    }
    // Request 0 made the tables.
    Ok(count + 1)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Verdicts {
    kept: usize,
    lost: usize,
    broken: usize,
}

fn judge(log: &Log, found: &Enumeration) -> Verdicts {
    let folder = folder();
    let mut verdicts = Verdicts::default();
    for image in &found.images {
        let called = count(&log.entries[..image.earliest_cut], |entry| matches!(entry, Entry::Called { .. }));
        let acknowledged = count(&log.entries[..image.latest_cut], |entry| matches!(entry, Entry::Acknowledged { .. }));
        match recovered(folder.path(), &found.disk(image)) {
            Ok(done) if done > called => panic!("{:#?}", found.describe(image)),
            Ok(done) if done < acknowledged => verdicts.lost += 1,
            Ok(_) => verdicts.kept += 1,
            Err(_) => verdicts.broken += 1,
        }
    }
    verdicts
}

fn count(entries: &[Entry], wanted: impl Fn(&Entry) -> bool) -> u64 {
    entries.iter().filter(|entry| wanted(entry)).count() as u64
}

/// The rule for a debug build: the same kinds of states, fewer of them.
const COARSE: Rule = Rule { full_product: 64, subsets_up_to: 6, random_subsets: 8, damages: 40, storms: 8, seed: 73 };

fn io_lines(log: &Log) -> Vec<String> {
    let io = log.entries.iter().filter(|entry| match entry {
        Entry::Open { .. }
        | Entry::Write { .. }
        | Entry::Truncate { .. }
        | Entry::Sync { .. }
        | Entry::Delete { .. }
        | Entry::Fault { .. } => true,
        Entry::SharedMemory { .. } | Entry::Called { .. } | Entry::Acknowledged { .. } => false,
    });
    io.map(Entry::to_string).collect()
}

fn lines_of_request(log: &Log, request: u64) -> Vec<String> {
    let from = log
        .entries
        .iter()
        .position(|entry| matches!(entry, Entry::Called { request: n } if *n == request))
        .expect("was called");
    let len = log.entries[from..]
        .iter()
        .position(|entry| matches!(entry, Entry::Acknowledged { .. }))
        .expect("was acknowledged");
    io_lines(&Log { initial: ByRole::default(), entries: log.entries[from..from + len].to_vec() })
}

/// The order that `strace -e openat,pwrite64,ftruncate,fdatasync,unlink` shows of the same statements, reads and locks
/// left out: `fdatasync` of a new WAL or journal is followed by one of the directory, folded into one line here.
#[test]
fn a_new_file_is_made_by_journal_then_wal() {
    assert_eq!(
        lines_of_request(&recorded("FULL", Connections::Kept), 0),
        [
            "open database#1 created",
            "open journal#1 created",
            "write journal#1 0+512",
            "sync journal#1 rollback directory",
            "write journal#1 0+12",
            "sync journal#1 rollback",
            "write database#1 0+4096",
            "sync database#1 rollback",
            "delete journal#1",
            "open wal#1 created",
            "write wal#1 0+32",
            "sync wal#1 header directory",
            "write wal#1 32+24",
            "write wal#1 56+4096",
            "write wal#1 4152+24",
            "write wal#1 4176+4096",
            "write wal#1 8272+24",
            "write wal#1 8296+4096",
            "write wal#1 12392+24",
            "write wal#1 12416+4096",
            "sync wal#1 commit",
        ]
    );
}

#[test]
fn a_full_commit_is_frames_then_one_sync() {
    assert_eq!(
        lines_of_request(&recorded("FULL", Connections::Kept), 1),
        [
            "write wal#1 16512+24",
            "write wal#1 16536+4096",
            "write wal#1 20632+24",
            "write wal#1 20656+4096",
            "write wal#1 24752+24",
            "write wal#1 24776+4096",
            "sync wal#1 commit",
        ]
    );
}

#[test]
fn a_checkpoint_syncs_the_wal_then_the_database_then_restarts_the_wal() {
    let log = recorded("FULL", Connections::Kept);
    let checkpointed = lines_of_request(&log, 3);
    assert_eq!(
        checkpointed[6..],
        [
            "sync wal#1 commit",
            "sync wal#1 before-checkpoint",
            "write database#1 0+4096",
            "write database#1 4096+4096",
            "write database#1 8192+4096",
            "write database#1 12288+4096",
            "truncate database#1 16384",
            "sync database#1 checkpoint",
        ]
    );
    assert_eq!(lines_of_request(&log, 4)[..2], ["write wal#1 0+32", "sync wal#1 header"]);
}

#[test]
fn a_replayed_log_is_the_files_byte_for_byte() {
    let _shim = vfs::register().expect("registers");
    for connections in [Connections::Kept, Connections::OnePerRequest] {
        let folder = folder();
        let path = folder.path().join("x.db");
        let recorder = Recorder::new(&path, Plan::NOTHING).expect("records");
        run(&path, "FULL", connections, &recorder);
        // Nothing is open any more, so the files may be read. A second run starts from what the first left.
        assert_eq!(recorder.log().files_at(usize::MAX), on_disk(&path));
        let recorder = Recorder::new(&path, Plan::NOTHING).expect("records");
        {
            let _recording = vfs::record(&recorder);
            let db = open(&path, "FULL").expect("opens");
            insert(&db, REQUESTS + 1).expect("inserts");
        }
        assert_eq!(recorder.log().files_at(usize::MAX), on_disk(&path));
        assert_ne!(recorder.log().files_at(usize::MAX), recorder.log().files_at(0));
    }
}

fn on_disk(path: &Path) -> super::log::Files {
    ByRole::from_fn(|role| std::fs::read(super::recorder::beside(path, role)).ok())
}

/// In a process of its own: SQLite's random numbers are shared by all threads of one.
#[test]
fn two_runs_write_the_same_bytes() {
    let output = this_test_binary("child_that_prints_a_digest_of_two_runs", "").output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("the same: true"), "{text}");
}

#[test]
#[ignore = "the child of two_runs_write_the_same_bytes"]
fn child_that_prints_a_digest_of_two_runs() {
    for connections in [Connections::Kept, Connections::OnePerRequest] {
        let (one, two) = (recorded("FULL", connections), recorded("FULL", connections));
        assert!(!one.entries.is_empty());
        assert_eq!(one, two);
    }
    println!("the same: true");
}

fn this_test_binary(test: &str, argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("has a path"));
    command
        .args(["--exact", &format!("disk::tests::{test}")])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .env("DISK_TEST_ARGUMENT", argument);
    command
}

#[test]
fn calls_are_the_same_whatever_other_threads_do() {
    let _shim = vfs::register().expect("registers");
    let logs = std::thread::scope(|scope| {
        let runs = [(); 4].map(|()| scope.spawn(|| recorded("FULL", Connections::OnePerRequest)));
        runs.map(|run| io_lines(&run.join().expect("ends")))
    });
    assert!(logs.iter().all(|log| *log == logs[0]));
}

#[test]
fn a_thread_without_a_recorder_has_the_plain_disk() {
    let _shim = vfs::register().expect("registers");
    let folder = folder();
    let (ours, other) = (folder.path().join("x.db"), folder.path().join("other.db"));
    let recorder = Recorder::new(&ours, Plan::NOTHING).expect("records");
    insert_one(&ours);
    let recording = vfs::record(&recorder);
    insert_one(&other);
    assert_eq!(recorder.log().entries, []);
    insert_one(&ours);
    assert_ne!(recorder.log().entries, []);
    drop(recording);
    let recorded = recorder.log();
    insert_one(&ours);
    assert_eq!(recorder.log(), recorded);
}

fn insert_one(path: &Path) {
    let db = open(path, "FULL").expect("opens");
    init(&db).expect("creates");
    let n = db.query_row("SELECT count(*) + 1 FROM a", [], |row| row.get::<_, i64>(0)).expect("counts");
    insert(&db, n as u64).expect("inserts");
}

#[test]
fn a_synced_end_is_one_disk() {
    let mut log = recorded("FULL", Connections::Kept);
    // Without what the close does: up to the sync of the last COMMIT.
    let last = log
        .entries
        .iter()
        .rposition(|entry| matches!(entry, Entry::Sync { purpose, .. } if *purpose == SyncPurpose::Commit));
    log.entries.truncate(last.expect("committed") + 1);
    log.entries.retain(|entry| !matches!(entry, Entry::SharedMemory { .. }));
    let found = enumerate(&log, &COARSE);
    let end = found.windows.len() as u32 - 1;
    let window = &found.windows[end as usize];
    assert_eq!(window.coverage, Coverage::Exhaustive);
    assert_eq!(window.first_cut, log.entries.len());
    let with_files: Vec<_> = found.images.iter().filter(|image| image.id.window == end).collect();
    // One more by garbage in shared memory.
    assert!(with_files.len() <= 2, "{}", with_files.len());
    let whole = found.images.iter().map(|image| found.disk(image));
    let whole = whole.filter(|disk| disk.files == log.files_at(usize::MAX));
    assert!(whole.count() >= 1);
}

#[test]
fn full_loses_nothing_acknowledged() {
    for connections in [Connections::Kept, Connections::OnePerRequest] {
        let log = recorded("FULL", connections);
        let found = enumerate(&log, &COARSE);
        let verdicts = judge(&log, &found);
        assert_eq!((verdicts.lost, verdicts.broken), (0, 0), "{verdicts:?}");
        assert_eq!(verdicts.kept as u64, found.counts.distinct);
    }
}

#[test]
fn normal_loses_acknowledged_rows_and_breaks_nothing() {
    let log = recorded("NORMAL", Connections::Kept);
    let verdicts = judge(&log, &enumerate(&log, &COARSE));
    assert!(verdicts.lost > 0, "{verdicts:?}");
    assert_eq!(verdicts.broken, 0, "{verdicts:?}");
}

#[test]
fn normal_is_full_without_the_commit_sync_and_off_is_no_sync() {
    let full = recorded("FULL", Connections::Kept);
    for (synchronous, disk) in [("NORMAL", WrongDisk::CommitSyncDropped), ("OFF", WrongDisk::SyncsDoNothing)] {
        let set = recorded(synchronous, Connections::Kept);
        // The connection starts with FULL, so what comes before the WAL is FULL's.
        let in_wal = |log: &Log| {
            let lines = io_lines(log);
            let wal = lines.iter().position(|line| line.contains("wal")).expect("a WAL");
            lines[wal..].to_vec()
        };
        assert_eq!(in_wal(&set), in_wal(&full.on(disk)));
    }
}

#[test]
fn wrong_disks_are_convicted() {
    for (disk, synchronous, connections, losing) in [
        (WrongDisk::SyncsDoNothing, "FULL", Connections::Kept, true),
        (WrongDisk::CommitSyncDropped, "FULL", Connections::Kept, true),
        (WrongDisk::DirectorySyncDropped, "FULL", Connections::Kept, true),
        (WrongDisk::CheckpointSyncDropped, "FULL", Connections::Kept, true),
        (WrongDisk::WalSyncBeforeCheckpointDropped, "NORMAL", Connections::Kept, true),
        // The commit's sync has done it: a redundant sync, and no tooth.
        (WrongDisk::WalSyncBeforeCheckpointDropped, "FULL", Connections::Kept, false),
    ] {
        let log = recorded(synchronous, connections).on(disk);
        let verdicts = judge(&log, &enumerate(&log, &COARSE));
        println!("{} {synchronous}: {verdicts:?}", disk.name());
        assert_eq!(verdicts.lost + verdicts.broken > 0, losing, "{disk:?} {verdicts:?}");
    }
}

/// By hand: a file of three synced sectors, a write over the last two and one beyond, then a truncation.
#[test]
fn the_model_is_what_it_says() {
    let inode = Inode { role: Role::Database, birth: 0 };
    let mut log = Log {
        initial: ByRole::default(),
        entries: vec![Entry::Write { inode, offset: 1024, data: vec![7; 1024].into() }],
    };
    log.initial[Role::Database] = Some(vec![1; 1536]);
    let files = |log: &Log| {
        let found = enumerate(log, &Rule::default());
        assert_eq!(found.counts.exhaustive, found.counts.windows);
        let files = found.images.iter().filter(|image| found.disk(image).shared_memory.is_none());
        let mut files: Vec<_> = files
            .map(|image| found.disk(image).files[Role::Database].clone().expect("is there"))
            .map(|bytes| (bytes.len(), bytes.chunks(512).map(sign).collect::<String>()))
            .collect();
        files.sort();
        files
    };
    let mut states: Vec<_> = files(&log).into_iter().map(|(_, signs)| signs).collect();
    states.sort();
    assert_eq!(
        states,
        ["1100", "111", "1117", "117", "1170", "1177", "117g", "11gg"],
        "zeros, lost, tail, head, head then zeros, whole, a patchwork, garbage"
    );
    log.entries.push(Entry::Truncate { inode, len: 512 });
    assert_eq!(files(&log).len(), 9, "the same and the truncated one");
    log.entries.push(Entry::Sync {
        inode,
        flags: 2,
        purpose: SyncPurpose::Checkpoint,
        directory: DirectorySync::NotSynced,
    });
    let found = enumerate(&log, &Rule::default());
    let last = found.images.iter().filter(|image| image.latest_cut == log.entries.len());
    for image in last {
        assert_eq!(found.disk(image).files[Role::Database], Some(vec![1; 512]));
    }
}

fn sign(sector: &[u8]) -> char {
    match sector {
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => {
            char::from_digit(u32::from(*first), 10).unwrap_or('g')
        }
        _ => 'g',
    }
}

#[test]
fn names_are_durable_only_with_their_directory() {
    let old = Inode { role: Role::Wal, birth: 0 };
    let new = Inode { role: Role::Wal, birth: 1 };
    let sync = |directory| Entry::Sync { inode: new, flags: 2, purpose: SyncPurpose::WalHeader, directory };
    let mut log = Log {
        initial: ByRole::default(),
        entries: vec![
            Entry::Delete { inode: old, directory: DirectorySync::NotSynced },
            Entry::Open { inode: new, creation: Creation::Created },
            sync(DirectorySync::NotSynced),
        ],
    };
    log.initial[Role::Wal] = Some(vec![1]);
    let wals = |log: &Log| {
        let found = enumerate(log, &Rule::default());
        let images = found.images.iter().filter(|image| image.latest_cut == log.entries.len());
        let mut wals: Vec<_> = images.map(|image| found.disk(image)).collect();
        wals.retain(|disk| disk.shared_memory.is_none());
        wals.iter().map(|disk| disk.files[Role::Wal].clone()).collect::<Vec<_>>()
    };
    assert_eq!(wals(&log), [Some(vec![1]), None, Some(vec![])]);
    log.entries.push(sync(DirectorySync::Synced));
    assert_eq!(wals(&log), [Some(vec![])]);
}

/// The digest is kept up to date sector by sector; the bytes are the judge of it.
#[test]
fn images_differ_in_their_bytes() {
    let log = recorded("FULL", Connections::OnePerRequest);
    let found = enumerate(&log, &COARSE);
    let mut seen = std::collections::HashSet::new();
    for image in &found.images {
        let disk = found.disk(image);
        let files = Role::ALL.map(|role| disk.files[role].clone());
        assert!(seen.insert((files, disk.shared_memory)), "{}", image.id);
    }
    assert!(found.counts.tried > found.counts.distinct);
}

#[test]
fn an_image_is_found_again_by_its_name() {
    let log = recorded("FULL", Connections::Kept);
    let (one, two) = (enumerate(&log, &COARSE), enumerate(&log, &COARSE));
    assert_eq!(one.counts, two.counts);
    for image in one.images.iter().step_by(37) {
        let again = two.find(image.id.to_string().parse().expect("parses")).expect("is there");
        assert_eq!(one.disk(image), two.disk(again));
        assert_eq!(one.describe(image), two.describe(again));
    }
    assert!("12".parse::<super::image::ImageId>().is_err());
}

/// Each changing call, before and after: the next process finds all of a request or nothing of it.
#[test]
fn a_halt_at_any_call_leaves_all_or_nothing() {
    let _shim = vfs::register().expect("registers");
    let points = {
        let folder = folder();
        let path = folder.path().join("x.db");
        let recorder = Recorder::new(&path, Plan::NOTHING).expect("records");
        run(&path, "FULL", Connections::OnePerRequest, &recorder);
        recorder.total(Call::CHANGING)
    };
    assert!(points > 50, "{points}");
    let looked_at = folder();
    for side in [Side::Before, Side::After] {
        for at in 1..=points {
            let folder = folder();
            let path = folder.path().join("x.db");
            let recorder = Recorder::new(&path, Plan::halt(side, at)).expect("records");
            let _recording = vfs::record(&recorder);
            for n in 0..=REQUESTS {
                recorder.called(n);
                let done = open(&path, "FULL").and_then(|db| if n == 0 { init(&db) } else { insert(&db, n) });
                if done.is_err() {
                    break;
                }
                recorder.acknowledged(n, "done");
            }
            let struck = recorder.struck().expect("came that far");
            assert_eq!(struck.n, at);
            let log = recorder.log();
            let acknowledged = count(&log.entries, |entry| matches!(entry, Entry::Acknowledged { .. }));
            let called = count(&log.entries, |entry| matches!(entry, Entry::Called { .. }));
            let disk = Disk { files: log.files_at(usize::MAX), shared_memory: None };
            let done = recovered(looked_at.path(), &disk).expect("is sound");
            assert!((acknowledged..=called).contains(&done), "{side:?} {struck}: {done}");
        }
    }
}

#[test]
fn a_planned_death_is_announced_and_exits_with_73() {
    for (side, at) in [("before", 1), ("after", 1), ("before", 20), ("after", 20)] {
        let output = this_test_binary("child_that_dies", &format!("{side} {at}")).output().expect("runs");
        assert_eq!(output.status.code(), Some(PLANNED_DEATH));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let call = if at == 1 { "write of journal" } else { "write of wal" };
        assert!(text.contains(&format!("dies at {at} {call}")), "{text}");
    }
}

#[test]
#[ignore = "the child of a_planned_death_is_announced_and_exits_with_73"]
fn child_that_dies() {
    use std::io::Write as _;
    let argument = std::env::var("DISK_TEST_ARGUMENT").expect("has an argument");
    let (side, at) = argument.split_once(' ').expect("has two words");
    let side = if side == "before" { Side::Before } else { Side::After };
    let _shim = vfs::register().expect("registers");
    let folder = std::env::temp_dir().join(format!("disk-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let path = folder.join("x.db");
    let recorder = Recorder::new(&path, Plan::die(side, at.parse().expect("a number")));
    let recorder = recorder.expect("records");
    recorder.announce_death(Box::new(move |point| {
        println!("dies at {point}");
        std::io::stdout().flush().expect("flushes");
        std::fs::remove_dir_all(&folder).expect("cleans up");
    }));
    run(&path, "FULL", Connections::Kept, &recorder);
}

#[test]
fn each_fault_is_an_error_of_its_own_and_strikes_where_it_was_told() {
    let _shim = vfs::register().expect("registers");
    for (fault, call, expected) in [
        (Fault::InputOutput, Call::Read, ErrorCode::SystemIoFailure),
        (Fault::InputOutput, Call::Write, ErrorCode::SystemIoFailure),
        (Fault::InputOutput, Call::Sync, ErrorCode::SystemIoFailure),
        (Fault::DiskFull, Call::Write, ErrorCode::DiskFull),
        (Fault::ShortWriteError, Call::Write, ErrorCode::SystemIoFailure),
        (Fault::ShortWriteFull, Call::Write, ErrorCode::DiskFull),
        (Fault::CannotOpen, Call::Open, ErrorCode::CannotOpen),
        (Fault::LockBusy, Call::Lock, ErrorCode::DatabaseBusy),
        (Fault::LockFailed, Call::Lock, ErrorCode::SystemIoFailure),
        (Fault::SharedMemoryMap, Call::SharedMemoryMap, ErrorCode::SystemIoFailure),
        (Fault::SharedMemoryOpen, Call::SharedMemoryMap, ErrorCode::SystemIoFailure),
    ] {
        let folder = folder();
        let path = folder.path().join("x.db");
        insert_one(&path);
        let plan = Plan::fault(fault, Span::FromThenOn, 1).only(call);
        let recorder = Recorder::new(&path, plan).expect("records");
        let recording = vfs::record(&recorder);
        let error = open(&path, "FULL").and_then(|db| insert(&db, 2)).expect_err("is told");
        drop(recording);
        assert_eq!(error.sqlite_error_code(), Some(expected), "{fault:?} at {call:?}: {error}");
        assert_eq!(recorder.struck().map(|point| (point.n, point.call)), Some((1, call)));
        assert_eq!(recorder.open_files(), 0);
        // The disk is well again, and nothing but this row was at stake.
        let db = open(&path, "FULL").expect("opens");
        insert(&db, 3).expect("inserts");
    }
}

#[test]
fn a_short_write_leaves_half_on_disk() {
    let _shim = vfs::register().expect("registers");
    let folder = folder();
    let path = folder.path().join("x.db");
    insert_one(&path);
    let plan = Plan::fault(Fault::ShortWriteError, Span::Once, 3);
    let recorder = Recorder::new(&path, plan).expect("records");
    let _recording = vfs::record(&recorder);
    let db = open(&path, "FULL").expect("opens");
    insert(&db, 2).expect_err("is told");
    let lines = io_lines(&recorder.log());
    assert!(lines.contains(&"write wal#1 56+2048".to_owned()), "{lines:#?}");
    insert(&db, 2).expect("the same connection goes on");
    drop(db);
    assert_eq!(recorder.log().files_at(usize::MAX), on_disk(&path));
}

#[test]
fn nothing_reaches_the_disk_after_a_halt() {
    let folder = folder();
    let recorder = Recorder::new(&folder.path().join("x.db"), Plan::NOTHING).expect("records");
    let handle = recorder.open(Role::Database, 0, || 0).expect("opens");
    let mut written = 0;
    let mut write = || {
        recorder.write(handle, 0, b"bytes", |part| {
            written += part.len();
            0
        })
    };
    assert_eq!(write(), 0);
    recorder.halt();
    assert_ne!(write(), 0);
    recorder.called(1);
    assert_ne!(recorder.delete(Role::Database, DirectorySync::NotSynced, |_| unreachable!()), 0);
    assert_ne!(recorder.sync(handle, 2, || unreachable!()), 0);
    assert_ne!(recorder.truncate(handle, 0, || unreachable!()), 0);
    assert_eq!(written, 5);
    assert_eq!(io_lines(&recorder.log()), recorder.log().lines());
    assert_eq!(recorder.log().entries.len(), 2);
}

/// C1 of the list of faults: the sync of a COMMIT fails, and the transaction is there all the same.
#[test]
fn a_failed_commit_may_be_there_afterwards() {
    let _shim = vfs::register().expect("registers");
    let folder = folder();
    let path = folder.path().join("x.db");
    insert_one(&path);
    // The first sync is of the WAL's header, the second of the frames.
    let plan = Plan::fault(Fault::InputOutput, Span::FromThenOn, 2).only(Call::Sync);
    let recorder = Recorder::new(&path, plan).expect("records");
    let _recording = vfs::record(&recorder);
    let db = open(&path, "FULL").expect("opens");
    insert(&db, 2).expect_err("is told");
    // Dies without closing.
    recorder.halt();
    drop(db);
    let disk = Disk { files: recorder.log().files_at(usize::MAX), shared_memory: None };
    assert_eq!(recovered(self::folder().path(), &disk), Ok(3));
}
