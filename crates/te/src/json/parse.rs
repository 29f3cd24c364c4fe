//! The parser: recursive descent over a byte stream.

use std::collections::HashSet;
use std::io::Read;

use super::Value;
use crate::error::{InputError, Reason};

/// Deepest nesting accepted; a model needs six levels.
pub const MAX_DEPTH: usize = 32;

/// Objects with more names than this use a set to find duplicates.
const LINEAR_NAMES: usize = 24;

enum Step {
    Name(String),
    Index(usize),
}

struct Parser<R> {
    reader: R,
    buffer: Vec<u8>,
    position: usize,
    filled: usize,
    consumed: u64,
    path: Vec<Step>,
}

/// Reads one JSON document to its end.
///
/// # Errors
/// [`Reason::Unreadable`], [`Reason::Syntax`], [`Reason::TooDeep`], [`Reason::Duplicate`] or
/// [`Reason::OutOfRange`], with the pointer of the value being read.
pub fn parse(reader: impl Read) -> Result<Value, InputError> {
    let mut parser = Parser {
        reader,
        buffer: vec![0; 1 << 16],
        position: 0,
        filled: 0,
        consumed: 0,
        path: Vec::new(),
    };
    let value = parser.value()?;
    if let Some(byte) = parser.skip_space()? {
        return Err(parser.syntax(format!(
            "expected the end of the document, found {}",
            show(byte)
        )));
    }
    Ok(value)
}

fn show(byte: u8) -> String {
    if byte.is_ascii_graphic() {
        format!("'{}'", byte as char)
    } else {
        format!("byte 0x{byte:02x}")
    }
}

/// Escapes a name for a JSON pointer (RFC 6901 section 3).
pub(super) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

impl<R: Read> Parser<R> {
    fn pointer(&self) -> String {
        let mut text = String::new();
        for step in &self.path {
            text.push('/');
            match step {
                Step::Name(name) => text.push_str(&escape(name)),
                Step::Index(index) => text.push_str(&index.to_string()),
            }
        }
        text
    }

    fn fail(&self, reason: Reason, message: String) -> InputError {
        InputError::new(self.pointer(), reason, message)
    }

    fn syntax(&self, message: String) -> InputError {
        let offset = self.consumed + self.position as u64;
        self.fail(Reason::Syntax, format!("{message} (byte {offset})"))
    }

    fn cut_short(&self) -> InputError {
        self.syntax("the document ends in the middle; is the file cut short?".into())
    }

    #[inline]
    fn peek(&mut self) -> Result<Option<u8>, InputError> {
        if self.position == self.filled {
            self.refill()?;
            if self.filled == 0 {
                return Ok(None);
            }
        }
        Ok(Some(self.buffer[self.position]))
    }

    fn refill(&mut self) -> Result<(), InputError> {
        self.consumed += self.filled as u64;
        self.position = 0;
        self.filled = 0;
        loop {
            match self.reader.read(&mut self.buffer) {
                Ok(count) => {
                    self.filled = count;
                    return Ok(());
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.fail(Reason::Unreadable, format!("cannot read: {e}"))),
            }
        }
    }

