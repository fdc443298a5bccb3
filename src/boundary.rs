use std::fmt;
use std::str::FromStr;

/// The eight crash boundaries (PROTOCOL, *The eight crash boundaries*): named instants in a verb, each
/// described by what is on disk if the process dies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Boundary {
    /// The intent is written, the task not yet: nothing on disk.
    AdmitAfterIntent,
    /// All is written, nothing committed: nothing on disk.
    AdmitBeforeCommit,
    /// Committed, not yet answered: intent and queued task on disk.
    AdmitAfterCommit,
    /// The effect is written, the task not yet done: still inflight on disk, no effect.
    ResolveAfterEffect,
    /// All is written, nothing committed: still inflight on disk, no effect.
    ResolveBeforeCommit,
    /// Committed, not yet answered: done and its effect on disk.
    ResolveAfterCommit,
    /// Written, not committed: still queued on disk.
    CancelBeforeCommit,
    /// Committed, not yet answered: cancelled on disk.
    CancelAfterCommit,
}

impl Boundary {
    /// All eight, in the order of PROTOCOL's table.
    pub const ALL: [Boundary; 8] = [
        Boundary::AdmitAfterIntent,
        Boundary::AdmitBeforeCommit,
        Boundary::AdmitAfterCommit,
        Boundary::ResolveAfterEffect,
        Boundary::ResolveBeforeCommit,
        Boundary::ResolveAfterCommit,
        Boundary::CancelBeforeCommit,
        Boundary::CancelAfterCommit,
    ];

    /// The boundary's name in PROTOCOL.
    pub const fn name(self) -> &'static str {
        match self {
            Boundary::AdmitAfterIntent => "admit.after_intent",
            Boundary::AdmitBeforeCommit => "admit.before_commit",
            Boundary::AdmitAfterCommit => "admit.after_commit",
            Boundary::ResolveAfterEffect => "resolve.after_effect",
            Boundary::ResolveBeforeCommit => "resolve.before_commit",
            Boundary::ResolveAfterCommit => "resolve.after_commit",
            Boundary::CancelBeforeCommit => "cancel.before_commit",
            Boundary::CancelAfterCommit => "cancel.after_commit",
        }
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Boundary {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Boundary::ALL.into_iter().find(|boundary| boundary.name() == name).ok_or_else(|| {
            let names = Boundary::ALL.map(Boundary::name).join(", ");
            format!("{name:?} is no crash boundary; give one of {names}")
        })
    }
}

/// Hears of each boundary at the instant at which it is crossed. `()` hears nothing and costs nothing.
pub trait Observer {
    /// Called inside the verb, before it goes on.
    fn crossed(&mut self, boundary: Boundary);
}

impl Observer for () {
    #[inline(always)]
    fn crossed(&mut self, _: Boundary) {}
}
