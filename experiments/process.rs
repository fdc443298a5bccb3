//! Child processes of the harness, and the line protocol between parent and child.
//!
//! Children are started by exec, take their whole configuration from argv, hear lines on standard input and say lines on
//! standard output. The parent reads all pipes of all its children in one `poll` loop: no pipe can fill up unread, no
//! thread is needed per child, and every wait ends at the deadline that the caller gave. Whatever goes otherwise than planned is
//! [`NotMeasured`], which is neither a pass nor a fail.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio, exit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::signal::{self, OnInterrupt};

/// The exit code of a planned death: exactly this one, nothing else that is not 0.
pub const PLANNED_EXIT_CODE: i32 = 73;
/// The exit code of a child whose parent is gone or no longer listens.
pub const ABANDONED_EXIT_CODE: i32 = 74;
/// What a child of a [`Race`] says when it could start at once.
pub const READY: &str = "ready";
/// What a child of a [`Race`] waits for.
pub const GO: &str = "go";

const ANNOUNCEMENT: &str = "dying at ";
/// How much of a child's standard error is kept, from its end, in bytes.
const STDERR_KEPT: usize = 4096;
/// How much standard output may lie unread, in bytes, before we take the child to be out of its mind.
const UNREAD_LIMIT: usize = 8 << 20;
/// A descendant that holds the pipes hides the child's end from `poll`; this often we ask for it ourselves.
const EXIT_CHECK: Duration = Duration::from_millis(20);

/// Could not measure: the harness, the machine or a child did otherwise than planned, so nothing is known.
#[derive(Debug, thiserror::Error)]
#[error("could not measure: {what}")]
pub struct NotMeasured {
    /// A sentence or two: what happened, where, and what to do.
    pub what: String,
}

/// What to start: a program, what we call it in sentences, and its arguments.
#[derive(Debug, Clone)]
pub struct Start {
    label: String,
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Start {
    /// The harness's own executable, so that parent and child can't be of two versions.
    pub fn own(
        label: impl Into<String>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Result<Start, NotMeasured> {
        let program = std::env::current_exe().map_err(|error| NotMeasured {
            what: format!(
                "the path of this executable can't be found ({error}); run it from a mounted path, with /proc"
            ),
        })?;
        Ok(Start::program(label, program, arguments))
    }

    pub fn program(
        label: impl Into<String>,
        program: impl AsRef<Path>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Start {
        Start {
            label: label.into(),
            program: program.as_ref().to_owned(),
            arguments: arguments.into_iter().map(Into::into).collect(),
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "death by {signal}"),
                Err(_) => write!(f, "death by signal {number}"),
            },
        }
    }
}

/// What is left of a child after its end.
#[derive(Debug)]
pub struct Ended {
    pub exit: Exit,
    /// The lines of its standard output that nobody had taken yet.
    pub lines: Vec<String>,
    /// What followed the last line end: a line torn by its death, so not said.
    pub unfinished: String,
    /// Its standard error; where it was long, its end and how much is left out.
    pub stderr: String,
}

/// A child process. Dropping it kills and reaps it.
///
/// On Linux a child dies with the *thread* that started it, once it has called [`child_started`]: the thread has to outlive it.
pub struct Child {
    label: String,
    process: Arc<Mutex<std::process::Child>>,
    exit: Option<Exit>,
    stdin: Option<ChildStdin>,
    to_say: VecDeque<u8>,
    stdout: Option<ChildStdout>,
    heard: Heard,
    stderr: Option<ChildStderr>,
    complaint: Complaint,
    _undo: OnInterrupt,
}

impl Child {
    pub fn spawn(start: &Start) -> Result<Child, NotMeasured> {
        Child::try_spawn(start).map_err(|error| {
            not_measured(format!(
                "child `{}` can't be started from {} ({error}); see that the program is there, was not rebuilt meanwhile, may be \
                 executed, and that processes and open files are not at their limit (ulimit -u, ulimit -n), then run again",
                start.label,
                start.program.display()
            ))
        })
    }

    fn try_spawn(start: &Start) -> io::Result<Child> {
        let mut command = Command::new(&start.program);
        command.args(&start.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Its own group, so that a terminal's Ctrl-C reaches us alone and the children end when we say so.
        command.process_group(0);
        let mut hold = signal::hold();
        let mut process = command.spawn()?;
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let process = Arc::new(Mutex::new(process));
        let shared = process.clone();
        let undo = hold.on_interrupt(move || kill_and_reap(&shared));
        drop(hold);
        let child = Child {
            label: start.label.clone(),
            process,
            exit: None,
            stdin,
            to_say: VecDeque::new(),
            stdout,
            heard: Heard::default(),
            stderr,
            complaint: Complaint::default(),
            _undo: undo,
        };
        child.stdin.as_ref().map_or(Ok(()), unblock)?;
        child.stdout.as_ref().map_or(Ok(()), unblock)?;
        child.stderr.as_ref().map_or(Ok(()), unblock)?;
        Ok(child)
    }

    /// For looking at it. To signal it by this number would be to signal whoever has it by then.
    #[cfg(test)]
    pub fn pid(&self) -> u32 {
        self.locked().id()
    }

    pub fn label(&self) -> &str {
        &self.label
    }

    /// The oldest line it said that nobody has taken yet, if there is one; does not wait.
    pub fn take_line(&mut self) -> Result<Option<String>, NotMeasured> {
        let Some(line) = self.heard.lines.pop_front() else { return Ok(None) };
        self.heard.bytes -= line.len() + 1;
        String::from_utf8(line)
            .map(Some)
            .map_err(|_| self.failed("said a line that is not UTF-8; this is a fault of the harness, report it"))
    }

    /// The next line it says.
    pub fn expect_line(&mut self, deadline: Instant) -> Result<String, NotMeasured> {
        let since = Instant::now();
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(line);
            }
            if self.is_silent() {
                return Err(self.ended_early("saying the line that was due"));
            }
            if Instant::now() >= deadline {
                return Err(self.too_late("said nothing", since));
            }
            pump([&mut *self], deadline)?;
        }
    }

