//! Command-line options: `--name value` and flags, each known to its command.

use std::collections::HashMap;

use te::error::{InputError, Reason};

/// The options of one command line.
pub struct Arguments {
    values: HashMap<String, String>,
    flags: Vec<String>,
}

fn refuse(option: &str, reason: Reason, message: impl Into<String>) -> InputError {
    InputError::new(option, reason, message).in_source("command line")
}

impl Arguments {
    /// Takes the words after the command apart. `valued` and `flags` are the options it knows, with dashes.
    pub fn parse(
        words: &[String],
        valued: &[&str],
        flags: &[&str],
    ) -> Result<Arguments, InputError> {
        let mut arguments = Arguments {
            values: HashMap::new(),
            flags: Vec::new(),
        };
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            if flags.contains(&name) && inline.is_none() {
                arguments.flags.push(name.to_owned());
            } else if valued.contains(&name) {
                let value = inline.or_else(|| rest.next().cloned());
                let value =
                    value.ok_or_else(|| refuse(name, Reason::MissingField, "needs a value"))?;
                if arguments.values.insert(name.to_owned(), value).is_some() {
                    return Err(refuse(name, Reason::Duplicate, "is given twice"));
                }
            } else {
                let known = [valued, flags].concat().join(", ");
                return Err(refuse(
                    name,
                    Reason::UnknownField,
                    format!("unknown here; known: {known}"),
                ));
            }
        }
        Ok(arguments)
    }

    /// Whether a flag is set.
    pub fn flag(&self, name: &str) -> bool {
        self.flags.iter().any(|f| f == name)
    }

    /// An option's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The value of an option that must be given.
    pub fn required(&self, name: &str) -> Result<&str, InputError> {
        self.get(name)
            .ok_or_else(|| refuse(name, Reason::MissingField, "is missing"))
    }

    /// A number of at least `least`.
    pub fn number(&self, name: &str, default: f64, least: f64) -> Result<f64, InputError> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number >= least => Ok(number),
            _ => Err(refuse(
                name,
                Reason::OutOfRange,
                format!("'{text}' is no number of at least {least}"),
            )),
        }
    }

    /// A whole number of at least `least`.
    pub fn count(&self, name: &str, default: u64, least: u64) -> Result<u64, InputError> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        match text.parse::<u64>() {
            Ok(number) if number >= least => Ok(number),
            _ => Err(refuse(
                name,
                Reason::OutOfRange,
                format!("'{text}' is no whole number of at least {least}"),
            )),
        }
    }

    /// One of several words.
    pub fn choice<T: Copy>(
        &self,
        name: &str,
        default: T,
        choices: &[(&str, T)],
    ) -> Result<T, InputError> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        choices
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, choice)| *choice)
            .ok_or_else(|| {
                let known: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                refuse(
                    name,
                    Reason::UnknownChoice,
                    format!("'{text}' is unknown; known: {}", known.join(", ")),
                )
            })
    }
}
