//! Looking values up in a document, and saying them.

use crate::baseline::read::{Member, Node, Value};
use crate::baseline::show::visible;
use crate::baseline::write::on_one_line;

pub fn at<'n>(node: &'n Node, path: &[&str]) -> Option<&'n Node> {
    path.iter().try_fold(node, |node, name| node.member(name))
}

pub fn text<'n>(node: &'n Node, path: &[&str]) -> Option<&'n str> {
    match &at(node, path)?.value {
        Value::Text(text) => Some(text),
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

pub fn number(node: &Node, path: &[&str]) -> Option<i64> {
    match at(node, path)?.value {
        Value::Integer(number) => Some(number),
        Value::Null | Value::Bool(_) | Value::Float(_) | Value::Text(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The members, none where it is no object.
pub fn members(node: &Node) -> &[Member] {
    match &node.value {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) | Value::Array(_) => &[],
    }
}

/// The items, none where it is no list.
pub fn items(node: &Node) -> &[Node] {
    match &node.value {
        Value::Array(items) => items,
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) | Value::Object(_) => &[],
    }
}

/// `[count, bytes]`.
pub fn held(node: &Node) -> Option<[i64; 2]> {
    match items(node) {
        [count, bytes] => Some([number(count, &[])?, number(bytes, &[])?]),
        _ => None,
    }
}

/// As a reader would say it: text without quotes, lists with commas, numbers in groups of three, nothing hidden.
pub fn said(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => visible(text),
        Value::Integer(number) => grouped(*number),
        Value::Null => "–".to_owned(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(said).collect::<Vec<_>>().join(", "),
        Value::Object(members) if members.is_empty() => "none".to_owned(),
        Value::Object(members) => {
            let said = members
                .iter()
                .map(|member| format!("{} {}", visible(&member.name.replace('_', " ")), said(&member.node)));
            said.collect::<Vec<_>>().join(", ")
        }
        Value::Bool(_) | Value::Float(_) => visible(&on_one_line(node)),
    }
}

/// `504,577`.
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut said = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            said.push(',');
        }
        said.push(digit);
    }
    if number < 0 { format!("-{said}") } else { said }
}