    /// The next line it says, which has to be this one.
    pub fn expect(&mut self, line: &str, deadline: Instant) -> Result<(), NotMeasured> {
        let said = self.expect_line(deadline)?;
        if said == line { Ok(()) } else { Err(self.failed(&format!("said {said:?} where {line:?} was due"))) }
    }

    /// Writes a line, which must not contain a line end, to its standard input.
    #[cfg(test)]
    pub fn send_line(&mut self, line: &str, deadline: Instant) -> Result<(), NotMeasured> {
        let since = Instant::now();
        self.queue(line)?;
        loop {
            self.say_queued()?;
            if self.to_say.is_empty() {
                return Ok(());
            }
            if self.poll_exit()?.is_some() {
                return Err(self.ended_early("hearing all it was told"));
            }
            if Instant::now() >= deadline {
                return Err(self.too_late("did not listen", since));
            }
            pump([&mut *self], deadline)?;
        }
    }

    /// Kills it with SIGKILL, wherever it is; [`Child::finish`] then tells what it had said. Its end is not waited for here.
    pub fn kill(&mut self) -> Result<(), NotMeasured> {
        let killed = self.locked().kill();
        killed.map_err(|error| self.failed(&format!("can't be killed ({error})")))
    }

    /// Ends its standard input and waits for its end.
    pub fn finish(mut self, deadline: Instant) -> Result<Ended, NotMeasured> {
        self.stdin = None;
        self.wait(deadline)
    }

    /// Waits for its end without a word to it.
    pub fn wait(mut self, deadline: Instant) -> Result<Ended, NotMeasured> {
        let since = Instant::now();
        // All that it wrote is in the pipes once it has ended. A descendant may hold them open: we don't wait for that one.
        while self.poll_exit()?.is_none() && !(self.stdout.is_none() && self.stderr.is_none()) {
            if Instant::now() >= deadline {
                return Err(self.too_late("did not end", since));
            }
            pump([&mut self], deadline)?;
        }
        let Some(exit) = self.await_exit(deadline)? else { return Err(self.too_late("did not end", since)) };
        self.drain(deadline)?;
        let mut lines = Vec::new();
        while let Some(line) = self.take_line()? {
            lines.push(line);
        }
        let unfinished = String::from_utf8_lossy(&self.heard.unfinished).into_owned();
        Ok(Ended { exit, lines, unfinished, stderr: self.complaint.text() })
    }

    /// [`Child::finish`] for a child that has said all it has to say: exit code 0, and not one more line.
    pub fn finish_well(self, deadline: Instant) -> Result<(), NotMeasured> {
        let label = self.label.clone();
        self.finish(deadline)?.demand(&label, 0)
    }

    /// Whether nothing more will come: it has ended, or closed its output. Lines said before may still be there to take.
    pub fn is_silent(&mut self) -> bool {
        if self.stdout.is_none() {
            return true;
        }
        if !matches!(self.poll_exit(), Ok(Some(_))) {
            return false;
        }
        // What it wrote just before its end must not be missed.
        let _ = self.drain(Instant::now() + EXIT_CHECK);
        self.heard.lines.is_empty()
    }

    /// Reads what lies in the pipes already.
    fn drain(&mut self, deadline: Instant) -> Result<(), NotMeasured> {
        while read_what_came([&mut *self], PollTimeout::ZERO)? && Instant::now() < deadline {}
        Ok(())
    }

    fn poll_exit(&mut self) -> Result<Option<Exit>, NotMeasured> {
        if self.exit.is_none() {
            let status = self.locked().try_wait();
            match status {
                Ok(status) => self.exit = status.map(exit_of),
                Err(error) => return Err(self.failed(&format!("can't be waited for ({error}); run again"))),
            }
        }
        Ok(self.exit)
    }

