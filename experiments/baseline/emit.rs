//! Printing a result whose verdict is settled already.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use super::outcome::Verdict;

/// Prints the whole result and returns the exit code: the verdict's, also when the reader went away early (a closed
/// pipe loses text, no verdict), or 2 with a sentence on `problems` when the result could not be written.
///
/// For standard output pass `io::stdout().lock()`. Rust ignores SIGPIPE, so a closed pipe arrives here as an error.
pub fn emit(result: &str, verdict: Verdict, output: &mut impl Write, problems: &mut impl Write) -> u8 {
    // Flushed here: what fails at exit is heard by nobody.
    let written = output.write_all(result.as_bytes()).and_then(|()| output.flush());
    match written {
        Ok(()) => verdict.exit_code(),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => verdict.exit_code(),
        Err(error) => {
            complain(&error, verdict, problems);
            Verdict::Unreadable.exit_code()
        }
    }
}

/// Prints what is no verdict (a list, a page) on standard output.
pub fn print(text: &str) -> ExitCode {
    emit(text, Verdict::Pass, &mut io::stdout().lock(), &mut io::stderr()).into()
}

fn complain(error: &io::Error, verdict: Verdict, problems: &mut impl Write) {
    // Nothing is left to complain to when this fails too; the exit code still says it.
    let _ = writeln!(
        problems,
        "error: the result ({}) can't be written: {error}; make room, or send it elsewhere, and run again",
        verdict.name()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::{BufWriter, LineWriter};

    const VERDICTS: [(Verdict, u8); 4] =
        [(Verdict::Pass, 0), (Verdict::Fail, 1), (Verdict::Unreadable, 2), (Verdict::NotMeasured, 3)];

    #[test]
    fn a_closed_pipe_loses_no_verdict() {
        for (verdict, code) in VERDICTS {
            let (reader, writer) = io::pipe().expect("a pipe");
            drop(reader);
            let mut problems = Vec::new();
            // Buffered as standard output is, and so that only the flush meets the closed pipe.
            let mut output = BufWriter::with_capacity(1 << 20, writer);
            assert_eq!(emit("PASS: or not\n", verdict, &mut output, &mut problems), code);
            assert!(problems.is_empty(), "a reader that had enough is no problem");
        }
    }

    #[test]
    fn a_reader_that_stops_after_one_line_loses_no_verdict() {
        use std::io::{BufRead, BufReader};
        let (reader, writer) = io::pipe().expect("a pipe");
        // Far more than a pipe holds, so the writer is still at it when the reader leaves.
        let text = "a line of the result\n".repeat(100_000);
        let head = std::thread::spawn(move || {
            let mut line = String::new();
            BufReader::with_capacity(64, reader).read_line(&mut line).expect("one line");
            line
        });
        let code = emit(&text, Verdict::Fail, &mut LineWriter::new(writer), &mut Vec::new());
        assert_eq!(code, 1);
        assert_eq!(head.join().expect("the reader"), "a line of the result\n");
    }

    #[test]
    fn a_full_device_is_exit_2_and_a_sentence() {
        for (verdict, _) in VERDICTS {
            let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
            let mut problems = Vec::new();
            let mut output = BufWriter::with_capacity(1 << 20, full);
            assert_eq!(emit("PASS: or not\n", verdict, &mut output, &mut problems), 2);
            let sentence = String::from_utf8(problems).expect("text");
            assert!(sentence.starts_with("error: the result ("), "{sentence}");
            assert_eq!(sentence.lines().count(), 1);
        }
    }

    #[test]
    fn all_of_it_is_printed() {
        let mut output = Vec::new();
        assert_eq!(emit("one\ntwo\n", Verdict::Pass, &mut output, &mut Vec::new()), 0);
        assert_eq!(output, b"one\ntwo\n");
    }
}
