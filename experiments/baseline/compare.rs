//! Field-by-field comparison of two documents, in the baseline's order, both directions.
//!
//! Objects are compared by name, whatever the order. Arrays are ordered, and aligned: of all ways to pair their
//! elements in order, leaving some out on either side, the one that loses and changes the fewest nodes is taken, then
//! the one with the fewest differences, then the one that pairs earliest. So a changed element is compared with the one it
//! replaced, a lost one is one `missing`, an added one is one `extra`, and neither shifts what follows; among equal neighbours
//! the last counts as the lost or added one. Arrays of equal length follow the same rule, which is index by index unless a
//! shift explains more.

use super::read::{Document, Member, Node, Place, Pointer, Value};

/// One difference between the baseline and what was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// In the baseline; for an extra, its last token is its name or index in what was seen.
    pub pointer: Pointer,
    pub kind: Kind,
    /// Absent for an extra.
    pub expected: Option<Node>,
    /// Absent for a missing one.
    pub actual: Option<Node>,
    /// In the baseline's text; for an extra, where the object or array starts that lacks it.
    pub place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Same type, another value.
    Value,
    /// Another type; an integer and a float are two types.
    Type,
    /// In the baseline, not seen.
    Missing,
    /// Seen, not in the baseline.
    Extra,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Value => "value",
            Kind::Type => "type",
            Kind::Missing => "missing",
            Kind::Extra => "extra",
        }
    }
}

/// Every difference, in the baseline's order; the extras of an object after its other members, in the order seen.
pub fn differences(baseline: &Document, seen: &Document) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut collect = |path: &Path<'_>, pair: Pair<'_>, place: Place| {
        found.push(Difference {
            pointer: path.pointer(),
            kind: pair.kind(),
            expected: pair.expected().cloned(),
            actual: pair.actual().cloned(),
            place,
        });
    };
    walk(baseline.root(), seen.root(), &Path::Root, &mut collect);
    found
}

impl Document {
    /// Whether both hold the same values, so that rewriting one as the other would change only its layout.
    pub fn same_values(&self, other: &Document) -> bool {
        same(self.root(), other.root())
    }
}

/// Two nodes of one place, of which at least one is there.
#[derive(Clone, Copy)]
enum Pair<'n> {
    Both(&'n Node, &'n Node),
    Expected(&'n Node),
    Actual(&'n Node),
}

impl<'n> Pair<'n> {
    fn kind(self) -> Kind {
        match self {
            Pair::Both(e, a) if e.value.type_name() == a.value.type_name() => Kind::Value,
            Pair::Both(..) => Kind::Type,
            Pair::Expected(_) => Kind::Missing,
            Pair::Actual(_) => Kind::Extra,
        }
    }

    fn expected(self) -> Option<&'n Node> {
        match self {
            Pair::Both(expected, _) | Pair::Expected(expected) => Some(expected),
            Pair::Actual(_) => None,
        }
    }

    fn actual(self) -> Option<&'n Node> {
        match self {
            Pair::Both(_, actual) | Pair::Actual(actual) => Some(actual),
            Pair::Expected(_) => None,
        }
    }
}

/// The way down, on the stack: most walks only count, and need no text of it.
enum Path<'p> {
    Root,
    Name(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl Path<'_> {
    fn pointer(&self) -> Pointer {
        match self {
            Path::Root => Pointer::default(),
            Path::Name(parent, name) => parent.pointer().child(name),
            Path::Index(parent, index) => parent.pointer().child(index),
        }
    }
}

/// Told of every difference, with its place in the baseline.
type Sink<'s> = dyn FnMut(&Path<'_>, Pair<'_>, Place) + 's;

