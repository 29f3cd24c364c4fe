//! JSON (RFC 8259) read strictly, with the pointer of every mistake.
//!
//! A general-purpose library would tell a line and a column; a person who has a model of 100 000 chains
//! needs `/chains/71/forward_mbps`. The reader streams, so that a hostile file fails at its first wrong
//! byte instead of after it has filled memory, and it refuses what RFC 8259 leaves open: duplicate names,
//! numbers beyond double precision, and nesting deeper than [`parse::MAX_DEPTH`].

mod parse;
mod view;
mod write;

pub use parse::{MAX_DEPTH, parse};
pub use view::{Fields, Place};
pub use write::Writer;

/// One JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Any number; always finite.
    Number(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Value>),
    /// An object, in the order written; names are unique.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// The JSON name of the value's type, for error messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }
}
