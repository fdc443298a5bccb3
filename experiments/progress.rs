//! Progress on standard error: a live line on a terminal, a plain line per entry elsewhere, or nothing.

use std::io::{IsTerminal, Write, stderr};

use indicatif::{ProgressBar, ProgressStyle};

pub enum Progress {
    Quiet,
    Lines,
    Live(ProgressBar),
}

impl Progress {
    /// `total` entries are to come.
    pub fn new(total: u64) -> Progress {
        if !stderr().is_terminal() {
            return Progress::Lines;
        }
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template("[{pos}/{len}] {msg}") {
            bar.set_style(style);
        }
        Progress::Live(bar)
    }

    pub fn begin(&self, name: &str) {
        match self {
            Progress::Quiet | Progress::Lines => {}
            Progress::Live(bar) => {
                bar.set_message(name.to_owned());
                bar.tick();
            }
        }
    }

    /// How far the entry is that has begun; only where it can be overwritten.
    pub fn note(&self, how_far: impl FnOnce() -> String) {
        match self {
            Progress::Quiet | Progress::Lines => {}
            Progress::Live(bar) => bar.set_message(how_far()),
        }
    }

    /// `what` is one line about an entry that has ended.
    pub fn end(&self, what: &str) {
        match self {
            Progress::Quiet => {}
            Progress::Lines => say(what),
            Progress::Live(bar) => bar.inc(1),
        }
    }

    /// Takes the live line away before anything else is printed.
    pub fn finish(&self) {
        match self {
            Progress::Quiet | Progress::Lines => {}
            Progress::Live(bar) => bar.finish_and_clear(),
        }
    }
}

/// One line to whoever watches. Nobody may be there: that is no reason to fail.
pub fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}
