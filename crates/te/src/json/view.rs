//! Typed access to a parsed document that remembers where it is.

use super::Value;
use super::parse::escape;
use crate::error::{InputError, Reason};

/// A place in the document; the pointer text is built only when an error needs it.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Name(&'a str),
    Index(usize),
}

impl<'a> Place<'a> {
    /// The whole document.
    pub const ROOT: Place<'static> = Place {
        parent: None,
        step: Step::Root,
    };

    /// The member `name` of this place.
    pub fn name(&'a self, name: &'a str) -> Place<'a> {
        Place {
            parent: Some(self),
            step: Step::Name(name),
        }
    }

    /// The entry `index` of this place.
    pub fn index(&'a self, index: usize) -> Place<'a> {
        Place {
            parent: Some(self),
            step: Step::Index(index),
        }
    }

    /// The JSON pointer (RFC 6901).
    pub fn pointer(&self) -> String {
        let mut text = self.parent.map(Place::pointer).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Name(name) => {
                text.push('/');
                text.push_str(&escape(name));
            }
            Step::Index(index) => {
                text.push('/');
                text.push_str(&index.to_string());
            }
        }
        text
    }

    /// An error at this place.
    pub fn error(&self, reason: Reason, message: impl Into<String>) -> InputError {
        InputError::new(self.pointer(), reason, message)
    }

    fn wrong_type(&self, expected: &str, found: &Value) -> InputError {
        let hint = match found {
            Value::Text(text) if expected == "a number" && text.parse::<f64>().is_ok() => {
                "; remove the quotes"
            }
            _ => "",
        };
        self.error(
            Reason::WrongType,
            format!("expected {expected}, found {}{hint}", found.type_name()),
        )
    }

    /// The value as a string that is not empty.
    pub fn text<'v>(&self, value: &'v Value) -> Result<&'v str, InputError> {
        match value {
            Value::Text(text) if text.is_empty() => {
                Err(self.error(Reason::OutOfRange, "must not be empty"))
            }
            Value::Text(text) => Ok(text),
            other => Err(self.wrong_type("a string", other)),
        }
    }

    /// The value as a list.
    pub fn list<'v>(&self, value: &'v Value) -> Result<&'v [Value], InputError> {
        match value {
            Value::List(items) => Ok(items),
            other => Err(self.wrong_type("a list", other)),
        }
    }

    /// The value as a number.
    pub fn number(&self, value: &Value) -> Result<f64, InputError> {
        match value {
            Value::Number(number) => Ok(*number),
            other => Err(self.wrong_type("a number", other)),
        }
    }

    /// The value as a number of at least zero.
    pub fn not_negative(&self, value: &Value) -> Result<f64, InputError> {
        let number = self.number(value)?;
        if number < 0.0 {
            return Err(self.error(
                Reason::OutOfRange,
                format!("{number} is negative; must be at least 0"),
            ));
        }
        Ok(number)
    }

    /// The value as a number above zero.
    pub fn positive(&self, value: &Value) -> Result<f64, InputError> {
        let number = self.not_negative(value)?;
        if number == 0.0 {
            return Err(self.error(Reason::OutOfRange, "is zero; must be above 0"));
        }
        Ok(number)
    }
}

/// An object's members, checked against the names that the contract knows.
pub struct Fields<'a> {
    /// Where the object is.
    pub place: Place<'a>,
    members: &'a [(String, Value)],
}

impl<'a> Fields<'a> {
    /// Takes `value` apart; every name must be in `known`.
    pub fn of(place: Place<'a>, value: &'a Value, known: &[&str]) -> Result<Self, InputError> {
        let Value::Object(members) = value else {
            return Err(place.wrong_type("an object", value));
        };
        for (name, _) in members {
            if !known.contains(&name.as_str()) {
                let message = format!("unknown field; known here: {}", known.join(", "));
                return Err(place.name(name).error(Reason::UnknownField, message));
            }
        }
        Ok(Self { place, members })
    }

    /// A member that may be absent.
    pub fn optional(&self, name: &str) -> Option<&'a Value> {
        self.members.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// A member that must be there.
    pub fn required(&self, name: &str) -> Result<&'a Value, InputError> {
        self.optional(name).ok_or_else(|| {
            self.place.error(
                Reason::MissingField,
                format!("the field '{name}' is missing"),
            )
        })
    }

    /// A required string that is not empty.
    pub fn text(&self, name: &str) -> Result<&'a str, InputError> {
        self.place.name(name).text(self.required(name)?)
    }

    /// A required list.
    pub fn list(&self, name: &str) -> Result<&'a [Value], InputError> {
        self.place.name(name).list(self.required(name)?)
    }

    /// A required number above zero.
    pub fn positive(&self, name: &str) -> Result<f64, InputError> {
        self.place.name(name).positive(self.required(name)?)
    }

    /// A required number of at least zero.
    pub fn not_negative(&self, name: &str) -> Result<f64, InputError> {
        self.place.name(name).not_negative(self.required(name)?)
    }

    /// An optional number of at least zero.
    pub fn not_negative_or(&self, name: &str, default: f64) -> Result<f64, InputError> {
        self.optional(name)
            .map_or(Ok(default), |v| self.place.name(name).not_negative(v))
    }

    /// An optional number above zero.
    pub fn positive_or(&self, name: &str, default: f64) -> Result<f64, InputError> {
        self.optional(name)
            .map_or(Ok(default), |v| self.place.name(name).positive(v))
    }
}
