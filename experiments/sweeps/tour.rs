//! One walk through all verbs, all answers and all states of a task: what the disk sweeps record.

use crate::model::{Request, Token, Verb};

/// Read-only verbs are not in it: they leave nothing on a disk.
pub fn tour() -> Vec<Verb> {
    let admit = |id: &str, tenant: &str, payload: &str| Verb::Admit(Request::new(id, tenant, payload));
    let token = |id: &str, generation| Token { request_id: id.to_owned(), generation };
    let cancel = |id: &str| Verb::CancelUnstarted { request_id: id.to_owned() };
    vec![
        admit("one", "a", "abc"),
        admit("two", "a", "later withdrawn"),
        // Tenant `a` holds its two: refused, and nothing bound.
        admit("three", "a", "first body"),
        admit("one", "a", "abc"),
        admit("one", "b", "abc"),
        cancel("two"),
        admit("three", "a", "second body"),
        admit("long", "b", &"x".repeat(97)),
        Verb::Claim { tick: 0 },
        cancel("one"),
        Verb::Resolve { token: token("one", 1), tick: 1 },
        Verb::Resolve { token: token("one", 1), tick: 1 },
        Verb::Claim { tick: 2 },
        // The lease of `three` is due exactly: reclaimed, and the old token reports in vain.
        Verb::Claim { tick: 7 },
        Verb::Resolve { token: token("three", 1), tick: 7 },
        Verb::Quarantine { token: token("three", 2), tick: 8 },
        Verb::Redrive { token: token("three", 2) },
        Verb::Claim { tick: 9 },
        admit("four", "b", &"門".repeat(30)),
        Verb::Resolve { token: token("three", 4), tick: 10 },
        // Nothing is due, yet the tick is stored.
        Verb::Claim { tick: 11 },
        Verb::Claim { tick: 12 },
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{FIXTURE, State, step};

    #[test]
    fn the_tour_hears_every_answer_that_writes_and_errs_nowhere() {
        let mut before = State::default();
        let mut heard = BTreeSet::new();
        for verb in tour() {
            let (after, answer) = step(&FIXTURE, &before, &verb).expect("no verb of the tour is an error");
            heard.insert(answer.name());
            before = after;
        }
        let all = [
            "accepted",
            "cancelled",
            "claimed",
            "conflict",
            "done",
            "not_cancelled",
            "nothing",
            "oversize",
            "quarantined",
            "replay",
            "requeued",
            "stale",
            "tenant_full",
        ];
        assert_eq!(heard, BTreeSet::from(all));
    }
}
