//! SB-LP: the exact optimum of equations 3 to 7, over routes instead of arcs, by column generation.
//!
//! [`frank_wolfe`] gives the first routes and prices; then rounds of a restricted [`master`](interior) and of
//! [pricing](certificate), whose one sweep also proves a bound, until value and bound meet. Rows enter the master
//! when they tighten. All values inside are those of a minimisation: t = 1/α under scale, scaled costs otherwise.

mod certificate;
mod cholesky;
mod columns;
mod driver;
mod expansion;
mod frank_wolfe;
pub(crate) mod interior;
mod master;
mod outcome;
mod progress;
mod route_choice;
mod simplex;

use std::time::Duration;

pub use driver::{Fit, expand, fit, solve, solve_with_prices};
pub use progress::{Interrupt, Monitor, Phase, Progress};

/// When to stop, and how to work.
#[derive(Debug, Clone)]
pub struct Options {
    /// Relative gap between value and bound at which the answer counts as optimal.
    pub gap: f64,
    /// Longest time.
    pub time_limit: Duration,
    /// How much longer what makes an answer whole may take once it is over, such as the routes after failures that have
    /// not been looked at yet.
    pub grace: Duration,
    /// Threads for pricing.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            gap: 1e-4,
            time_limit: Duration::from_secs(60),
            grace: Duration::from_millis(500),
            threads: 1,
        }
    }
}
