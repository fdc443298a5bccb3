//! The one canonical text of a value: two-space indent, LF, a final newline, non-ASCII as itself, members in their
//! order, and a list of whole numbers on one line, such as a usage `[1, 3]`.

use serde::Serialize;
use thiserror::Error;

use super::read::{Document, Node, Place, ReadError, Value};

/// A value that the frozen format can't hold.
#[derive(Debug, Error)]
pub enum NotFreezable {
    #[error("this value has no JSON form ({0}); that is a fault of this program, please report it")]
    NoJson(#[from] serde_json::Error),
    #[error("this value would not be read back ({0}); that is a fault of this program, please report it")]
    NotReadable(#[from] ReadError),
}

/// What was seen, in the form in which it is compared: members in the order of the struct's fields. It goes through
/// the canonical text and the strict reader, so that nothing can be frozen that `--check` would then refuse.
/// A float that is NaN or infinite becomes null, as JSON has neither.
pub fn document_of(seen: &impl Serialize) -> Result<Document, NotFreezable> {
    Ok(Document::read(serde_json::to_string_pretty(seen)?.as_bytes())?)
}

/// The text of a whole file.
pub fn canonical(root: &Node) -> String {
    let mut text = String::new();
    write(root, Layout::Lines { depth: 0 }, &mut text);
    text.push('\n');
    text
}

/// A value on one line, for messages.
pub fn on_one_line(node: &Node) -> String {
    let mut text = String::new();
    write(node, Layout::OneLine, &mut text);
    text
}

/// A JSON string with its quotes.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Value {
    /// This value as a node of a text that is yet to be written.
    pub fn unplaced(self) -> Node {
        Node { place: Place::START, value: self }
    }
}

#[derive(Clone, Copy)]
enum Layout {
    Lines { depth: usize },
    OneLine,
}

impl Layout {
    fn deeper(self) -> Layout {
        match self {
            Layout::Lines { depth } => Layout::Lines { depth: depth + 1 },
            Layout::OneLine => Layout::OneLine,
        }
    }

    fn open(self, text: &mut String) {
        match self {
            Layout::Lines { depth } => {
                text.push('\n');
                text.push_str(&"  ".repeat(depth));
            }
            Layout::OneLine => {}
        }
    }

    fn separator(self) -> &'static str {
        match self {
            Layout::Lines { .. } => ",",
            Layout::OneLine => ", ",
        }
    }
}

fn write(node: &Node, layout: Layout, text: &mut String) {
    match &node.value {
        Value::Null => text.push_str("null"),
        Value::Bool(flag) => text.push_str(&flag.to_string()),
        Value::Integer(number) => text.push_str(&number.to_string()),
        Value::Float(literal) => text.push_str(literal),
        Value::Text(content) => text.push_str(&quoted(content)),
        Value::Array(elements) if elements.iter().all(|element| matches!(element.value, Value::Integer(_))) => {
            list(('[', ']'), elements, Layout::OneLine, text, write);
        }
        Value::Array(elements) => list(('[', ']'), elements, layout, text, write),
        Value::Object(members) => list(('{', '}'), members, layout, text, |member, layout, text| {
            text.push_str(&quoted(&member.name));
            text.push_str(": ");
            write(&member.node, layout, text);
        }),
    }
}

fn list<T>(
    (open, close): (char, char),
    items: &[T],
    layout: Layout,
    text: &mut String,
    write_item: impl Fn(&T, Layout, &mut String),
) {
    text.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push_str(layout.separator());
        }
        layout.deeper().open(text);
        write_item(item, layout.deeper(), text);
    }
    if !items.is_empty() {
        layout.open(text);
    }
    text.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Odd {
        zebra: i64,
        empty: Vec<u8>,
        apple: std::collections::BTreeMap<String, Option<String>>,
        float: f64,
        nested: Vec<Vec<bool>>,
    }

    fn odd() -> Odd {
        let text = "é中😀\u{7f}\u{1b}[31m\n\r\t\"\\/\u{2028}\u{202e}\0";
        Odd {
            zebra: -9007199254740991,
            empty: vec![],
            apple: [(text.to_string(), Some(text.to_string())), (String::new(), None)].into(),
            float: 10.0,
            nested: vec![vec![], vec![true, false]],
        }
    }

    #[test]
    fn canonical_text_is_what_serde_json_writes() {
        let expected = serde_json::to_string_pretty(&odd()).expect("serializes") + "\n";
        let document = document_of(&odd()).expect("readable");
        assert_eq!(canonical(document.root()), expected);
        assert!(expected.find("zebra") < expected.find("apple"));
    }

    #[test]
    fn whole_numbers_alone_share_a_line() {
        let document = Document::read(br#"{"usage": [1, 3], "mixed": [1, 0.5]}"#).expect("readable");
        let expected = "{\n  \"usage\": [1, 3],\n  \"mixed\": [\n    1,\n    0.5\n  ]\n}\n";
        assert_eq!(canonical(document.root()), expected);
    }

    #[test]
    fn canonical_text_reads_back_to_itself() {
        let once = canonical(document_of(&odd()).expect("readable").root());
        let again = canonical(Document::read(once.as_bytes()).expect("readable").root());
        assert_eq!(once, again);
    }

    #[test]
    fn what_check_would_refuse_is_not_frozen() {
        let error = document_of(&[u64::MAX]).expect_err("too large");
        assert!(error.to_string().contains("18446744073709551615 is beyond"), "{error}");
        let by_unit = std::collections::BTreeMap::from([((), 1)]);
        assert!(matches!(document_of(&by_unit), Err(NotFreezable::NoJson(_))));
    }

    #[test]
    fn one_line_is_the_same_value() {
        let document = document_of(&odd()).expect("readable");
        let line = on_one_line(document.root());
        assert_eq!(line.lines().count(), 1);
        let back = Document::read(line.as_bytes()).expect("readable");
        assert_eq!(canonical(back.root()), canonical(document.root()));
    }
}
