//! The range of every quantity of a model. Wide enough for any network there is, and such that no product or quotient of
//! two of them leaves what the solvers can compute with.

use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value};

/// Numbers from `least` to `most`, and zero where it is allowed.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    least: f64,
    most: f64,
    zero: bool,
    unit: &'static str,
}

const fn above_zero(least: f64, most: f64, unit: &'static str) -> Range {
    Range {
        least,
        most,
        zero: false,
        unit,
    }
}

const fn zero_or(least: f64, most: f64, unit: &'static str) -> Range {
    Range {
        zero: true,
        ..above_zero(least, most, unit)
    }
}

/// Traffic of a stage, and background of a link. A measured average that fades away has no least.
pub const TRAFFIC: Range = zero_or(f64::MIN_POSITIVE, 1e15, " Mbit/s");
/// Bandwidth of a link.
pub const BANDWIDTH: Range = above_zero(1e-9, 1e15, " Mbit/s");
/// β.
pub const UTILIZATION: Range = above_zero(1e-6, 1e6, "");
/// Latency of a link.
pub const LATENCY: Range = zero_or(1e-12, 1e12, " ms");
/// Longest latency of a chain's routes.
pub const MOST_LATENCY: Range = above_zero(1e-12, 1e12, " ms");
/// Capacity of a site, and of a VNF at a site.
pub const CAPACITY: Range = above_zero(1e-9, 1e18, " load units");
/// Load units for each Mbit/s.
pub const LOAD: Range = zero_or(1e-12, 1e12, " load units per Mbit/s");
/// Worth of a carried Mbit/s.
pub const PRIORITY: Range = above_zero(1e-12, 1e12, "");
/// A share of something, which may be none of it.
pub const SHARE: Range = zero_or(1e-9, 1.0, "");
/// A share of a chain's traffic at one of its ends.
pub const END_SHARE: Range = above_zero(1e-9, 1.0 + 1e-6, "");
/// A factor on all demands of a matrix.
pub const FACTOR: Range = zero_or(1e-9, 1e9, "");
/// A factor on all traffic of a generated workload.
pub const DEMAND: Range = above_zero(1e-9, 1e9, "");
/// A number of routes.
pub const ROUTES: Range = above_zero(1.0, 1e9, " routes");

impl Range {
    /// The value as a number of this range.
    ///
    /// # Errors
    /// What is no number, or outside the range.
    pub fn at(&self, place: Place<'_>, value: &Value) -> Result<f64, InputError> {
        let number = if self.zero {
            place.not_negative(value)?
        } else {
            place.positive(value)?
        };
        let refuse = |message| place.error(Reason::OutOfRange, message);
        self.holds(number).map(|()| number).map_err(refuse)
    }

    /// Whether a number is of this range.
    ///
    /// # Errors
    /// What is wrong and what may be.
    pub fn holds(&self, number: f64) -> Result<(), String> {
        let (least, most, unit) = (self.least, self.most, self.unit);
        if (least..=most).contains(&number) || (self.zero && number == 0.0) {
            return Ok(());
        }
        let or = if self.zero { "0, or from" } else { "from" };
        Err(format!(
            "{number:e} is out of range; must be {or} {least:e} to {most:e}{unit}"
        ))
    }

    /// A member that must be there.
    ///
    /// # Errors
    /// As [`Range::at`]; that it is missing.
    pub fn of(&self, fields: &Fields<'_>, name: &str) -> Result<f64, InputError> {
        self.at(fields.place.name(name), fields.required(name)?)
    }

    /// A member that may be absent.
    ///
    /// # Errors
    /// As [`Range::at`].
    pub fn optional(&self, fields: &Fields<'_>, name: &str) -> Result<Option<f64>, InputError> {
        let value = fields.optional(name);
        value
            .map(|v| self.at(fields.place.name(name), v))
            .transpose()
    }
}
