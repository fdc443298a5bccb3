//! Strict JSON reading: every node knows its place, and what other readers let pass or round is a named error.
//!
//! Line ends between values, key order and the final newline are no part of a value. Line ends inside strings are.

use std::collections::HashMap;
use std::fmt;

use thiserror::Error;

/// Values nested deeper than this are refused: the reader recurses, and a frozen file is not deep.
pub const DEEPEST: usize = 64;

/// The largest integer (2^53 - 1, either sign) that every JSON reader keeps; beyond it two numbers may read as one.
pub const LARGEST_INTEGER: i64 = (1 << 53) - 1;

/// Where something starts: line and column from 1, the column in characters (not bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// A whole file as read.
#[derive(Clone, Debug)]
pub struct Document {
    root: Node,
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub place: Place,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// Within ±[`LARGEST_INTEGER`].
    Integer(i64),
    /// Anything with a fraction or an exponent, and `-0`: kept as written, never equal to an integer.
    Float(String),
    Text(String),
    Array(Vec<Node>),
    /// In the order of the text; no name twice.
    Object(Vec<Member>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub name: String,
    pub node: Node,
}

/// An RFC 6901 JSON Pointer; the root is the empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer(String);

/// Why a text was not taken, and where. Its text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {}, column {}, at {}: {fault}", place.line, place.column, pointer.in_words())]
pub struct ReadError {
    pub fault: Fault,
    /// The value being read; for a key that is there twice, that member.
    pub pointer: Pointer,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    #[error("the text is empty; restore the file from version control")]
    Empty,
    #[error("the text starts with a byte order mark; save it as UTF-8 without one")]
    ByteOrderMark,
    #[error("byte {byte} (from 0) is not UTF-8; save the text as UTF-8")]
    NotUtf8 { byte: usize },
    #[error("the key {name:?} is there twice, first on line {}, and readers disagree which counts; keep one", first.line)]
    KeyTwice { name: String, first: Place },
    #[error("text goes on after the value has ended; remove what follows")]
    TrailingText,
    #[error("{literal} is beyond ±(2^53 - 1), so JSON readers would round it; write it as a string, or smaller")]
    IntegerTooLarge { literal: String },
    #[error("{escape} is half a surrogate pair and no character; write the pair, or the character itself")]
    LoneSurrogate { escape: String },
    #[error("the control character U+{code:04X} stands bare in a string; write it as \\u{code:04x}")]
    BareControl { code: u32 },
    #[error("values are nested deeper than {DEEPEST}; this is not a file that this program wrote")]
    TooDeep,
    #[error("the text ends in the middle of a value: the file is torn; restore it from version control")]
    Torn,
    #[error("{found:?} where {wanted} should be; correct the line, or restore the file from version control")]
    Unexpected { found: char, wanted: &'static str },
}

impl Document {
    /// Reads a whole text; the first fault ends it.
    pub fn read(bytes: &[u8]) -> Result<Document, ReadError> {
        let text = str::from_utf8(bytes).map_err(|error| {
            let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            ReadError {
                fault: Fault::NotUtf8 { byte: error.valid_up_to() },
                pointer: Pointer::default(),
                place: good.chars().fold(Place::START, Place::after),
            }
        })?;
        let mut reader = Reader { rest: text, place: Place::START, pointer: Pointer::default(), depth: 0 };
        if text.starts_with('\u{feff}') {
            return Err(reader.error(Fault::ByteOrderMark));
        }
        reader.skip_space();
        if reader.rest.is_empty() {
            return Err(reader.error(Fault::Empty));
        }
        let root = reader.node()?;
        reader.skip_space();
        if !reader.rest.is_empty() {
            return Err(reader.error(Fault::TrailingText));
        }
        Ok(Document { root })
    }

