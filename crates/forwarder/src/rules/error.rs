use std::fmt;

/// What is wrong with a rule set: the field and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Path of the field, such as `attachments[2].ingress_mac`.
    pub field: String,
    /// What is wrong and what to write instead.
    pub problem: String,
}

impl RuleError {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<String>) -> RuleError {
        RuleError {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for RuleError {}
