//! Every way to spoil a frozen file in one place, and what the judge must say of each.

use super::Subject;
#[cfg(test)]
use super::compare::differences;
use super::compare::{Kind, same};
use super::read::{Document, Member, Node, Pointer, Value};

/// A document spoiled in one place.
#[derive(Clone, Debug)]
pub struct Tamper {
    pub deed: Deed,
    /// The one place that the judge must name.
    pub pointer: Pointer,
    pub document: Document,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A leaf got another value of its type.
    Changed,
    /// A node got another type: 10 became 10.0, true became 1.
    Retyped,
    /// A member or an element went.
    Removed,
    /// An object got a member; the object of entries, an entry.
    MemberAdded,
    /// An array got an element in its middle.
    ElementAdded,
}

impl Deed {
    pub const ALL: [Deed; 5] = [Deed::Changed, Deed::Retyped, Deed::Removed, Deed::MemberAdded, Deed::ElementAdded];

    pub fn name(self) -> &'static str {
        match self {
            Deed::Changed => "changed",
            Deed::Retyped => "retyped",
            Deed::Removed => "removed",
            Deed::MemberAdded => "member added",
            Deed::ElementAdded => "element added",
        }
    }

    /// What it is called when the baseline is what was spoiled: a thing removed there is an extra in what was seen.
    pub fn kind_in_baseline(self) -> Kind {
        match self {
            Deed::Changed => Kind::Value,
            Deed::Retyped => Kind::Type,
            Deed::Removed => Kind::Extra,
            Deed::MemberAdded | Deed::ElementAdded => Kind::Missing,
        }
    }
}

/// Every tamper of `original`, one at a time, in the document's order; each deed wherever it can be done, save
/// to the root and to the object of entries as a whole, without which a file can't be checked at all.
/// Every one stays readable. Places are those of the original's text.
pub fn tampers(original: &Document, subject: Subject) -> impl Iterator<Item = Tamper> {
    let mut pointers = Vec::new();
    list(original.root(), Pointer::default(), &mut pointers);
    let entries = Pointer::default().child(subject.member);
    let all = pointers.into_iter().flat_map(|pointer| Deed::ALL.map(|deed| (deed, pointer.clone())));
    all.filter_map(move |(deed, pointer)| {
        let is_vital = pointer == Pointer::default() || pointer == entries;
        match deed {
            Deed::Changed | Deed::Retyped | Deed::Removed if is_vital => None,
            Deed::Changed | Deed::Retyped | Deed::Removed | Deed::MemberAdded | Deed::ElementAdded => {
                spoil(original, deed, &pointer)
            }
        }
    })
}

/// Whether the judge, given the spoiled text as the baseline, says exactly what it must; else what it said.
#[cfg(test)]
pub fn convict(tamper: &Tamper, original: &Document) -> Result<(), String> {
    let found = differences(&tamper.document, original);
    let said: Vec<String> = found.iter().map(|d| format!("{} {}", d.kind.name(), d.pointer)).collect();
    let wanted = format!("{} {}", tamper.deed.kind_in_baseline().name(), tamper.pointer);
    if said == [wanted.as_str()] {
        return Ok(());
    }
    let said = if said.is_empty() { "nothing".to_string() } else { said.join(", ") };
    Err(format!("{}: \"{wanted}\" should be found, and {said} was", tamper.deed.name()))
}

fn list(node: &Node, at: Pointer, all: &mut Vec<Pointer>) {
    match &node.value {
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => all.push(at),
        Value::Array(elements) => {
            all.push(at.clone());
            elements.iter().enumerate().for_each(|(index, element)| list(element, at.child(index), all));
        }
        Value::Object(members) => {
            all.push(at.clone());
            members.iter().for_each(|member| list(&member.node, at.child(&member.name), all));
        }
    }
}

/// None where the deed can't be done.
fn spoil(original: &Document, deed: Deed, pointer: &Pointer) -> Option<Tamper> {
    let mut root = original.root().clone();
    let named = match deed {
        Deed::Changed => change(&mut node_at(&mut root, pointer.tokens())?.value).then(|| pointer.clone())?,
        Deed::Retyped => {
            retype(&mut node_at(&mut root, pointer.tokens())?.value);
            pointer.clone()
        }
        Deed::Removed => {
            let tokens: Vec<String> = pointer.tokens().collect();
            let (last, above) = tokens.split_last()?;
            let removed = remove(&mut node_at(&mut root, above.iter().cloned())?.value, last)?;
            above.iter().fold(Pointer::default(), |parent, token| parent.child(token)).child(removed)
        }
        Deed::MemberAdded => pointer.child(add_member(&mut node_at(&mut root, pointer.tokens())?.value)?),
        Deed::ElementAdded => pointer.child(add_element(&mut node_at(&mut root, pointer.tokens())?.value)?),
    };
    Some(Tamper { deed, pointer: named, document: Document::from_root(root) })
}

fn node_at(root: &mut Node, tokens: impl IntoIterator<Item = String>) -> Option<&mut Node> {
    tokens.into_iter().try_fold(root, |node, token| match &mut node.value {
        Value::Object(members) => members.iter_mut().find(|m| m.name == token).map(|m| &mut m.node),
        Value::Array(elements) => elements.get_mut(token.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => None,
    })
}

/// Whether there was another value of that type to change it to.
fn change(value: &mut Value) -> bool {
    match value {
        Value::Bool(flag) => *flag = !*flag,
        // Towards zero, so that it stays within what readers keep.
        Value::Integer(number) => *number = if *number == 0 { 1 } else { *number - number.signum() },
        Value::Float(literal) => *literal = if literal == "0.5" { "1.5".into() } else { "0.5".into() },
        Value::Text(text) => text.push('x'),
        Value::Null | Value::Array(_) | Value::Object(_) => return false,
    }
    true
}

fn retype(value: &mut Value) {
    *value = match value {
        Value::Null => Value::Text("null".into()),
        Value::Bool(flag) => Value::Integer(i64::from(*flag)),
        Value::Integer(number) => Value::Float(format!("{number}.0")),
        Value::Float(literal) => Value::Text(literal.clone()),
        Value::Text(_) => Value::Null,
        Value::Array(_) => Value::Object(Vec::new()),
        Value::Object(_) => Value::Array(Vec::new()),
    };
}

/// The token to be named: among equal neighbours nobody can say which one went, and the last is named.
fn remove(value: &mut Value, token: &str) -> Option<String> {
    match value {
        Value::Object(members) => {
            members.retain(|member| member.name != token);
            Some(token.to_string())
        }
        Value::Array(elements) => {
            let index: usize = token.parse().ok()?;
            let gone = elements.get(index)?;
            let equal = elements[index + 1..].iter().take_while(|next| same(gone, next)).count();
            elements.remove(index);
            Some((index + equal).to_string())
        }
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => None,
    }
}

const ADDED: &str = "added by a tamper";

fn add_member(value: &mut Value) -> Option<&'static str> {
    let Value::Object(members) = value else {
        return None;
    };
    members.push(Member { name: ADDED.to_string(), node: Value::Null.unplaced() });
    Some(ADDED)
}

fn add_element(value: &mut Value) -> Option<usize> {
    let Value::Array(elements) = value else {
        return None;
    };
    let middle = elements.len() / 2;
    elements.insert(middle, Value::Text(ADDED.to_string()).unplaced());
    Some(middle)
}
