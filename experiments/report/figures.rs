//! The figures of a sweep, whatever it counts: what is nested becomes tables.

use maud::{Markup, html};

use super::tree::{items, members, number, said};
use crate::baseline::read::{Member, Node, Value};
use crate::baseline::show::visible;

/// To be said below the sums, where a sweep loses and breaks what it means to.
pub fn wrong_on_purpose(sweeps: &[Member]) -> Option<&'static str> {
    sweeps.iter().any(|sweep| sweep.name == "teeth").then_some(
        "In the sweep \"teeth\" disks and settings are wrong on purpose: what is lost or broken there is what convicts them.",
    )
}

/// Sums over a sweep's rows, of the figures that sweeps have in common. `None` where it does not count such a thing.
#[derive(Debug, PartialEq, Eq)]
pub struct Totals {
    pub rounds: Option<i64>,
    pub points: Option<i64>,
    pub states: Option<i64>,
    pub images: Option<i64>,
    pub lost: Option<i64>,
    pub broken: Option<i64>,
}

impl Totals {
    pub fn of(sweep: &Node) -> Totals {
        let total = |figure| total(sweep, figure);
        Totals {
            rounds: total("rounds"),
            points: total("points"),
            states: total("states"),
            images: total("images"),
            lost: total("lost"),
            broken: total("broken"),
        }
    }
}

/// A table of more columns of figures than these stands on its side.
const WIDEST: usize = 14;

/// The name of a row that is the sum of its neighbours.
const ALL: &str = "all";

/// What is counted above is not counted again below.
fn total(node: &Node, figure: &str) -> Option<i64> {
    let of_all = || members(node).iter().find(|member| member.name == ALL).and_then(|all| total(&all.node, figure));
    let inner = members(node).iter().map(|member| &member.node).chain(items(node));
    let below = || inner.filter_map(|inner| total(inner, figure)).reduce(i64::saturating_add);
    number(node, &[figure]).or_else(of_all).or_else(below)
}

/// A part of the figures, as it is shown.
#[derive(Debug, PartialEq)]
pub enum Block {
    /// Names and values.
    Facts(Vec<(String, String)>),
    Table {
        head: Vec<String>,
        rows: Vec<Vec<String>>,
    },
    Section {
        name: String,
        blocks: Vec<Block>,
    },
}

/// `sweep`: an object; the sentence in it is left to the caller.
pub fn blocks(sweep: &Node) -> Vec<Block> {
    let figures = members(sweep).iter().filter(|member| member.name != "shows");
    blocks_of(&figures.collect::<Vec<_>>())
}

fn blocks_of(all: &[&Member]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let facts = all.iter().filter(|member| !is_nested(&member.node));
    let facts: Vec<_> = facts.map(|member| (visible(&member.name), said(&member.node))).collect();
    if !facts.is_empty() {
        blocks.push(Block::Facts(facts));
    }
    let nested: Vec<&&Member> = all.iter().filter(|member| is_nested(&member.node)).collect();
    let sum = nested.iter().find(|member| member.name == ALL && is_row(&member.node));
    let tables = nested.iter().filter(|member| rows_of(&member.node).is_some_and(|rows| rows.len() > 1)).count();
    for member in &nested {
        let name = in_words(&member.name);
        match rows_of(&member.node) {
            // It stands in the one table, as a row of its own.
            Some(_) if member.name == ALL && sum.is_some() && tables == 1 => {}
            Some(mut rows) if rows.len() > 1 || !objects(&member.node).is_empty() => {
                rows.extend(sum.filter(|_| tables == 1).map(|sum| (vec![ALL.to_owned()], &sum.node)));
                blocks.push(table(&name, &rows));
            }
            // Rows too deep for a table: one part after the other.
            None if !objects(&member.node).is_empty() => {
                let parts = objects(&member.node).iter().enumerate().map(|(index, part)| Block::Section {
                    name: format!("{name} {}", index + 1),
                    blocks: blocks_of(&members(part).iter().collect::<Vec<_>>()),
                });
                blocks.extend(parts);
            }
            Some(_) | None => blocks
                .push(Block::Section { name, blocks: blocks_of(&members(&member.node).iter().collect::<Vec<_>>()) }),
        }
    }
    blocks
}

type Row<'n> = (Vec<String>, &'n Node);