    /// A document made of another's parts; places stay those of the texts that the parts came from.
    pub fn from_root(root: Node) -> Document {
        Document { root }
    }

    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The members of the top-level object `member`; none where there is no such object.
    pub fn entries(&self, member: &str) -> &[Member] {
        match self.root.member(member).map(|node| &node.value) {
            Some(Value::Object(entries)) => entries,
            Some(_) | None => &[],
        }
    }
}

impl Node {
    /// The member of that name, if this is an object that has it.
    pub fn member(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Object(members) => members.iter().find(|m| m.name == name).map(|m| &m.node),
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) | Value::Array(_) => {
                None
            }
        }
    }
}

impl Value {
    /// The type by which values are told apart: an integer and a float are two.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Integer(_) => "integer",
            Value::Float(_) => "float",
            Value::Text(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }
}

impl Place {
    pub const START: Place = Place { line: 1, column: 1 };

    fn after(self, passed: char) -> Place {
        match passed {
            '\n' => Place { line: self.line + 1, column: 1 },
            _ => Place { line: self.line, column: self.column + 1 },
        }
    }
}

impl Pointer {
    /// This pointer, one step down.
    pub fn child(&self, token: impl fmt::Display) -> Pointer {
        let mut child = self.clone();
        child.push(token);
        child
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The reference tokens from the root down, unescaped.
    pub fn tokens(&self) -> impl Iterator<Item = String> {
        let escaped = self.0.split('/').skip(1);
        escaped.map(|token| token.replace("~1", "/").replace("~0", "~"))
    }

    fn push(&mut self, token: impl fmt::Display) {
        let token = token.to_string().replace('~', "~0").replace('/', "~1");
        self.0.push('/');
        self.0.push_str(&token);
    }

    fn in_words(&self) -> &str {
        if self.0.is_empty() { "the root" } else { &self.0 }
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

struct Reader<'t> {
    rest: &'t str,
    place: Place,
    /// What is being read now; an error leaves it where it was, which is where the error is.
    pointer: Pointer,
    depth: usize,
}

impl Reader<'_> {
    fn node(&mut self) -> Result<Node, ReadError> {
        let place = self.place;
        let value = match self.peek()? {
            '{' => self.nested(Self::object)?,
            '[' => self.nested(Self::array)?,
            '"' => Value::Text(self.string()?),
            't' => self.word("true", Value::Bool(true))?,
            'f' => self.word("false", Value::Bool(false))?,
            'n' => self.word("null", Value::Null)?,
            '-' | '0'..='9' => self.number()?,
            found => return Err(self.unexpected(found, "a value")),
        };
        Ok(Node { place, value })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, ReadError>) -> Result<Value, ReadError> {
        if self.depth == DEEPEST {
            return Err(self.error(Fault::TooDeep));
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, ReadError> {
        let mut members: Vec<Member> = Vec::new();
        let mut first_places = HashMap::new();
        self.take('{', "'{'")?;
        self.skip_space();
        if self.take_if('}')? {
            return Ok(Value::Object(members));
        }
        loop {
            self.skip_space();
            let place = self.place;
            if self.peek()? != '"' {
                return Err(self.unexpected(self.peek()?, "a key in double quotes"));
            }
            let name = self.string()?;
            let outside = self.pointer.0.len();
            self.pointer.push(&name);
            if let Some(first) = first_places.insert(name.clone(), place) {
                return Err(self.error_at(place, Fault::KeyTwice { name, first }));
            }
            self.skip_space();
            self.take(':', "':'")?;
            self.skip_space();
            let node = self.node()?;
            self.pointer.0.truncate(outside);
            members.push(Member { name, node });
            self.skip_space();
            if self.take_if('}')? {
                return Ok(Value::Object(members));
            }
            self.take(',', "',' or '}'")?;
        }
    }

    fn array(&mut self) -> Result<Value, ReadError> {
        let mut elements = Vec::new();
        self.take('[', "'['")?;
        self.skip_space();
        if self.take_if(']')? {
            return Ok(Value::Array(elements));
        }
        loop {
            self.skip_space();
            let outside = self.pointer.0.len();
            self.pointer.push(elements.len());
            elements.push(self.node()?);
            self.pointer.0.truncate(outside);
            self.skip_space();
            if self.take_if(']')? {
                return Ok(Value::Array(elements));
            }
            self.take(',', "',' or ']'")?;
        }
    }

    fn string(&mut self) -> Result<String, ReadError> {
        let mut text = String::new();
        self.take('"', "a string")?;
        loop {
            let place = self.place;
            match self.peek()? {
                '"' => {
                    self.bump();
                    return Ok(text);
                }
                '\\' => text.push(self.escape()?),
                bare if bare < ' ' => {
                    return Err(self.error_at(place, Fault::BareControl { code: bare.into() }));
                }
                plain => {
                    self.bump();
                    text.push(plain);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, ReadError> {
        let place = self.place;
        self.bump();
        let meant = match self.peek()? {
            'u' => return self.unicode_escape(place),
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            same @ ('"' | '\\' | '/') => same,
            found => return Err(self.unexpected(found, "one of \"\\/bfnrtu after a backslash")),
        };
        self.bump();
        Ok(meant)
    }

    fn unicode_escape(&mut self, place: Place) -> Result<char, ReadError> {
        let first = self.hex()?;
        let lone = |reader: &Self| {
            let escape = format!("\\u{first:04x}");
            reader.error_at(place, Fault::LoneSurrogate { escape })
        };
        if let Some(single) = char::from_u32(first) {
            return Ok(single);
        }
        if first >= 0xDC00 || !self.rest.starts_with("\\u") {
            return Err(lone(self));
        }
        self.bump();
        let second = self.hex()?;
        if !(0xDC00..0xE000).contains(&second) {
            return Err(lone(self));
        }
        let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        char::from_u32(code).ok_or_else(|| lone(self))
    }

    /// The four digits after the `u` that comes next.
    fn hex(&mut self) -> Result<u32, ReadError> {
        self.take('u', "'u'")?;
        let mut code = 0;
        for _ in 0..4 {
            let found = self.peek()?;
            let Some(digit) = found.to_digit(16) else {
                return Err(self.unexpected(found, "a hexadecimal digit"));
            };
            self.bump();
            code = code * 16 + digit;
        }
        Ok(code)
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, ReadError> {
        for letter in word.chars() {
            self.take(letter, word)?;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, ReadError> {
        let place = self.place;
        let start = self.rest;
        self.take_if('-')?;
        // RFC 8259 allows no leading zero: "01" is a 0 with something odd behind it.
        if !self.take_if('0')? {
            self.digits()?;
        }
        let mut is_float = false;
        if self.rest.starts_with('.') {
            is_float = true;
            self.bump();
            self.digits()?;
        }
        if self.rest.starts_with(['e', 'E']) {
            is_float = true;
            self.bump();
            if self.rest.starts_with(['+', '-']) {
                self.bump();
            }
            self.digits()?;
        }
        let literal = start[..start.len() - self.rest.len()].to_string();
        // Readers that keep "-0" keep it as a float.
        if is_float || literal == "-0" {
            return Ok(Value::Float(literal));
        }
        match literal.parse::<i64>() {
            Ok(kept) if (-LARGEST_INTEGER..=LARGEST_INTEGER).contains(&kept) => Ok(Value::Integer(kept)),
            Ok(_) | Err(_) => Err(self.error_at(place, Fault::IntegerTooLarge { literal })),
        }
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), ReadError> {
        let found = self.peek()?;
        if !found.is_ascii_digit() {
            return Err(self.unexpected(found, "a digit"));
        }
        while self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            self.bump();
        }
        Ok(())
    }

    fn skip_space(&mut self) {
        while self.rest.starts_with([' ', '\t', '\n', '\r']) {
            self.bump();
        }
    }

    fn take(&mut self, wanted: char, in_words: &'static str) -> Result<(), ReadError> {
        match self.take_if(wanted)? {
            true => Ok(()),
            false => Err(self.unexpected(self.peek()?, in_words)),
        }
    }

    fn take_if(&mut self, wanted: char) -> Result<bool, ReadError> {
        let taken = self.peek()? == wanted;
        if taken {
            self.bump();
        }
        Ok(taken)
    }

    /// The next character; its absence means that the text is torn, as this is asked only inside a value.
    fn peek(&self) -> Result<char, ReadError> {
        let next = self.rest.chars().next();
        next.ok_or_else(|| self.error(Fault::Torn))
    }

    fn bump(&mut self) {
        let mut characters = self.rest.chars();
        if let Some(passed) = characters.next() {
            self.place = self.place.after(passed);
            self.rest = characters.as_str();
        }
    }

    fn unexpected(&self, found: char, wanted: &'static str) -> ReadError {
        self.error(Fault::Unexpected { found, wanted })
    }

    fn error(&self, fault: Fault) -> ReadError {
        self.error_at(self.place, fault)
    }

    fn error_at(&self, place: Place, fault: Fault) -> ReadError {
        ReadError { fault, pointer: self.pointer.clone(), place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: impl AsRef<[u8]>) -> (Fault, String, (usize, usize)) {
        let error = Document::read(text.as_ref()).expect_err("this text must be refused");
        let Place { line, column } = error.place;
        (error.fault, error.pointer.to_string(), (line, column))
    }

    fn value(text: &str) -> Value {
        let document = Document::read(text.as_bytes());
        document.expect("this text must be taken").root.value
    }

    #[test]
    fn a_key_that_is_there_twice_is_named_with_both_lines() {
        let (fault, pointer, place) = refused("{\"a\": {\n \"k/~\": 1,\n \"k\\u002f~\": 1}}");
        let first = Place { line: 2, column: 2 };
        let name = "k/~".to_string();
        assert_eq!(fault, Fault::KeyTwice { name, first });
        assert_eq!((pointer.as_str(), place), ("/a/k~1~0", (3, 2)));
    }

    #[test]
    fn columns_are_counted_in_characters() {
        let (fault, pointer, place) = refused("{\"é😀中\": [1, tru]}");
        let wanted = "true";
        assert_eq!(fault, Fault::Unexpected { found: ']', wanted });
        assert_eq!((pointer.as_str(), place), ("/é😀中/1", (1, 16)));
    }

    #[test]
    fn bytes_that_are_no_utf8_are_named_by_offset_and_place() {
        let (fault, _, place) = refused(b"{\n \"\xc3\xa9\": \"\xff\"}");
        assert_eq!(fault, Fault::NotUtf8 { byte: 10 });
        assert_eq!(place, (2, 8));
        assert_eq!(refused(b"\xff\xfe{\0}\0").0, Fault::NotUtf8 { byte: 0 });
    }

    #[test]
    fn a_byte_order_mark_is_refused() {
        assert_eq!(refused("\u{feff}{}").0, Fault::ByteOrderMark);
    }

    #[test]
    fn nothing_is_empty_and_more_than_a_value_is_trailing() {
        assert_eq!(refused("").0, Fault::Empty);
        assert_eq!(refused(" \r\n").0, Fault::Empty);
        assert_eq!(refused("{}\n{}"), (Fault::TrailingText, String::new(), (2, 1)));
        assert_eq!(refused("{}\0").0, Fault::TrailingText);
        assert_eq!(refused("01").0, Fault::TrailingText);
    }

    #[test]
    fn integers_that_readers_round_are_refused_and_the_largest_exact_one_is_kept() {
        for literal in [
            "18446744073709551616",
            "18446744073709551617",
            "9007199254740992",
            "-9007199254740992",
            "-9223372036854775808",
        ] {
            let (fault, pointer, place) = refused(format!("[0, {literal}]"));
            let literal = literal.to_string();
            assert_eq!(fault, Fault::IntegerTooLarge { literal });
            assert_eq!((pointer.as_str(), place), ("/1", (1, 5)));
        }
        assert_eq!(value("9007199254740991"), Value::Integer(LARGEST_INTEGER));
        assert_eq!(value("-9007199254740991"), Value::Integer(-LARGEST_INTEGER));
    }

    #[test]
    fn a_float_is_never_an_integer() {
        for literal in ["10.0", "1e1", "1E+1", "100e-1", "-0", "-0.0"] {
            assert_eq!(value(literal), Value::Float(literal.into()));
        }
        assert_eq!(value("0"), Value::Integer(0));
    }

    #[test]
    fn half_a_surrogate_pair_is_refused_and_a_whole_one_is_a_character() {
        for text in [
            r#"["\ud83d"]"#,
            r#"["\ude00"]"#,
            r#"["\ud83dx"]"#,
            r#"["\ud83d\ud83d"]"#,
            r#"["\ud83d\n"]"#,
            r#"["\ud83d\uffff"]"#,
        ] {
            let (fault, pointer, place) = refused(text);
            assert!(matches!(fault, Fault::LoneSurrogate { .. }), "{text}: {fault}");
            assert_eq!((pointer.as_str(), place), ("/0", (1, 3)));
        }
        assert_eq!(value(r#""\ud83d\uDE00\u00e9""#), Value::Text("😀é".into()));
    }

    #[test]
    fn control_characters_stand_bare_in_no_string() {
        assert_eq!(refused("[\"a\tb\"]"), (Fault::BareControl { code: 9 }, "/0".into(), (1, 4)));
        assert_eq!(refused("[\"a\r\nb\"]").0, Fault::BareControl { code: 13 });
        assert_eq!(value(r#""\b\f\n\r\t\/\\\"""#), Value::Text("\u{8}\u{c}\n\r\t/\\\"".into()));
    }

    #[test]
    fn nesting_has_a_bound() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Document::read(nested(DEEPEST).as_bytes()).is_ok());
        assert_eq!(refused(nested(DEEPEST + 1)).0, Fault::TooDeep);
        assert_eq!(refused("[".repeat(1_000_000)).0, Fault::TooDeep);
        // What stands side by side is not nested.
        let wide = format!("[{}]", vec!["[[]]"; 2 * DEEPEST].join(", "));
        assert!(Document::read(wide.as_bytes()).is_ok());
    }

    #[test]
    fn a_file_torn_anywhere_is_refused() {
        let whole = r#"{"a": [1, -2.5e3, true, null, "é\u00e9\n"], "b": {"c": "d"}}"#;
        assert!(Document::read(whole.as_bytes()).is_ok());
        for end in 1..whole.len() {
            let torn = Document::read(&whole.as_bytes()[..end]).expect_err("torn");
            let named = matches!(torn.fault, Fault::Torn | Fault::NotUtf8 { .. });
            assert!(named, "{end}: {torn}");
        }
    }

    #[test]
    fn what_is_not_json_is_not_taken() {
        for text in [
            "{a: 1}",
            "{'a': 1}",
            "[1,]",
            "{\"a\": 1,}",
            "[1 2]",
            "{\"a\" 1}",
            "+1",
            ".5",
            "1.",
            "1e",
            "[-]",
            "NaN",
            "[01]",
            "[\"\\x\"]",
            "[\"\\u12g4\"]",
            "[1] // no",
            "<<<<<<< HEAD\n{}",
            "\u{a0}1",
            "Infinity",
            "nul",
        ] {
            assert!(Document::read(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_says_where_what_and_what_to_do() {
        let error = Document::read(b"{\"a\": 1,\n \"a\": 2}").expect_err("twice");
        assert_eq!(
            error.to_string(),
            "line 2, column 2, at /a: the key \"a\" is there twice, first on line 1, and readers disagree which counts; keep one"
        );
        let error = Document::read(b"").expect_err("empty");
        assert!(error.to_string().starts_with("line 1, column 1, at the root: the text is empty;"));
    }

    #[test]
    fn pointer_tokens_come_back_as_they_went_in() {
        let pointer = Pointer::default().child("a/b~c").child("").child("~1").child(3);
        assert_eq!(pointer.as_str(), "/a~1b~0c//~01/3");
        assert_eq!(pointer.tokens().collect::<Vec<_>>(), ["a/b~c", "", "~1", "3"]);
        assert_eq!(Pointer::default().tokens().count(), 0);
    }
}