    fn skip_space(&mut self) -> Result<Option<u8>, InputError> {
        while let Some(byte) = self.peek()? {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Ok(Some(byte));
            }
            self.position += 1;
        }
        Ok(None)
    }

    fn value(&mut self) -> Result<Value, InputError> {
        if self.path.len() > MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH} levels");
            return Err(self.fail(Reason::TooDeep, message));
        }
        match self.skip_space()?.ok_or_else(|| self.cut_short())? {
            b'{' => self.object(),
            b'[' => self.list(),
            b'"' => Ok(Value::Text(self.string()?)),
            b'-' | b'0'..=b'9' => self.number(),
            byte if byte.is_ascii_alphabetic() => self.word(),
            byte => Err(self.syntax(format!("expected a value, found {}", show(byte)))),
        }
    }

    fn word(&mut self) -> Result<Value, InputError> {
        let mut word = String::new();
        while let Some(byte) = self.peek()? {
            if !byte.is_ascii_alphanumeric() || word.len() >= 16 {
                break;
            }
            word.push(byte as char);
            self.position += 1;
        }
        match word.as_str() {
            "null" => Ok(Value::Null),
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            "NaN" | "Infinity" | "nan" | "inf" => Err(self.fail(
                Reason::OutOfRange,
                format!("{word} is no number; give a finite one"),
            )),
            _ => Err(self.syntax(format!("'{word}' is no JSON value"))),
        }
    }

    fn number(&mut self) -> Result<Value, InputError> {
        let mut text = String::with_capacity(24);
        while let Some(byte) = self.peek()? {
            if !matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') || text.len() > 400 {
                break;
            }
            text.push(byte as char);
            self.position += 1;
        }
        if text == "-" && self.peek()?.is_some_and(|b| b.is_ascii_alphabetic()) {
            return self
                .word()
                .and_then(|_| Err(self.syntax("'-' must begin a number".into())));
        }
        if !is_json_number(text.as_bytes()) {
            return Err(self.syntax(format!("'{text}' is no JSON number")));
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Value::Number(number)),
            _ => Err(self.fail(
                Reason::OutOfRange,
                format!("{text} is beyond double precision"),
            )),
        }
    }

    fn list(&mut self) -> Result<Value, InputError> {
        self.position += 1;
        let mut items = Vec::new();
        if self.skip_space()? == Some(b']') {
            self.position += 1;
            return Ok(Value::List(items));
        }
        loop {
            self.path.push(Step::Index(items.len()));
            items.push(self.value()?);
            self.path.pop();
            match self.skip_space()?.ok_or_else(|| self.cut_short())? {
                b',' => self.position += 1,
                b']' => {
                    self.position += 1;
                    return Ok(Value::List(items));
                }
                byte => {
                    return Err(self.syntax(format!("expected ',' or ']', found {}", show(byte))));
                }
            }
        }
    }

    fn object(&mut self) -> Result<Value, InputError> {
        self.position += 1;
        let mut members: Vec<(String, Value)> = Vec::new();
        let mut names: HashSet<String> = HashSet::new();
        if self.skip_space()? == Some(b'}') {
            self.position += 1;
            return Ok(Value::Object(members));
        }
        loop {
            let name = self.member_name()?;
            let repeated = if members.len() < LINEAR_NAMES {
                members.iter().any(|(n, _)| *n == name)
            } else {
                if names.is_empty() {
                    names.extend(members.iter().map(|(n, _)| n.clone()));
                }
                !names.insert(name.clone())
            };
            self.path.push(Step::Name(name.clone()));
            if repeated {
                let message = format!("the name '{name}' appears twice in this object");
                return Err(self.fail(Reason::Duplicate, message));
            }
            let value = self.value()?;
            self.path.pop();
            members.push((name, value));
            match self.skip_space()?.ok_or_else(|| self.cut_short())? {
                b',' => self.position += 1,
                b'}' => {
                    self.position += 1;
                    return Ok(Value::Object(members));
                }
                byte => {
                    return Err(self.syntax(format!("expected ',' or '}}', found {}", show(byte))));
                }
            }
        }
    }

    fn member_name(&mut self) -> Result<String, InputError> {
        match self.skip_space()?.ok_or_else(|| self.cut_short())? {
            b'"' => {}
            byte => {
                return Err(self.syntax(format!("expected a name in quotes, found {}", show(byte))));
            }
        }
        let name = self.string()?;
        match self.skip_space()?.ok_or_else(|| self.cut_short())? {
            b':' => self.position += 1,
            byte => return Err(self.syntax(format!("expected ':', found {}", show(byte)))),
        }
        Ok(name)
    }

    fn string(&mut self) -> Result<String, InputError> {
        self.position += 1;
        let mut bytes = Vec::new();
        loop {
            let byte = self.peek()?.ok_or_else(|| self.cut_short())?;
            self.position += 1;
            match byte {
                b'"' => break,
                b'\\' => self.escape_sequence(&mut bytes)?,
                0..=0x1f => {
                    return Err(
                        self.syntax(format!("control character 0x{byte:02x} inside a string"))
                    );
                }
                _ => bytes.push(byte),
            }
        }
        String::from_utf8(bytes).map_err(|_| self.syntax("a string that is not UTF-8".into()))
    }

    fn escape_sequence(&mut self, bytes: &mut Vec<u8>) -> Result<(), InputError> {
        let byte = self.peek()?.ok_or_else(|| self.cut_short())?;
        self.position += 1;
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let character = self.unicode_escape()?;
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.syntax(format!("unknown escape \\{}", show(byte)))),
        };
        bytes.push(plain);
        Ok(())
    }

    fn unicode_escape(&mut self) -> Result<char, InputError> {
        let first = self.hex4()?;
        let code = if (0xd800..0xdc00).contains(&first) {
            for expected in [b'\\', b'u'] {
                if self.peek()? != Some(expected) {
                    return Err(self.syntax("half of a surrogate pair".into()));
                }
                self.position += 1;
            }
            let second = self.hex4()?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err(self.syntax("half of a surrogate pair".into()));
            }
            0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| self.syntax("half of a surrogate pair".into()))
    }

    fn hex4(&mut self) -> Result<u32, InputError> {
        let mut code = 0;
        for _ in 0..4 {
            let byte = self.peek()?.ok_or_else(|| self.cut_short())?;
            let digit = (byte as char).to_digit(16);
            code = code * 16
                + digit.ok_or_else(|| self.syntax("\\u needs four hexadecimal digits".into()))?;
            self.position += 1;
        }
        Ok(code)
    }
}

/// The number grammar of RFC 8259 section 6.
fn is_json_number(text: &[u8]) -> bool {
    let digits = |from: usize| {
        text[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    let mut at = usize::from(text.first() == Some(&b'-'));
    let integer = digits(at);
    if integer == 0 || (integer > 1 && text[at] == b'0') {
        return false;
    }
    at += integer;
    if text.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        if fraction == 0 {
            return false;
        }
        at += 1 + fraction;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let exponent = if at <= text.len() { digits(at) } else { 0 };
        if exponent == 0 {
            return false;
        }
        at += exponent;
    }
    at == text.len()
}