/// The rows that an object of objects comes to, each with the names that lead to it.
fn rows_of(node: &Node) -> Option<Vec<Row<'_>>> {
    if is_row(node) {
        return Some(vec![(Vec::new(), node)]);
    }
    // Items have no names; what tells them apart is in them.
    if !objects(node).is_empty() {
        return objects(node).iter().all(is_row).then(|| objects(node).iter().map(|row| (Vec::new(), row)).collect());
    }
    let mut rows = Vec::new();
    for member in members(node) {
        for (mut path, row) in rows_of(&member.node)? {
            path.insert(0, visible(&member.name));
            rows.push((path, row));
        }
    }
    (!rows.is_empty()).then_some(rows)
}

/// An object with a value of its own, and nothing deeper in it than another of values.
fn is_row(node: &Node) -> bool {
    let flat = |node: &Node| objects(node).is_empty() && members(node).iter().all(|member| !is_nested(&member.node));
    let own = members(node).iter().any(|member| !is_nested(&member.node));
    own && members(node).iter().all(|member| !is_nested(&member.node) || flat(&member.node))
}

/// An object, or a list of objects.
fn is_nested(node: &Node) -> bool {
    matches!(node.value, Value::Object(_)) || !objects(node).is_empty()
}

/// The items of a list that holds nothing but objects.
fn objects(node: &Node) -> &[Node] {
    let all = items(node);
    if all.iter().all(|item| matches!(item.value, Value::Object(_))) { all } else { &[] }
}