    /// Its end, or `None` at the deadline. There is no portable wait for a process with a time-out; a process whose pipes have
    /// closed is reaped at one of the first looks.
    fn await_exit(&mut self, deadline: Instant) -> Result<Option<Exit>, NotMeasured> {
        let mut pause = Duration::from_micros(20);
        loop {
            let exit = self.poll_exit()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if exit.is_some() || left.is_zero() {
                return Ok(exit);
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }

    fn queue(&mut self, line: &str) -> Result<(), NotMeasured> {
        if line.contains('\n') {
            return Err(
                self.failed("was to be told a line with a line end in it; this is a fault of the harness, report it")
            );
        }
        self.to_say.extend(line.bytes());
        self.to_say.push_back(b'\n');
        Ok(())
    }

    /// Writes as much as its pipe takes at once.
    fn say_queued(&mut self) -> Result<(), NotMeasured> {
        while !self.to_say.is_empty() {
            let Some(stdin) = &mut self.stdin else { return Err(self.ended_early("hearing all it was told")) };
            match stdin.write(self.to_say.as_slices().0) {
                Ok(written) => drop(self.to_say.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(self.ended_early("hearing all it was told")),
            }
        }
        Ok(())
    }

    /// The pipes that something may come of.
    fn watched(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        let stdin = self.stdin.as_ref().filter(|_| !self.to_say.is_empty());
        let stdin = stdin.map(|pipe| (Stream::Stdin, pipe.as_fd()));
        let stdout = self.stdout.as_ref().map(|pipe| (Stream::Stdout, pipe.as_fd()));
        let stderr = self.stderr.as_ref().map(|pipe| (Stream::Stderr, pipe.as_fd()));
        [stdin, stdout, stderr].into_iter().flatten()
    }

    fn hear(&mut self, stream: Stream) -> Result<(), NotMeasured> {
        let mut buffer = [0; 64 << 10];
        let read = match stream {
            Stream::Stdin => return self.say_queued(),
            Stream::Stdout => self.stdout.as_mut().map(|pipe| pipe.read(&mut buffer)),
            Stream::Stderr => self.stderr.as_mut().map(|pipe| pipe.read(&mut buffer)),
        };
        match (stream, read.unwrap_or(Ok(0))) {
            (Stream::Stdin, _) => {}
            (Stream::Stdout, Ok(0)) => self.stdout = None,
            (Stream::Stderr, Ok(0)) => self.stderr = None,
            (Stream::Stdout, Ok(length)) => {
                self.heard.take_in(&buffer[..length]);
                if self.heard.bytes > UNREAD_LIMIT {
                    return Err(self.failed(
                        "said more than 8 MiB that nobody asked for; this is a fault of the harness, report it",
                    ));
                }
            }
            (Stream::Stderr, Ok(length)) => {
                self.complaint.take_in(&buffer[..length]);
            }
            (Stream::Stdout | Stream::Stderr, Err(error)) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                _ => return Err(self.failed(&format!("can't be read from ({error}); run again"))),
            },
        }
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, std::process::Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, what: &str) -> NotMeasured {
        not_measured(format!("child `{}` {what}{}", self.label, quoted_stderr(&self.complaint.text())))
    }

    fn too_late(&mut self, what: &str, since: Instant) -> NotMeasured {
        let waited = since.elapsed().as_secs_f64();
        self.failed(&format!("{what} for {waited:.1} s and was killed; run again when the machine is less busy"))
    }

    fn ended_early(&mut self, before: &str) -> NotMeasured {
        // It hears no more; to try again below would end here again.
        self.to_say.clear();
        let soon = Instant::now() + Duration::from_millis(500);
        let exit = self.await_exit(soon);
        let _ = self.drain(soon);
        match exit {
            Ok(Some(exit)) => {
                self.failed(&format!("ended ({exit}) before {before}; run again, and report it if it stays so"))
            }
            Ok(None) => {
                self.failed(&format!("closed its pipes before {before}; this is a fault of the harness, report it"))
            }
            Err(error) => error,
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.exit.is_none() {
            kill_and_reap(&self.process);
        }
    }
}

impl Ended {
    /// Demands an exit code, and that all it said was taken. `label` names the child in the sentence.
    pub fn demand(&self, label: &str, code: i32) -> Result<(), NotMeasured> {
        let what = if let Some(line) = self.lines.first() {
            format!("said {line:?} after all it had to say")
        } else if !self.unfinished.is_empty() {
            format!("said the torn line {:?} after all it had to say", self.unfinished)
        } else if self.exit != Exit::Code(code) {
            format!("ended with {} instead of exit code {code}", self.exit)
        } else {
            return Ok(());
        };
        let stderr = quoted_stderr(&self.stderr);
        Err(not_measured(format!("child `{label}` {what}; run again, and report it if it stays so{stderr}")))
    }
}

/// Waits until something came from any of the children, or `until`, and takes it in: lines then wait in [`Child::take_line`].
/// May come back earlier, with nothing.
pub fn pump<'a>(children: impl IntoIterator<Item = &'a mut Child>, until: Instant) -> Result<(), NotMeasured> {
    let left = until.saturating_duration_since(Instant::now()).min(EXIT_CHECK);
    // Rounded up, so that the last millisecond is not spent spinning.
    let timeout = PollTimeout::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(PollTimeout::ZERO);
    read_what_came(children, timeout).map(|_| ())
}

/// A death as it was planned: announced for exactly this boundary, by exactly [`PLANNED_EXIT_CODE`], with no word after. There is
/// no other way to get one.
#[derive(Debug)]
pub struct PlannedDeath {
    #[cfg_attr(not(test), expect(dead_code, reason = "what it was is asked by tests alone"))]
    boundary: String,
}

impl PlannedDeath {
    /// Sees the child die at `boundary`. Whatever it has to say before has to be taken already.
    pub fn witness(mut child: Child, boundary: &str, deadline: Instant) -> Result<PlannedDeath, NotMeasured> {
        child.expect(&format!("{ANNOUNCEMENT}{boundary}"), deadline)?;
        let label = child.label.clone();
        child.finish(deadline)?.demand(&label, PLANNED_EXIT_CODE)?;
        Ok(PlannedDeath { boundary: boundary.to_owned() })
    }

    #[cfg(test)]
    pub fn boundary(&self) -> &str {
        &self.boundary
    }
}

/// Children that stand at one line, let go together. If one fails, the whole fails, and dropping it kills all.
pub struct Race {
    children: Vec<Child>,
}

impl Race {
    /// Starts them all and waits until each has said [`READY`].
    pub fn assemble(starts: &[Start], deadline: Instant) -> Result<Race, NotMeasured> {
        let children = starts.iter().map(Child::spawn).collect::<Result<_, _>>()?;
        let mut race = Race { children };
        race.await_ready(deadline)?;
        Ok(race)
    }

    /// Tells all of them [`GO`]; the answer is the one line each says then, in the order of the starts.
    pub fn release(&mut self, deadline: Instant) -> Result<Vec<String>, NotMeasured> {
        self.tell_go()?;
        self.one_line_each(deadline)
    }

    fn tell_go(&mut self) -> Result<(), NotMeasured> {
        for child in &mut self.children {
            if let Some(line) = child.take_line()? {
                return Err(child.failed(&format!("said {line:?} before it was let go")));
            }
            child.queue(GO)?;
        }
        // Nothing but the writes lies between the first and the last of them.
        self.children.iter_mut().try_for_each(Child::say_queued)
    }

    /// Tells all of them [`GO`] and leaves them to the caller, in the order of the starts.
    pub fn let_go(mut self) -> Result<Vec<Child>, NotMeasured> {
        self.tell_go()?;
        Ok(self.children)
    }

    /// For a further round: waits until each has said [`READY`] again.
    pub fn await_ready(&mut self, deadline: Instant) -> Result<(), NotMeasured> {
        let said = self.one_line_each(deadline)?;
        match said.iter().position(|line| line != READY) {
            None => Ok(()),
            Some(index) => Err(self.children[index].failed(&format!("said {:?} where {READY:?} was due", said[index]))),
        }
    }

    /// Ends their input and demands that each ends with exit code 0 and not one more line.
    pub fn finish(self, deadline: Instant) -> Result<(), NotMeasured> {
        let mut children = self.children;
        // All of them at once: they end side by side.
        children.iter_mut().for_each(|child| child.stdin = None);
        children.into_iter().try_for_each(|child| child.finish_well(deadline))
    }

    fn one_line_each(&mut self, deadline: Instant) -> Result<Vec<String>, NotMeasured> {
        let since = Instant::now();
        let mut said: Vec<Option<String>> = vec![None; self.children.len()];
        loop {
            let late = Instant::now() >= deadline;
            let mut missing = 0;
            for (child, said) in self.children.iter_mut().zip(&mut said) {
                if said.is_some() {
                    continue;
                }
                *said = child.take_line()?;
                if said.is_none() && child.is_silent() {
                    return Err(child.ended_early("saying the line that was due"));
                }
                if said.is_none() && late {
                    return Err(child.too_late("said nothing", since));
                }
                missing += usize::from(said.is_none());
            }
            if missing == 0 {
                return Ok(said.into_iter().flatten().collect());
            }
            pump(&mut self.children, deadline)?;
        }
    }
}

/// In the child, before all else: it dies with its parent from now on, and at once if the parent is gone already. Elsewhere than
/// on Linux it dies as soon as it listens or speaks: both pipes end with the parent.
pub fn child_started(parent_pid: u32) {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL) {
        eprintln!("the kernel refuses the parent-death signal ({error})");
        exit(ABANDONED_EXIT_CODE);
    }
    if std::os::unix::process::parent_id() != parent_pid {
        exit(ABANDONED_EXIT_CODE);
    }
}

/// In the child: says one line to the parent. If nobody listens the process ends quietly.
pub fn tell_parent(line: &str) {
    debug_assert!(!line.contains('\n'), "a line end would make two lines of it");
    let mut stdout = io::stdout().lock();
    // In one piece, so that a SIGKILL can't tear it.
    let whole = format!("{line}\n");
    if stdout.write_all(whole.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        exit(ABANDONED_EXIT_CODE);
    }
}

/// In the child: the next line from the parent, or `None` once it has ended our input.
pub fn hear_parent() -> Option<String> {
    let mut line = String::new();
    match io::stdin().read_line(&mut line) {
        Ok(_) => line.strip_suffix('\n').map(str::to_owned),
        Err(_) => None,
    }
}

/// In the child of a [`Race`]: says that it is ready, and waits to be let go. If the parent leaves instead, the process ends.
pub fn await_go() {
    tell_parent(READY);
    if hear_parent().as_deref() != Some(GO) {
        exit(ABANDONED_EXIT_CODE);
    }
}

/// In the child: announces the boundary and dies there, as [`PlannedDeath`] demands. Runs no destructors.
pub fn die_at(boundary: &str) -> ! {
    tell_parent(&format!("{ANNOUNCEMENT}{boundary}"));
    exit(PLANNED_EXIT_CODE)
}

#[derive(Debug, Clone, Copy)]
enum Stream {
    Stdin,
    Stdout,
    Stderr,
}

/// Standard output as far as it was read, and not taken.
#[derive(Debug, Default)]
struct Heard {
    lines: VecDeque<Vec<u8>>,
    unfinished: Vec<u8>,
    /// Of both, with the line ends.
    bytes: usize,
}

impl Heard {
    fn take_in(&mut self, came: &[u8]) {
        self.bytes += came.len();
        for piece in came.split_inclusive(|&byte| byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                None => self.unfinished.extend_from_slice(piece),
                Some(rest) => {
                    let mut line = std::mem::take(&mut self.unfinished);
                    line.extend_from_slice(rest);
                    self.lines.push_back(line);
                }
            }
        }
    }
}

