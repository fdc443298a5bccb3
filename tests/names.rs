//! The names of PROTOCOL are what is printed and, where a name is taken, what is understood.

use durable_admission::{Boundary, State};

#[test]
fn a_boundary_is_printed_by_its_name_and_found_by_it_alone() {
    let named = [
        (Boundary::AdmitAfterIntent, "admit.after_intent"),
        (Boundary::AdmitBeforeCommit, "admit.before_commit"),
        (Boundary::AdmitAfterCommit, "admit.after_commit"),
        (Boundary::ResolveAfterEffect, "resolve.after_effect"),
        (Boundary::ResolveBeforeCommit, "resolve.before_commit"),
        (Boundary::ResolveAfterCommit, "resolve.after_commit"),
        (Boundary::CancelBeforeCommit, "cancel.before_commit"),
        (Boundary::CancelAfterCommit, "cancel.after_commit"),
    ];
    assert_eq!(Boundary::ALL, named.map(|(boundary, _)| boundary));
    for (boundary, name) in named {
        assert_eq!((boundary.name(), boundary.to_string().as_str()), (name, name));
        assert_eq!(name.parse(), Ok(boundary));
    }
    let names = named.map(|(_, name)| name).join(", ");
    for unknown in ["", "admit", "Admit.before_commit", "admit.before_commit "] {
        let told = unknown.parse::<Boundary>().unwrap_err();
        assert_eq!(told, format!("{unknown:?} is no crash boundary; give one of {names}"));
    }
}

#[test]
fn a_state_is_printed_by_its_name() {
    let states = [State::Queued, State::Inflight, State::Quarantined, State::Done, State::Cancelled];
    let printed = states.map(|state| state.to_string());
    assert_eq!(printed, ["queued", "inflight", "quarantined", "done", "cancelled"]);
}