fn table(name: &str, rows: &[Row<'_>]) -> Block {
    let depth = rows.iter().map(|(path, _)| path.len()).max().unwrap_or_default();
    let cells: Vec<Vec<(String, String)>> = rows.iter().map(|(_, row)| cells(row)).collect();
    let mut columns: Vec<&String> = Vec::new();
    for (column, _) in cells.iter().flatten() {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let first = match name {
        "verbs" | "by verb" => "verb".to_owned(),
        other => other.to_owned(),
    };
    let head = (0..depth).map(|level| if level == 0 { first.clone() } else { "form".to_owned() });
    let head: Vec<String> = head.chain(columns.iter().map(|column| (*column).clone())).collect();
    let rows = rows.iter().zip(&cells).map(|((path, _), cells)| {
        let names = (0..depth).map(|level| path.get(level).cloned().unwrap_or_default());
        let value = |column: &String| {
            cells.iter().find(|(name, _)| name == column).map_or_else(|| "–".to_owned(), |(_, value)| value.clone())
        };
        names.chain(columns.iter().map(|column| value(column))).collect()
    });
    match depth == 1 && columns.len() > WIDEST {
        true => turned(head, rows.collect()),
        false => Block::Table { head, rows: rows.collect() },
    }
}

/// With its columns as rows, so that it fits on a page.
fn turned(head: Vec<String>, rows: Vec<Vec<String>>) -> Block {
    let mut turned = head.into_iter().enumerate().map(|(index, name)| {
        let values = rows.iter().map(|row| row.get(index).cloned().unwrap_or_default());
        [name].into_iter().chain(values).collect()
    });
    Block::Table { head: turned.next().unwrap_or_default(), rows: turned.collect() }
}

fn cells(row: &Node) -> Vec<(String, String)> {
    let mut cells = Vec::new();
    for member in members(row) {
        match members(&member.node) {
            [] => cells.push((in_words(&member.name), said(&member.node))),
            nested => cells.extend(
                nested
                    .iter()
                    .map(|inner| (format!("{} {}", in_words(&member.name), in_words(&inner.name)), said(&inner.node))),
            ),
        }
    }
    cells
}

fn in_words(name: &str) -> String {
    visible(&name.replace('_', " "))
}

pub fn shown(blocks: &[Block]) -> Markup {
    html! {
        @for block in blocks {
            @match block {
                Block::Facts(facts) => dl.facts {
                    @for (name, value) in facts { div { dt { (name) } dd { (value) } } }
                },
                Block::Table { head, rows } => div.wide { table {
                    thead { tr { @for column in head { th scope="col" { (column) } } } }
                    tbody { @for row in rows { tr {
                        @for (index, cell) in row.iter().enumerate() {
                            @if index == 0 { th scope="row" { (cell) } }
                            @else if is_number(cell) { td.number { (cell) } }
                            @else { td { (cell) } }
                        }
                    } } }
                } },
                Block::Section { name, blocks } => {
                    h4 { (name) }
                    div.inner { (shown(blocks)) }
                }
            }
        }
    }
}

fn is_number(cell: &str) -> bool {
    cell.chars().all(|character| character.is_ascii_digit() || matches!(character, ',' | '-' | '–'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::baseline::write::document_of;

    fn node(value: serde_json::Value) -> Node {
        document_of(&value).unwrap().root().clone()
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn verbs_in_forms_are_one_table_with_nested_counts_as_columns() {
        let row = |points: i64| json!({"calls": {"sync": 2, "write": 3}, "points": points});
        let figures = node(json!({"shows": "not repeated", "exit_code": 73, "verbs": {
            "admit": {"closing": row(1000), "kept": row(2)}, "claim": {"kept": {"points": 3, "lost": 0}}}}));
        let head = texts(&["verb", "form", "calls sync", "calls write", "points", "lost"]);
        let rows = vec![
            texts(&["admit", "closing", "2", "3", "1,000", "–"]),
            texts(&["admit", "kept", "2", "3", "2", "–"]),
            texts(&["claim", "kept", "–", "–", "3", "0"]),
        ];
        let facts = vec![("exit_code".to_owned(), "73".to_owned())];
        assert_eq!(blocks(&figures), [Block::Facts(facts), Block::Table { head, rows }]);
    }

    #[test]
    fn a_sum_is_a_row_of_its_table_and_is_not_counted_twice() {
        let row = |states: i64| json!({"states": states, "lost": 0});
        let run = json!({"all": row(30), "by_verb": {"admit": row(10), "claim": row(20)}, "windows": 5});
        let figures = node(json!({"runs": {"each": run.clone(), "kept": run}}));
        let totals = Totals { rounds: None, points: None, states: Some(60), images: None, lost: Some(0), broken: None };
        assert_eq!(Totals::of(&figures), totals);
        let head = texts(&["verb", "lost", "states"]);
        let rows = vec![texts(&["admit", "0", "10"]), texts(&["claim", "0", "20"]), texts(&["all", "0", "30"])];
        let section = |name: &str, blocks| Block::Section { name: name.to_owned(), blocks };
        let run = || {
            vec![
                Block::Facts(vec![("windows".to_owned(), "5".to_owned())]),
                Block::Table { head: head.clone(), rows: rows.clone() },
            ]
        };
        assert_eq!(blocks(&figures), [section("runs", vec![section("each", run()), section("kept", run())])]);
    }

    #[test]
    fn a_list_of_objects_is_a_table_and_is_counted() {
        let figures = node(json!({"ways": [{"processes": 12, "rounds": 24}, {"processes": 3, "rounds": 1}]}));
        let rows = vec![texts(&["12", "24"]), texts(&["3", "1"])];
        assert_eq!(blocks(&figures), [Block::Table { head: texts(&["processes", "rounds"]), rows }]);
        assert_eq!(Totals::of(&figures).rounds, Some(25));
    }

    #[test]
    fn a_table_too_wide_for_a_page_stands_on_its_side() {
        let row: serde_json::Map<_, _> =
            (10..10 + WIDEST + 1).map(|number| (format!("n{number}"), json!(number))).collect();
        let Block::Table { head, rows } = &blocks(&node(json!({"scenes": {"a": row, "b": {"n11": 0}}})))[0] else {
            panic!("no table");
        };
        assert_eq!(*head, texts(&["scenes", "a", "b"]));
        assert_eq!(rows[..2], [texts(&["n10", "10", "–"]), texts(&["n11", "11", "0"])]);
        assert_eq!(rows.len(), WIDEST + 1);
    }

    /// Nothing that a sweep freezes may be left out, however it is nested.
    #[test]
    fn every_value_is_shown() {
        let figures = node(
            json!({"a": [1, 2], "b": {"shows": "below", "c": {"d": {"e": {"f": "deep"}, "g": null}}, "h": {"i": true}},
            "j": {"k": {}, "l": {"m": 7001}}, "all": {"n": 7002}, "list": [{"way": "first", "o": 1}, {"way": "other", "o": {"p": {"q": "nested"}}}], "one": [{"way": "alone"}]}),
        );
        let shown = shown(&blocks(&figures)).into_string();
        for value in ["first", "other", "nested", "alone", "1, 2", "below", "deep", "true", "7,001", "7,002"] {
            assert!(shown.contains(value), "{value} in {shown}");
        }
    }
}