/// The end of standard error.
#[derive(Debug, Default)]
struct Complaint {
    kept: Vec<u8>,
    cut: usize,
}

impl Complaint {
    fn take_in(&mut self, came: &[u8]) {
        self.kept.extend_from_slice(came);
        let cut = self.kept.len().saturating_sub(STDERR_KEPT);
        self.kept.drain(..cut);
        self.cut += cut;
    }

    fn text(&self) -> String {
        let kept = String::from_utf8_lossy(&self.kept);
        match self.cut {
            0 => kept.trim_end().to_owned(),
            cut => format!("[{cut} bytes left out] {}", kept.trim_end()),
        }
    }
}

/// One `poll` over all pipes of all children; says whether anything came.
fn read_what_came<'a>(
    children: impl IntoIterator<Item = &'a mut Child>,
    timeout: PollTimeout,
) -> Result<bool, NotMeasured> {
    let mut children: Vec<&mut Child> = children.into_iter().collect();
    let mut which = Vec::new();
    let mut pipes = Vec::new();
    for (index, child) in children.iter().enumerate() {
        for (stream, pipe) in child.watched() {
            let flags = match stream {
                Stream::Stdin => PollFlags::POLLOUT,
                Stream::Stdout | Stream::Stderr => PollFlags::POLLIN,
            };
            which.push((index, stream));
            pipes.push(PollFd::new(pipe, flags));
        }
    }
    match poll(&mut pipes, timeout) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(not_measured(format!("the children's pipes can't be polled ({error}); run again"))),
    }
    let came: Vec<bool> = pipes.iter().map(|pipe| pipe.any().unwrap_or(false)).collect();
    drop(pipes);
    for (&(index, stream), _) in which.iter().zip(&came).filter(|(_, came)| **came) {
        children[index].hear(stream)?;
    }
    Ok(came.contains(&true))
}