fn walk(expected: &Node, actual: &Node, path: &Path<'_>, sink: &mut Sink<'_>) {
    match (&expected.value, &actual.value) {
        (Value::Object(members), Value::Object(seen)) => {
            for member in members {
                let path = Path::Name(path, &member.name);
                match named(seen, &member.name) {
                    Some(actual) => walk(&member.node, actual, &path, sink),
                    None => sink(&path, Pair::Expected(&member.node), member.node.place),
                }
            }
            let extras = seen.iter().filter(|m| named(members, &m.name).is_none());
            for extra in extras {
                let path = Path::Name(path, &extra.name);
                sink(&path, Pair::Actual(&extra.node), expected.place);
            }
        }
        (Value::Array(elements), Value::Array(seen)) => {
            for step in align(elements, seen) {
                match step {
                    Step::Paired(e, a) => walk(&elements[e], &seen[a], &Path::Index(path, e), sink),
                    Step::Missing(e) => {
                        let lost = &elements[e];
                        sink(&Path::Index(path, e), Pair::Expected(lost), lost.place);
                    }
                    Step::Extra(a) => sink(&Path::Index(path, a), Pair::Actual(&seen[a]), expected.place),
                }
            }
        }
        // Two scalars, or two types: no place inside is compared.
        (expected_value, actual_value) => {
            if expected_value != actual_value {
                sink(path, Pair::Both(expected, actual), expected.place);
            }
        }
    }
}

fn named<'m>(members: &'m [Member], name: &str) -> Option<&'m Node> {
    members.iter().find(|m| m.name == name).map(|m| &m.node)
}

/// Equal in value, wherever they stand.
pub(super) fn same(left: &Node, right: &Node) -> bool {
    match (&left.value, &right.value) {
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|m| named(right, &m.name).is_some_and(|other| same(&m.node, other)))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| same(l, r))
        }
        (left, right) => left == right,
    }
}

/// One step through two arrays side by side, by index in the baseline and in what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Paired(usize, usize),
    Missing(usize),
    Extra(usize),
}

/// Nodes lost, gained or changed, then the number of differences that say so.
type Cost = (usize, usize);

/// Beyond this many pairs between the equal ends of two arrays, they are compared index by index.
const MOST_PAIRS: usize = 250_000;

/// The steps between the equal ends: what is equal there needs no second look.
fn align(expected: &[Node], actual: &[Node]) -> Vec<Step> {
    let shorter = expected.len().min(actual.len());
    let equal_pairs = expected.iter().zip(actual).take_while(|(e, a)| same(e, a));
    let head = equal_pairs.count();
    let equal_pairs = expected.iter().rev().zip(actual.iter().rev()).take_while(|(e, a)| same(e, a));
    let tail = equal_pairs.take(shorter - head).count();

    let (middle_e, middle_a) = (expected.len() - head - tail, actual.len() - head - tail);
    let middle = if middle_e.saturating_mul(middle_a) <= MOST_PAIRS {
        cheapest(&expected[head..head + middle_e], &actual[head..head + middle_a])
    } else {
        by_index(middle_e, middle_a)
    };
    let steps = middle.into_iter().map(|step| match step {
        Step::Paired(e, a) => Step::Paired(head + e, head + a),
        Step::Missing(e) => Step::Missing(head + e),
        Step::Extra(a) => Step::Extra(head + a),
    });
    steps.collect()
}

fn by_index(expected: usize, actual: usize) -> Vec<Step> {
    let both = expected.min(actual);
    let paired = (0..both).map(|i| Step::Paired(i, i));
    let rest = (both..expected).map(Step::Missing).chain((both..actual).map(Step::Extra));
    paired.chain(rest).collect()
}

