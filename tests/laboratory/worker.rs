//! A second process: the test binary started again, with one test as its whole work. It does one command
//! per line of its standard input, and answers each with one line. It ends when its input ends, so it
//! cannot outlive its parent.
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use durable_admission::{Error, Limits, OpenOptions, Request, Store, Token};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::limits;

const ROLE: &str = "DURABLE_ADMISSION_TEST_WORKER";
const DEADLINE: Duration = Duration::from_secs(60);
/// Sets answers apart from what the test runner prints.
const MARK: &str = "@answer ";

/// The parent's end of one worker. Dropping it kills and reaps the process.
pub struct Worker {
    process: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Worker {
    pub fn start() -> Worker {
        Worker::launch(Command::new(std::env::current_exe().unwrap()))
    }

    /// A worker to which a write past its file size limit is an error, not a signal.
    pub fn start_ignoring_file_size_signal() -> Worker {
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"trap "" XFSZ; exec "$@""#, "sh"]).arg(std::env::current_exe().unwrap());
        Worker::launch(shell)
    }

    fn launch(mut command: Command) -> Worker {
        let mut process = command
            .args(["--exact", "worker_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(answer) = line.strip_prefix(MARK)
                    && sender.send(answer.to_owned()).is_err()
                {
                    break;
                }
            }
        });
        let input = process.stdin.take();
        Worker { process, input, answers }
    }

    /// Starts a worker that has the store open.
    pub fn opened(path: &Path, limits: &Limits) -> Worker {
        let mut worker = Worker::start();
        assert_eq!(worker.ask(open(path, limits)), "opened");
        worker
    }

    pub fn tell(&mut self, command: Value) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    pub fn hear(&mut self) -> String {
        match self.answers.recv_timeout(DEADLINE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => panic!("a worker did not answer within {DEADLINE:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("a worker ended without an answer"),
        }
    }

    pub fn ask(&mut self, command: Value) -> String {
        self.tell(command);
        self.hear()
    }

    /// `kill -9`, and reaped.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Lets it close its store and end by itself.
    pub fn end(mut self) {
        self.input = None;
        let deadline = Instant::now() + DEADLINE;
        while self.answers.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok() {}
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn open(path: &Path, limits: &Limits) -> Value {
    let Limits { global, tenant, payload_bytes } = limits;
    json!(["open", path, global.count, global.bytes, tenant.count, tenant.bytes, payload_bytes])
}

pub fn admit(request_id: &str, tenant: &str, payload: &str) -> Value {
    json!(["admit", request_id, tenant, payload])
}

/// With the busy timeout that a store has by default.
pub fn open_by_default(path: &Path, limits: &Limits) -> Value {
    let mut command = open(path, limits);
    command[0] = json!("open_by_default");
    command
}

/// The worker's whole work. In an ordinary test run there is no role, and nothing happens.
pub fn serve() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let mut store = None;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let command: Vec<Value> = serde_json::from_str(&line).unwrap();
        let answer = obey(&mut store, &command).unwrap_or_else(|error| format!("error: {error:?}"));
        // The runner leaves its own line open.
        println!("\n{MARK}{}", answer.replace('\n', " "));
        std::io::stdout().flush().unwrap();
    }
}

fn obey(store: &mut Option<Store>, command: &[Value]) -> Result<String, Error> {
    let text = |place: usize| command[place].as_str().unwrap();
    let number = |place: usize| command[place].as_i64().unwrap();
    let amount = |place: usize| command[place].as_u64().unwrap();
    let token = || Token { request_id: text(1).to_owned(), generation: number(2) };
    if text(0) == "open" {
        let limits = limits((amount(2), amount(3)), (amount(4), amount(5)), amount(6));
        // Patient: many workers on few cores, and a busy answer here would be no finding.
        let options = OpenOptions { busy_timeout: Duration::from_secs(40) };
        *store = Some(Store::open_with(PathBuf::from(text(1)), &limits, options)?);
        return Ok("opened".to_owned());
    }
    if text(0) == "open_by_default" {
        let limits = limits((amount(2), amount(3)), (amount(4), amount(5)), amount(6));
        *store = Some(Store::open(text(1), &limits)?);
        return Ok("opened".to_owned());
    }
    if text(0) == "close" {
        store.take().unwrap().close()?;
        return Ok("closed".to_owned());
    }
    if text(0) == "enter" {
        std::env::set_current_dir(text(1)).unwrap();
        return Ok("entered".to_owned());
    }
    if text(0) == "limit_file_size" {
        let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
        setrlimit(Resource::RLIMIT_FSIZE, command[1].as_u64().unwrap_or(hard), hard).unwrap();
        return Ok("limited".to_owned());
    }
    let store = store.as_mut().unwrap();
    Ok(match text(0) {
        "admit" => {
            let request = Request { request_id: text(1), tenant: text(2), payload: text(3) };
            store.admit(request)?.to_string()
        }
        "claim" => match store.claim(number(1))? {
            Some(claim) => format!("{} {}", claim.token.request_id, claim.token.generation),
            None => "nothing".to_owned(),
        },
        "resolve" => store.resolve(&token(), number(3))?.to_string(),
        "quarantine" => store.quarantine(&token(), number(3))?.to_string(),
        "redrive" => store.redrive(&token())?.to_string(),
        "cancel" => store.cancel_unstarted(text(1))?.to_string(),
        "usage" => {
            let usage = store.usage()?;
            format!("{} {}", usage.count, usage.bytes)
        }
        "admit_many" => {
            for number in 0..amount(2) {
                let request_id = format!("{}-{number}", text(1));
                let _ = store.admit(Request { request_id: &request_id, tenant: "tenant", payload: "work" })?;
            }
            "admitted".to_owned()
        }
        // The whole life of `amount` tasks, by all six verbs.
        "churn" => {
            for round in 0..amount(2) {
                churn(store, &format!("{}-{round}", text(1)))?;
            }
            "churned".to_owned()
        }
        other => panic!("a worker knows no {other:?}"),
    })
}

/// Every writing verb once or more; other workers may claim what this one admits, and the reverse.
fn churn(store: &mut Store, name: &str) -> Result<(), Error> {
    let cancelled = format!("{name}-cancelled");
    let _ = store.admit(Request { request_id: &cancelled, tenant: "tenant", payload: "" })?;
    let _ = store.cancel_unstarted(&cancelled)?;
    let _ = store.admit(Request { request_id: name, tenant: "tenant", payload: "work" })?;
    if let Some(claim) = store.claim(0)? {
        let _ = store.quarantine(&claim.token, 0)?;
        let _ = store.redrive(&claim.token)?;
    }
    if let Some(claim) = store.claim(0)? {
        let _ = store.resolve(&claim.token, 0)?;
    }
    Ok(())
}
