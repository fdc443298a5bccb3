//! How long `--check` takes against its floor: the time that the same number of process starts and `fdatasync` calls
//! takes on the same disk. `scripts/floor` builds what this needs and runs it.
//!
//! The calls are counted by strace, in one run that is not timed. Then `--check` and the floor take turns, so that
//! whatever else the machine does meets both; medians are compared.
use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 31;

/// What one commit appends to a WAL at the least: a page and its frame header.
const FRAME_BYTES: usize = 4096 + 24;

/// The least that the program can be started for; with it, it opens no store.
const START_ONLY: &str = "--version";

/// The least that can be started at all.
const LEAST_PROGRAM: &str = "true";

/// Neither pass nor fail, as in the harness.
const NOT_MEASURED: u8 = 3;

fn main() -> ExitCode {
    match measure() {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(sentence) => {
            eprintln!("error: {sentence}");
            NOT_MEASURED.into()
        }
    }
}

fn measure() -> Result<String, String> {
    let own = env::current_exe().map_err(|error| format!("this program does not find itself ({error})"))?;
    let program = own.parent().and_then(Path::parent).unwrap_or(Path::new("")).join("durable-admission");
    if !program.is_file() {
        return Err(format!("{} is not there; run scripts/floor, which builds it", program.display()));
    }
    let calls = Calls::of(&program)?;
    let (mut checks, mut floors, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        checks.push(timed(|| succeed(Command::new(&program).arg("--check")))?);
        floors.push(timed(|| calls.repeat(Command::new(&program).arg(START_ONLY)))?);
        bare.push(timed(|| calls.repeat(&mut Command::new(LEAST_PROGRAM)))?);
    }
    let (check, floor, bare) = (median(checks), median(floors), median(bare));
    let line = |of: &str, floor: Duration| {
        let ratio = check.as_secs_f64() / floor.as_secs_f64();
        format!("{ratio:.2} times {:.1} ms, with starts of {of}", milliseconds(floor))
    };
    Ok(format!(
        "--check takes {:.1} ms, against {} process starts and {} syncs (medians of {ROUNDS} rounds in turn):\n{}\n{}",
        milliseconds(check),
        calls.starts,
        calls.syncs,
        line("this program", floor),
        line(LEAST_PROGRAM, bare)
    ))
}

/// What `--check` has to wait for the system for.
struct Calls {
    starts: usize,
    syncs: usize,
}

impl Calls {
    fn of(program: &Path) -> Result<Calls, String> {
        let log = Scratch::new("strace");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "trace=execve,fsync,fdatasync", "-e", "signal=none", "-o"]);
        succeed(strace.arg(&log.0).arg(program).arg("--check"))?;
        let log = fs::read_to_string(&log.0).map_err(|error| format!("what strace wrote can't be read ({error})"))?;
        // A call that another one interrupts has a second line, "<... fsync resumed>", without the parenthesis.
        let count = |call: &str| log.lines().filter(|line| line.contains(call) && !line.contains(" = -1 ")).count();
        let calls = Calls { starts: count(" execve("), syncs: count(" fsync(") + count(" fdatasync(") };
        if calls.starts == 0 || calls.syncs == 0 {
            return Err("strace saw no process start or no sync; look at what `strace -f` says of --check".to_owned());
        }
        Ok(calls)
    }

    /// Nothing but these calls, one after the other.
    fn repeat(&self, start: &mut Command) -> Result<(), String> {
        for _ in 0..self.starts {
            succeed(start)?;
        }
        let scratch = Scratch::new("syncs");
        let append_and_sync = || {
            let mut file = File::create(&scratch.0)?;
            for _ in 0..self.syncs {
                file.write_all(&[0x5a; FRAME_BYTES])?;
                file.sync_data()?;
            }
            Ok(())
        };
        append_and_sync().map_err(|error: std::io::Error| {
            format!("{} can't be written ({error}); make room and run again", scratch.0.display())
        })
    }
}

/// A file where `--check` has its databases, too; removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(what: &str) -> Scratch {
        Scratch(env::temp_dir().join(format!("durable-admission-floor-{}-{what}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} ended with {status}; run it by itself to see why")),
        Err(error) => Err(format!("{program} can't be started ({error}); install it and run again")),
    }
}

fn timed(work: impl FnOnce() -> Result<(), String>) -> Result<Duration, String> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