/// The edit distance of the two arrays, its steps read off from the front. Because a node's loss costs its size, and a
/// change never more than loss and gain together, losing one element can't be explained any cheaper by changing others.
fn cheapest(expected: &[Node], actual: &[Node]) -> Vec<Step> {
    let plus = |left: Cost, right: Cost| (left.0 + right.0, left.1 + right.1);
    let at = |e: usize, a: usize| e * (actual.len() + 1) + a;
    // What the rest costs from (e, a) on, and the first step of the way that costs this.
    let mut best: Vec<(Cost, Option<Step>)> = vec![((0, 0), None); at(expected.len(), actual.len()) + 1];
    for e in (0..=expected.len()).rev() {
        for a in (0..=actual.len()).rev() {
            let missing =
                (e < expected.len()).then(|| (plus((size(&expected[e]), 1), best[at(e + 1, a)].0), Step::Missing(e)));
            let extra = (a < actual.len()).then(|| (plus((size(&actual[a]), 1), best[at(e, a + 1)].0), Step::Extra(a)));
            let paired = (e < expected.len() && a < actual.len()).then(|| {
                let change = cost(&expected[e], &actual[a]);
                (plus(change, best[at(e + 1, a + 1)].0), Step::Paired(e, a))
            });
            // Of equals min_by_key keeps the first, so pairing comes first.
            let choices = [paired, missing, extra].into_iter().flatten();
            if let Some((cost, step)) = choices.min_by_key(|(cost, _)| *cost) {
                best[at(e, a)] = (cost, Some(step));
            }
        }
    }
    let mut steps = Vec::new();
    let (mut e, mut a) = (0, 0);
    while let Some(step) = best[at(e, a)].1 {
        steps.push(step);
        match step {
            Step::Paired(..) => (e, a) = (e + 1, a + 1),
            Step::Missing(_) => e += 1,
            Step::Extra(_) => a += 1,
        }
    }
    steps
}

fn cost(expected: &Node, actual: &Node) -> Cost {
    let mut total = (0, 0);
    let mut add = |_: &Path<'_>, pair: Pair<'_>, _: Place| {
        let sizes = [pair.expected(), pair.actual()].map(|node| node.map_or(0, size));
        total.0 += sizes[0].max(sizes[1]);
        total.1 += 1;
    };
    walk(expected, actual, &Path::Root, &mut add);
    total
}

