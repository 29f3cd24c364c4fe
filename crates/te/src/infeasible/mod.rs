//! Why nothing satisfies a model: proofs in the model's own names, with the field that states each constraint and the
//! quantity that is scarce.
//!
//! Three kinds of proof. A *row* is too small for what must be carried, alone or in a weighted sum with others
//! ([`overloaded`]). A chain has *no route*, because of a smallest set of constraints each of which is needed for that
//! ([`no_route`]). A chain may have too few routes for its demand ([`too_few_routes`]), or
//! all together have ([`too_few_together`]). What a search merely failed to
//! find is no proof; see [`crate::error::NotFound`] and [`crate::lp::fit`].

mod conflict;
mod no_route;
mod probe;
mod route_limit;
mod rows;

pub use conflict::smallest;
pub use no_route::no_route;
pub use route_limit::{too_few_routes, too_few_together};
pub use rows::{background, overloaded};
