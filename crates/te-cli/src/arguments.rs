//! Command-line options: `--name value` and flags, each known to its command.

use std::collections::HashMap;

use te::error::{InputError, Reason};

use crate::commands::{Absent, Command};

/// The options of one command line.
pub struct Arguments {
    command: &'static Command,
    values: HashMap<String, String>,
    flags: Vec<String>,
}

/// A refusal of an option, by its name.
pub fn refuse(option: &str, reason: Reason, message: impl Into<String>) -> InputError {
    InputError::new(option, reason, message).in_source("command line")
}

impl Arguments {
    /// Takes the words after a command apart.
    pub fn parse(words: &[String], command: &'static Command) -> Result<Arguments, InputError> {
        let mut arguments = Arguments {
            command,
            values: HashMap::new(),
            flags: Vec::new(),
        };
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            let known = command.all_options().find(|o| o.name == name);
            match known.map(|o| o.value.is_empty()) {
                Some(true) if inline.is_none() => arguments.flags.push(name.to_owned()),
                Some(false) => {
                    let value = inline.or_else(|| rest.next().cloned());
                    let value =
                        value.ok_or_else(|| refuse(name, Reason::MissingField, "needs a value"))?;
                    if value.is_empty() {
                        return Err(refuse(
                            name,
                            Reason::MissingField,
                            "is given an empty value",
                        ));
                    }
                    if arguments.values.insert(name.to_owned(), value).is_some() {
                        return Err(refuse(name, Reason::Duplicate, "is given twice"));
                    }
                }
                _ => {
                    let known: Vec<&str> = command.all_options().map(|o| o.name).collect();
                    let message = format!("unknown here; known: {}", known.join(", "));
                    return Err(refuse(name, Reason::UnknownField, message));
                }
            }
        }
        Ok(arguments)
    }

    /// Whether a flag is set.
    pub fn flag(&self, name: &str) -> bool {
        self.flags.iter().any(|f| f == name)
    }

    /// Whether progress is to be silent.
    pub fn is_quiet(&self) -> bool {
        self.flag("-q") || self.flag("--quiet")
    }

    /// The value that was given for an option.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The value of an option, given or by default.
    fn value(&self, name: &str) -> Option<&str> {
        let default = || {
            let opt = self.command.all_options().find(|o| o.name == name)?;
            match opt.absent {
                Absent::Default(text) => Some(text),
                Absent::Required | Absent::Means(_) => None,
            }
        };
        self.given(name).or_else(default)
    }

    /// The value of an option that must be given, or has a default.
    pub fn required(&self, name: &str) -> Result<&str, InputError> {
        self.value(name)
            .ok_or_else(|| refuse(name, Reason::MissingField, "is missing"))
    }

    /// A number of at least `least`.
    pub fn number(&self, name: &str, least: f64) -> Result<f64, InputError> {
        let text = self.required(name)?;
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number >= least => Ok(number),
            _ => {
                let message = format!("'{text}' is no number of at least {least}");
                Err(refuse(name, Reason::OutOfRange, message))
            }
        }
    }

    /// A number of at least `least`; none where it is not given.
    pub fn optional_number(&self, name: &str, least: f64) -> Result<Option<f64>, InputError> {
        let number = |_| self.number(name, least);
        self.given(name).map(number).transpose()
    }

    /// A number above zero; none where it is not given.
    pub fn optional_positive(&self, name: &str) -> Result<Option<f64>, InputError> {
        match self.optional_number(name, 0.0)? {
            Some(number) if number <= 0.0 => {
                Err(refuse(name, Reason::OutOfRange, "must be above 0"))
            }
            number => Ok(number),
        }
    }

    /// A share between 0 and 1; none where it is not given.
    pub fn optional_share(&self, name: &str) -> Result<Option<f64>, InputError> {
        match self.optional_number(name, 0.0)? {
            Some(number) if number > 1.0 => {
                let message = format!("{number} is no share; it must be at most 1");
                Err(refuse(name, Reason::OutOfRange, message))
            }
            share => Ok(share),
        }
    }

    /// A whole number of at least `least`.
    pub fn count(&self, name: &str, least: u64) -> Result<u64, InputError> {
        let text = self.required(name)?;
        match text.parse::<u64>() {
            Ok(number) if number >= least => Ok(number),
            _ => {
                let message = format!("'{text}' is no whole number of at least {least}");
                Err(refuse(name, Reason::OutOfRange, message))
            }
        }
    }

    /// A whole number of at least `least`; none where it is not given.
    pub fn optional_count(&self, name: &str, least: u64) -> Result<Option<u64>, InputError> {
        let count = |_| self.count(name, least);
        self.given(name).map(count).transpose()
    }

    /// One of several words.
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T, InputError> {
        let text = self.required(name)?;
        let chosen = choices.iter().find(|(word, _)| *word == text);
        chosen.map(|(_, choice)| *choice).ok_or_else(|| {
            let known: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let message = format!("'{text}' is unknown; known: {}", known.join(", "));
            refuse(name, Reason::UnknownChoice, message)
        })
    }

    /// One of several words; none where it is not given.
    pub fn optional_choice<T: Copy>(
        &self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, InputError> {
        let choice = |_| self.choice(name, choices);
        self.given(name).map(choice).transpose()
    }
}
