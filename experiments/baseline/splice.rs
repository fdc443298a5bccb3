//! Some entries replaced, all else left as it was.

use super::Subject;
use super::read::{Document, Member, Node, Value};

/// `baseline` with the entries that `seen` has put in place of those of the same name, or added. Its other entries and
/// top-level members keep their values, whatever `seen` says of them. The entries come in the order of `order`; those it doesn't
/// name follow in the baseline's order.
///
/// Where `baseline` has no object of entries (it was not taken by `load`), there is nothing to keep, and `seen` is
/// returned as it is.
pub fn splice(baseline: &Document, seen: &Document, subject: Subject, order: &[&str]) -> Document {
    let Value::Object(top) = &baseline.root().value else {
        return seen.clone();
    };
    let mut members = top.clone();
    let held = members.iter_mut().find(|member| member.name == subject.member);
    let Some(Member { node: Node { value: Value::Object(entries), .. }, .. }) = held else {
        return seen.clone();
    };
    let fresh = seen.entries(subject.member);
    entries.retain(|kept| fresh.iter().all(|new| new.name != kept.name));
    entries.extend_from_slice(fresh);
    // A stable sort: what the order doesn't name keeps its own.
    entries.sort_by_key(|member| order.iter().position(|name| *name == member.name).unwrap_or(order.len()));
    Document::from_root(Node { place: baseline.root().place, value: Value::Object(members) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::GROUPS;
    use crate::baseline::write::canonical;

    fn read(text: &str) -> Document {
        Document::read(text.as_bytes()).expect("test text")
    }

    #[test]
    fn only_the_selected_entries_change() {
        let baseline = read(r#"{"format": 1, "groups": {"a": [1], "b": [2], "odd": [10.0], "c": [3]}, "more": null}"#);
        let seen = read(r#"{"format": 2, "groups": {"b": [9], "d": [4]}}"#);
        let expected =
            read(r#"{"format": 1, "groups": {"a": [1], "b": [9], "c": [3], "d": [4], "odd": [10.0]}, "more": null}"#);
        let spliced = splice(&baseline, &seen, GROUPS, &["a", "b", "c", "d"]);
        assert_eq!(canonical(spliced.root()), canonical(expected.root()));
    }

    #[test]
    fn splicing_what_is_there_changes_nothing() {
        let baseline = read(r#"{"format": 1, "groups": {"a": [1], "b": [2]}}"#);
        let spliced = splice(&baseline, &baseline, GROUPS, &["a", "b"]);
        assert_eq!(canonical(spliced.root()), canonical(baseline.root()));
    }
}