/// Nodes in this one, itself included.
fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => 0,
        Value::Array(elements) => elements.iter().map(size).sum(),
        Value::Object(members) => members.iter().map(|member| size(&member.node)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kind pointer` of each difference.
    fn found(baseline: &str, seen: &str) -> Vec<String> {
        let read = |text: &str| Document::read(text.as_bytes()).expect("test text");
        let found = differences(&read(baseline), &read(seen));
        let same = read(baseline).same_values(&read(seen));
        assert_eq!(same, found.is_empty(), "same_values and differences must agree");
        found.iter().map(|d| format!("{} {}", d.kind.name(), d.pointer)).collect()
    }

    #[test]
    fn key_order_and_layout_do_not_count_and_array_order_does() {
        assert!(found(r#"{"a": 1, "b": [1, 2]}"#, "{\r\n\t\"b\":[1,2],\"a\":1}").is_empty());
        assert_eq!(found("[[1, 2]]", "[[2, 1]]"), ["value /0/0", "value /0/1"]);
    }

    #[test]
    fn types_are_told_apart() {
        assert_eq!(found(r#"{"n": 10}"#, r#"{"n": 10.0}"#), ["type /n"]);
        assert_eq!(found(r#"{"n": 1}"#, r#"{"n": true}"#), ["type /n"]);
        assert_eq!(found(r#"{"n": 1}"#, r#"{"n": "1"}"#), ["type /n"]);
        assert_eq!(found("[]", "{}"), ["type "]);
        assert_eq!(found("null", "{}"), ["type "]);
        assert_eq!(found(r#"{"n": 1.5}"#, r#"{"n": 1.50}"#), ["value /n"]);
    }

    #[test]
    fn both_directions_are_found_and_extras_come_last_in_the_order_seen() {
        assert_eq!(
            found(r#"{"b": 1, "a": {"x": 1}, "c": 3}"#, r#"{"z": 0, "y": 0, "a": {}, "c": 4}"#),
            ["missing /b", "missing /a/x", "value /c", "extra /z", "extra /y"]
        );
    }

    #[test]
    fn a_lost_step_is_one_difference_wherever_it_was() {
        let steps: Vec<String> = (0..9).map(|i| format!(r#"{{"verb": "v{i}", "usage": [{i}, {i}]}}"#)).collect();
        let text = |steps: &[String]| format!("[{}]", steps.join(", "));
        for lost in 0..steps.len() {
            let mut rest = steps.clone();
            rest.remove(lost);
            assert_eq!(found(&text(&steps), &text(&rest)), [format!("missing /{lost}")]);
            assert_eq!(found(&text(&rest), &text(&steps)), [format!("extra /{lost}")]);
        }
    }

    #[test]
    fn two_lost_and_one_changed_are_three_differences() {
        let baseline = r#"[{"s": 0, "t": 0}, {"s": 1, "t": 1}, {"s": 2, "t": 2}, {"s": 3, "t": 3}, {"s": 4, "t": 4}]"#;
        let seen = r#"[{"s": 1, "t": 1}, {"s": 2, "t": 9}, {"s": 4, "t": 4}]"#;
        assert_eq!(found(baseline, seen), ["missing /0", "value /2/t", "missing /3"]);
    }

    #[test]
    fn equal_lengths_align_only_when_a_shift_explains_more() {
        assert_eq!(found("[1, 2, 3, 4, 5]", "[2, 3, 4, 5, 6]"), ["missing /0", "extra /4"]);
        assert_eq!(found("[1, 2]", "[2, 1]"), ["value /0", "value /1"]);
        assert_eq!(found("[1, 3]", "[0, 0]"), ["value /0", "value /1"]);
    }

    #[test]
    fn a_larger_element_lost_beside_a_part_of_itself_is_still_one_difference() {
        assert_eq!(found(r#"[{"a": 1, "b": 2}, {"a": 1}]"#, r#"[{"a": 1}]"#), ["missing /0"]);
        assert_eq!(found(r#"[{"a": 1}, {"a": 1, "b": 2}]"#, r#"[{"a": 1}]"#), ["missing /1"]);
        assert_eq!(found("[[1, 2, 3], [1], null]", "[[1], null]"), ["missing /0"]);
    }

    #[test]
    fn a_tie_in_what_is_lost_goes_to_fewer_differences() {
        // The changed ends keep the middle from being matched before it is weighed.
        let baseline = r#"[0, {"a": 1, "b": 2}, {"a": 1}, 0]"#;
        assert_eq!(found(baseline, r#"[1, {"a": 1}, 1]"#), ["value /0", "missing /1", "value /3"]);
    }

    #[test]
    fn a_step_changed_all_over_is_compared_with_the_one_it_replaced() {
        let baseline = r#"[{"a": 1, "b": 1, "c": 1}]"#;
        assert_eq!(found(baseline, r#"[{"a": 2, "b": 2, "c": 2}]"#), ["value /0/a", "value /0/b", "value /0/c"]);
    }

    #[test]
    fn among_equal_neighbours_the_last_is_named() {
        assert_eq!(found("[7, 7, 7, 8]", "[7, 7, 8]"), ["missing /2"]);
        assert_eq!(found("[7, 7, 8]", "[7, 7, 7, 8]"), ["extra /2"]);
    }

    #[test]
    fn very_long_arrays_lose_one_element_as_one_difference() {
        let long: Vec<String> = (0..5000).map(|i| i.to_string()).collect();
        let mut lost = long.clone();
        lost.remove(2500);
        let text = |items: &[String]| format!("[{}]", items.join(","));
        assert_eq!(found(&text(&long), &text(&lost)), ["missing /2500"]);
        let reversed: Vec<String> = long.iter().rev().cloned().collect();
        assert_eq!(found(&text(&long), &text(&reversed)).len(), 5000, "by index beyond the bound");
    }

    #[test]
    fn differences_stand_where_the_baseline_has_them() {
        let read = |text: &str| Document::read(text.as_bytes()).expect("test text");
        let baseline = read("{\n  \"a\": 1,\n  \"é\": {\n    \"b\": 2}\n}");
        let found = differences(&baseline, &read(r#"{"a": 2, "é": {"c": 3}}"#));
        let places: Vec<_> = found.iter().map(|d| (d.pointer.as_str(), d.place.line, d.place.column)).collect();
        assert_eq!(places, [("/a", 2, 8), ("/é/b", 4, 10), ("/é/c", 3, 8)]);
        assert_eq!(found[2].actual.as_ref().map(|n| &n.value), Some(&Value::Integer(3)));
        assert_eq!(found[2].expected, None);
    }
}
