//! What can go wrong, as values a program can match on.

use std::fmt;

/// Why a piece of input was refused. Callers match on this; the message is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The file cannot be opened or read.
    Unreadable,
    /// The text is not what its format allows (cut short, stray character, bad escape).
    Syntax,
    /// Lists and objects are nested deeper than any model needs.
    TooDeep,
    /// A value of another type was expected, such as a number where the text has a string.
    WrongType,
    /// A required field is absent.
    MissingField,
    /// A field the contract does not know.
    UnknownField,
    /// The same field or identifier appears twice.
    Duplicate,
    /// A reference to something that is not in the model.
    DanglingReference,
    /// A number outside its allowed range.
    OutOfRange,
    /// A word that is none of the allowed ones.
    UnknownChoice,
    /// A list with too few or too many entries.
    WrongLength,
    /// No path of links joins two nodes that a chain needs joined.
    Unreachable,
    /// A chain uses a virtual network function that is deployed nowhere it may use.
    NowhereDeployed,
    /// Two statements of the same input contradict each other.
    Contradiction,
}

/// Bad input: the place, the reason and what to do about it. The command exits with 2.
#[derive(Debug, Clone, PartialEq)]
pub struct InputError {
    /// The file (or `-`), empty when the input did not come from one.
    pub source: String,
    /// JSON pointer (RFC 6901) of the offending field, or line and column for other formats.
    pub pointer: String,
    /// Why, for programs.
    pub reason: Reason,
    /// What is wrong and how to mend it, for people.
    pub message: String,
}

impl InputError {
    /// An error at a place of an unnamed source.
    pub fn new(pointer: impl Into<String>, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            source: String::new(),
            pointer: pointer.into(),
            reason,
            message: message.into(),
        }
    }

    /// The same error, with the file it came from.
    pub fn in_source(mut self, source: &str) -> Self {
        self.source = source.to_owned();
        self
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.source.is_empty() {
            write!(f, "{}: ", self.source)?;
        }
        if self.pointer.is_empty() && self.reason == Reason::Unreadable {
            return f.write_str(&self.message);
        }
        // The empty pointer is the whole document (RFC 6901 section 5).
        let pointer = if self.pointer.is_empty() {
            "(document)"
        } else {
            &self.pointer
        };
        write!(f, "{pointer}: {}", self.message)
    }
}

impl std::error::Error for InputError {}

/// A constraint of a model that takes part in a proof that nothing satisfies it.
#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    /// What it is a constraint of, in the model's names, such as `link nyc-chi`.
    pub name: String,
    /// JSON pointer (RFC 6901) of the field of the model that states it.
    pub pointer: String,
    /// What is scarce, with its figures and units.
    pub scarce: String,
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.pointer, self.scarce)
    }
}

/// A model that provably no routing can satisfy. The command exits with 3.
#[derive(Debug, Clone, PartialEq)]
pub struct Infeasible {
    /// The constraints that prove it, the decisive one first.
    pub constraints: Vec<Constraint>,
    /// The argument in one sentence, with its figures.
    pub message: String,
}

impl Infeasible {
    /// Demands that load no capacity, so that they can grow without end.
    pub fn unbounded() -> Infeasible {
        Infeasible {
            constraints: vec![Constraint {
                name: "all chains".into(),
                pointer: "/chains".into(),
                scarce: "cross no link and visit no VNF that costs compute".into(),
            }],
            message: "no link, site or VNF limits the demands, so no factor on them is the largest; objectives \
                      throughput and latency have answers"
                .into(),
        }
    }

    /// The names of the constraints.
    pub fn names(&self) -> Vec<&str> {
        self.constraints.iter().map(|c| c.name.as_str()).collect()
    }
}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "infeasible: {}", self.message)
    }
}

impl std::error::Error for Infeasible {}

/// A search that ended without an answer and without a proof that there is none. The command exits with 4.
#[derive(Debug, Clone, PartialEq)]
pub struct NotFound {
    /// What was found at best, what it lacks, and what to do about it.
    pub message: String,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no answer found, and none proved impossible: {}",
            self.message
        )
    }
}

impl std::error::Error for NotFound {}

/// Every way a command of this crate fails.
#[derive(Debug, Clone, PartialEq)]
pub enum Error {
    /// The input is wrong.
    Input(InputError),
    /// The input is right and has no solution.
    Infeasible(Infeasible),
    /// The input is right, and no solution was found.
    NotFound(NotFound),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Input(e) => e.fmt(f),
            Error::Infeasible(e) => e.fmt(f),
            Error::NotFound(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<InputError> for Error {
    fn from(e: InputError) -> Self {
        Error::Input(e)
    }
}

impl From<Infeasible> for Error {
    fn from(e: Infeasible) -> Self {
        Error::Infeasible(e)
    }
}

impl From<NotFound> for Error {
    fn from(e: NotFound) -> Self {
        Error::NotFound(e)
    }
}