/// While an interrupt is served children end because we end them: that is nobody's finding.
fn not_measured(what: String) -> NotMeasured {
    signal::stand_aside();
    NotMeasured { what }
}

fn quoted_stderr(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("; its standard error: {text:?}") }
}

/// Through the handle alone, which knows whether the pid is still this child's: a number may have gone to a stranger.
fn kill_and_reap(process: &Mutex<std::process::Child>) {
    let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(None) = process.try_wait() {
        // With its whole group, whose number is its own: what cargo had started would go on writing after it.
        let group = nix::unistd::Pid::from_raw(process.id().cast_signed());
        let _ = nix::sys::signal::killpg(group, Signal::SIGKILL);
        let _ = process.kill().and_then(|()| process.wait());
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or(0)),
    }
}

/// Only our end of the pipe: the child's is an open file of its own.
fn unblock(pipe: &impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(pipe, FcntlArg::F_GETFL)?);
    fcntl(pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE: Duration = Duration::from_secs(20);

    fn soon() -> Instant {
        Instant::now() + AMPLE
    }

    fn shell(script: &str) -> Start {
        Start::program("shell", "/bin/sh", ["-c", script])
    }

    fn spawn(script: &str) -> Child {
        Child::spawn(&shell(script)).unwrap()
    }

    /// This test binary as a child, where it runs `as_a_child` alone.
    fn role(name: &str, parent_pid: u32) -> Start {
        let program = std::env::current_exe().unwrap().into_os_string();
        let variables = [format!("ROLE_IN_TESTS={name}"), format!("PARENT_IN_TESTS={parent_pid}")].map(OsString::from);
        let rest = ["--exact", "process::tests::as_a_child", "--nocapture", "--test-threads=2"].map(OsString::from);
        Start::program(name, "/usr/bin/env", variables.into_iter().chain([program]).chain(rest))
    }

    /// The test harness of the child talks before the child does.
    fn expect_after_noise(child: &mut Child, wanted: &str) -> String {
        loop {
            let line = child.expect_line(soon()).unwrap();
            if let Some(rest) = line.strip_prefix(wanted) {
                return rest.to_owned();
            }
        }
    }

    #[test]
    fn as_a_child() {
        let Ok(role) = std::env::var("ROLE_IN_TESTS") else { return };
        let parent = std::env::var("PARENT_IN_TESTS").unwrap().parse().unwrap();
        match role.as_str() {
            "started" => {
                child_started(parent);
                tell_parent("started");
                while hear_parent().is_some() {}
            }
            "deaf" => {
                child_started(parent);
                tell_parent(&format!("deaf {}", std::process::id()));
                loop {
                    thread::park();
                }
            }
            "parent of deaf" => {
                let mut child = Child::spawn(&super::tests::role("deaf", std::process::id())).unwrap();
                tell_parent(&format!("child {}", expect_after_noise(&mut child, "deaf ")));
                while hear_parent().is_some() {}
            }
            "talker" => loop {
                tell_parent("still here");
            },
            "dying" => {
                tell_parent("alive");
                die_at("admit.after_intent")
            }
            "racer" => {
                tell_parent("alive");
                await_go();
                tell_parent("accepted");
            }
            other => panic!("no role {other}"),
        }
    }

    fn is_there(pid: &str) -> bool {
        Path::new("/proc").join(pid).exists()
    }

    fn sentence<T: fmt::Debug>(result: Result<T, NotMeasured>) -> String {
        result.unwrap_err().to_string()
    }

    /// A connection must not be carried into a child. A file that is left inheritable on purpose shows that the look would
    /// see one.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_child_inherits_no_descriptor_of_an_open_store() {
        let folder = tempfile::tempdir().unwrap();
        let mut store =
            durable_admission::Store::open(folder.path().join("store.db"), &crate::fixture::LIMITS).unwrap();
        assert!(store.claim(1).unwrap().is_none());
        let inherited = || {
            let lines = spawn("exec readlink /proc/$$/fd/*").finish(soon()).unwrap().lines;
            lines.into_iter().filter(|line| Path::new(line).starts_with(folder.path())).collect::<Vec<_>>()
        };
        assert_eq!(inherited(), Vec::<String>::new());
        let control = folder.path().join("control");
        let file = std::fs::File::create(&control).unwrap();
        fcntl(&file, FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
        assert_eq!(inherited(), [control.to_string_lossy()]);
        store.close().unwrap();
    }

    #[test]
    fn a_mebibyte_on_each_pipe_is_drained() {
        let mebibyte = "head -c 1048576 /dev/zero | tr '\\0'";
        let ended = spawn(&format!("{mebibyte} e >&2; {mebibyte} o; echo; {mebibyte} E >&2; {mebibyte} '\\n'"))
            .finish(soon())
            .unwrap();
        assert_eq!(ended.exit, Exit::Code(0));
        assert_eq!(ended.lines.len(), 1 + (1 << 20));
        assert_eq!(ended.lines[0].len(), 1 << 20);
        assert_eq!(ended.unfinished, "");
        assert!(ended.stderr.starts_with("[2093056 bytes left out] EEE"), "{}", &ended.stderr[..40]);
    }

    #[test]
    fn stderr_is_drained_while_a_line_is_due() {
        let mut child = spawn("head -c 1048576 /dev/zero >&2; echo said");
        assert_eq!(child.expect_line(soon()).unwrap(), "said");
    }

    #[test]
    fn a_mebibyte_is_told_to_a_child_that_says_it_back_meanwhile() {
        let mut child = spawn("cat");
        let long = "x".repeat(1 << 20);
        child.send_line(&long, soon()).unwrap();
        assert_eq!(child.expect_line(soon()).unwrap(), long);
        child.finish_well(soon()).unwrap();
    }

    #[test]
    fn the_deadline_holds_though_a_grandchild_holds_the_pipes() {
        let since = Instant::now();
        let mut child = spawn("sleep 3 & wait");
        let said = sentence(child.expect_line(since + Duration::from_millis(300)));
        assert!(said.contains("said nothing for 0.3 s"), "{said}");
        drop(child);
        assert!(since.elapsed() < Duration::from_secs(1));
    }

    #[test]
    fn a_child_that_ended_is_not_waited_for_though_a_grandchild_holds_the_pipes() {
        let since = Instant::now();
        let ended = spawn("sleep 3 & echo last; exit 5").finish(soon()).unwrap();
        assert_eq!((ended.exit, ended.lines), (Exit::Code(5), vec!["last".to_owned()]));
        let said = sentence(spawn("sleep 3 & exit 5").expect_line(soon()));
        assert!(said.contains("ended (exit code 5) before saying"), "{said}");
        assert!(since.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn a_child_that_can_not_be_started_is_not_measured() {
        let start = Start::program("ghost", "/nonexistent/program", [""; 0]);
        let said = sentence(Child::spawn(&start).map(|_| ()));
        assert!(said.contains("`ghost` can't be started from /nonexistent/program"), "{said}");
    }

    #[test]
    fn a_child_that_hangs_is_killed_and_reaped_at_the_deadline() {
        let mut child = spawn("echo $$; exec sleep 60");
        let pid = child.expect_line(soon()).unwrap();
        assert!(is_there(&pid));
        let said = sentence(child.finish(Instant::now() + Duration::from_millis(100)));
        assert!(said.contains("did not end for 0.1 s"), "{said}");
        assert!(!is_there(&pid), "neither alive nor a zombie");
    }

    #[test]
    fn a_dropped_child_is_killed_and_reaped() {
        let mut child = spawn("echo $$; exec sleep 60");
        let pid = child.expect_line(soon()).unwrap();
        drop(child);
        assert!(!is_there(&pid));
    }

    #[test]
    fn a_killed_child_tells_what_it_had_said_and_a_torn_line_is_not_said() {
        let mut child = spawn("echo one; printf torn; echo done >&2; exec sleep 60");
        while child.complaint.text() != "done" {
            pump([&mut child], soon()).unwrap();
        }
        child.kill().unwrap();
        let ended = child.finish(soon()).unwrap();
        assert_eq!(ended.exit, Exit::Signal(9));
        assert_eq!((ended.lines, ended.unfinished.as_str()), (vec!["one".to_owned()], "torn"));
    }

    #[test]
    fn a_child_that_does_not_listen_is_not_measured() {
        let mut child = spawn("exec sleep 60");
        let deadline = Instant::now() + Duration::from_millis(100);
        let said = sentence(child.send_line(&"x".repeat(1 << 20), deadline));
        assert!(said.contains("did not listen"), "{said}");
        let mut gone = spawn("exit 3");
        gone.await_exit(soon()).unwrap();
        let said = sentence(gone.send_line("hello", soon()));
        assert!(said.contains("ended (exit code 3) before hearing"), "{said}");
        assert!(sentence(spawn("cat").send_line("two\nlines", soon())).contains("line end"));
    }

    #[test]
    fn endless_output_is_not_measured() {
        let said = sentence(spawn("exec yes").finish(soon()));
        assert!(said.contains("more than 8 MiB"), "{said}");
    }

    #[test]
    fn much_output_is_no_fault_where_it_is_taken_as_it_comes() {
        let mut child = spawn("head -c 16777216 /dev/zero | tr '\\0' x | fold -w 65535; echo; echo last");
        while child.expect_line(soon()).unwrap() != "last" {}
        child.finish_well(soon()).unwrap();
    }

    #[test]
    fn stderr_is_in_the_sentence_with_its_control_characters_escaped() {
        let mut child = spawn("printf 'bad \\033[31mnews\\n中文\\n' >&2; exit 3");
        let said = sentence(child.expect_line(soon()));
        assert!(said.contains(r#"its standard error: "bad \u{1b}[31mnews\n中文""#), "{said}");
    }

    #[test]
    fn lines_of_several_children_are_waited_for_at_once() {
        let mut children = [spawn("read line; echo $line"), spawn("echo second; read line")];
        while children.iter().all(|child| child.heard.lines.is_empty()) {
            pump(&mut children, soon()).unwrap();
        }
        assert_eq!(children[1].take_line().unwrap().as_deref(), Some("second"));
        assert_eq!(children[0].take_line().unwrap(), None);
    }

    fn witness(script: &str) -> Result<PlannedDeath, NotMeasured> {
        PlannedDeath::witness(spawn(script), "admit.before_commit", Instant::now() + AMPLE)
    }

    #[test]
    fn a_planned_death_is_announced_by_name_exit_code_73_and_silence_after() {
        assert_eq!(witness("echo dying at admit.before_commit; exit 73").unwrap().boundary(), "admit.before_commit");
    }

    #[test]
    fn any_other_death_is_not_measured() {
        let told = [
            ("echo dying at admit.before_commit; exit 1", "exit code 1 instead of exit code 73"),
            ("echo dying at admit.before_commit", "exit code 0 instead of exit code 73"),
            ("echo dying at admit.before_commit; kill -9 $$", "death by SIGKILL instead of exit code 73"),
            ("echo dying at admit.before_commit; kill -ABRT $$", "death by SIGABRT instead of exit code 73"),
            ("echo dying at admit.after_commit; exit 73", r#"said "dying at admit.after_commit" where"#),
            ("echo dying at admit.before_commi; exit 73", r#"said "dying at admit.before_commi" where"#),
            ("echo answer accepted; echo dying at admit.before_commit; exit 73", r#"said "answer accepted" where"#),
            ("echo dying at admit.before_commit; echo accepted; exit 73", r#"said "accepted" after all"#),
            ("echo dying at admit.before_commit; printf acc; exit 73", r#"said the torn line "acc""#),
            ("printf 'dying at admit.before_commit'; exit 73", "ended (exit code 73) before saying"),
            ("exit 73", "ended (exit code 73) before saying"),
            ("echo accepted; exit 0", r#"said "accepted" where"#),
            ("printf '\\377\\n'; exit 73", "not UTF-8"),
        ];
        for (script, wanted) in told {
            let said = sentence(witness(script));
            assert!(said.starts_with("could not measure: child `shell` ") && said.contains(wanted), "{script}: {said}");
        }
    }

    #[test]
    fn a_child_that_lives_on_after_its_announcement_is_not_measured() {
        let child = spawn("echo dying at x; exec sleep 60");
        let said = sentence(PlannedDeath::witness(child, "x", Instant::now() + Duration::from_millis(200)));
        assert!(said.contains("did not end"), "{said}");
    }

    #[test]
    fn die_at_is_the_death_that_is_demanded() {
        let mut child = Child::spawn(&role("dying", std::process::id())).unwrap();
        expect_after_noise(&mut child, "alive");
        PlannedDeath::witness(child, "admit.after_intent", soon()).unwrap();
    }

    #[test]
    fn racers_are_let_go_together_and_each_is_heard_in_the_order_of_the_starts() {
        let scripts =
            (0..12).map(|n| shell(&format!("echo ready; read go; echo $go {n}; echo ready; read go; echo twice")));
        let mut race = Race::assemble(&scripts.collect::<Vec<_>>(), soon()).unwrap();
        let wanted: Vec<String> = (0..12).map(|n| format!("go {n}")).collect();
        assert_eq!(race.release(soon()).unwrap(), wanted);
        race.await_ready(soon()).unwrap();
        assert_eq!(race.release(soon()).unwrap(), ["twice"; 12]);
        race.finish(soon()).unwrap();
    }

    #[test]
    fn no_racer_is_let_go_before_all_are_ready() {
        // The first would say so at once; the second is ready only after the first could have.
        let starts = [shell("echo ready; read go; echo went"), shell("sleep 0.2; echo ready; read go; echo went")];
        let mut race = Race::assemble(&starts, soon()).unwrap();
        assert!(race.children.iter_mut().all(|child| child.take_line().unwrap().is_none()));
        assert_eq!(race.release(soon()).unwrap(), ["went", "went"]);
    }

    #[test]
    fn one_racer_gone_wrong_is_named_and_all_are_ended() {
        let good = "echo ready; read go; echo accepted";
        let told = [
            ("exit 4", "`odd` ended (exit code 4) before saying"),
            ("echo redy; exec sleep 60", r#"`odd` said "redy" where "ready""#),
            ("exec sleep 60", "`odd` said nothing for 2.0 s"),
            ("echo ready; echo accepted; read go", r#"`odd` said "accepted" before it was let go"#),
            ("echo ready; read go; kill -9 $$", "`odd` ended (death by SIGKILL) before saying"),
            ("echo ready; read go; exec sleep 60", "`odd` said nothing for 2.0 s"),
            ("echo ready; read go; echo accepted; exit 3", "`odd` ended with exit code 3 instead of exit code 0"),
            ("echo ready; read go; echo accepted; echo full", r#"`odd` said "full" after all"#),
        ];
        for (odd, wanted) in told {
            let odd = Start::program("odd", "/bin/sh", ["-c", odd]);
            let starts = [shell(good), odd, shell(good)];
            let run = || {
                // The others have to be ready by then, on a busy machine too.
                let deadline = Instant::now() + Duration::from_secs(2);
                let mut race = Race::assemble(&starts, deadline)?;
                // Let what is said too early arrive.
                pump(&mut race.children, Instant::now() + Duration::from_millis(300))?;
                race.release(deadline)?;
                race.finish(deadline)
            };
            let said = sentence(run());
            assert!(said.contains(wanted), "{said}");
        }
    }

    #[test]
    fn racers_of_a_failed_race_are_reaped() {
        let starts = [shell("echo ready; read go; echo $$; exec sleep 60"), shell("echo ready; read go; echo $$")];
        let mut race = Race::assemble(&starts, soon()).unwrap();
        let pids = race.release(soon()).unwrap();
        assert!(race.finish(Instant::now() + Duration::from_millis(100)).is_err());
        assert!(!pids.iter().any(|pid| is_there(pid)));
    }

    #[test]
    fn await_go_is_what_a_race_waits_for() {
        let mut child = Child::spawn(&role("racer", std::process::id())).unwrap();
        expect_after_noise(&mut child, "alive");
        let mut race = Race { children: vec![child] };
        race.await_ready(soon()).unwrap();
        assert_eq!(race.release(soon()).unwrap(), ["accepted"]);
    }

    #[test]
    fn a_racer_whose_parent_leaves_ends_quietly() {
        let mut child = Child::spawn(&role("racer", std::process::id())).unwrap();
        expect_after_noise(&mut child, READY);
        let ended = child.finish(soon()).unwrap();
        assert_eq!((ended.exit, ended.stderr.as_str()), (Exit::Code(ABANDONED_EXIT_CODE), ""));
    }

    #[test]
    fn a_child_of_somebody_else_ends_at_once() {
        let mut child = Child::spawn(&role("started", std::process::id())).unwrap();
        expect_after_noise(&mut child, "started");
        assert_eq!(child.finish(soon()).unwrap().exit, Exit::Code(0));
        let stranger = Child::spawn(&role("started", 1)).unwrap();
        assert_eq!(stranger.finish(soon()).unwrap().exit, Exit::Code(ABANDONED_EXIT_CODE));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_child_that_hears_nothing_dies_with_its_killed_parent() {
        let mut parent = Child::spawn(&role("parent of deaf", std::process::id())).unwrap();
        let grandchild = expect_after_noise(&mut parent, "child ");
        assert!(is_there(&grandchild));
        parent.kill().unwrap();
        parent.finish(soon()).unwrap();
        await_end_of(&grandchild);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_child_has_started_ends_with_it_where_we_end_it() {
        let shell = Start::program("shell", "sh", ["-c", "sleep 60 & echo $!; wait"]);
        let mut child = Child::spawn(&shell).unwrap();
        let grandchild = child.expect_line(soon()).unwrap();
        assert!(is_there(&grandchild));
        drop(child);
        await_end_of(&grandchild);
    }

    #[cfg(target_os = "linux")]
    fn await_end_of(pid: &str) {
        let until = soon();
        while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z")) {
            assert!(Instant::now() < until, "process {pid} outlived its parent");
            thread::yield_now();
        }
    }

    #[test]
    fn a_child_that_nobody_hears_ends_quietly() {
        let mut child = Child::spawn(&role("talker", std::process::id())).unwrap();
        expect_after_noise(&mut child, "still here");
        child.stdout = None;
        let exit = child.await_exit(soon()).unwrap();
        child.drain(soon()).unwrap();
        assert_eq!((exit, child.complaint.text().as_str()), (Some(Exit::Code(ABANDONED_EXIT_CODE)), ""));
    }
}
