//! What an import left out or changed.

use std::collections::BTreeMap;

/// Examples that are kept of each kind.
const EXAMPLES: usize = 3;

/// A kind of change, in the order in which they are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A link from a node to itself, which carries nothing.
    SelfLoop,
    /// Another link between the same two nodes, in the same direction.
    ParallelLink,
    /// A label that several nodes have.
    RepeatedLabel,
    /// A node that is named by its id.
    MissingLabel,
    /// A link's name that several have.
    RepeatedLink,
    /// A node of which it is not known where it is.
    NoCoordinates,
    /// Coordinates that are no longitude and latitude.
    PlaneCoordinates,
    /// A link whose latency is the default.
    DefaultLatency,
    /// A link whose latency is the stated delay, for want of coordinates.
    StatedDelay,
    /// A link whose latency is that of the distance, not the stated delay.
    ReplacedDelay,
    /// A link whose bandwidth is the default.
    DefaultBandwidth,
    /// A link whose bandwidth is its largest module.
    LargestModule,
    /// A node that demands of another file do not mention.
    NodeWithoutDemand,
    /// A demand of nothing.
    NoDemand,
    /// A demand from a node to itself.
    SelfDemand,
}

impl Change {
    fn text(self) -> &'static str {
        match self {
            Change::SelfLoop => "self-loops left out",
            Change::ParallelLink => "parallel links kept apart",
            Change::RepeatedLabel => "nodes of a repeated label given names of their own",
            Change::MissingLabel => "nodes without a label named by their id",
            Change::RepeatedLink => "links of a repeated name given names of their own",
            Change::NoCoordinates => "nodes without coordinates",
            Change::PlaneCoordinates => {
                "nodes' coordinates left out that are no longitude and latitude"
            }
            Change::DefaultLatency => "links without known distance given --default-latency",
            Change::StatedDelay => "links without known distance given their stated delay",
            Change::ReplacedDelay => {
                "links' stated delays replaced by their distance at 200 km per ms"
            }
            Change::DefaultBandwidth => "links without capacity given the default bandwidth",
            Change::LargestModule => "links without installed capacity given their largest module",
            Change::NodeWithoutDemand => {
                "nodes that --demands do not mention, by place in the list of nodes"
            }
            Change::NoDemand => "demands of zero left out",
            Change::SelfDemand => "demands from a node to itself left out",
        }
    }
}

/// All changes of an import, by kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Notes(BTreeMap<Change, (usize, Vec<String>)>);

impl Notes {
    /// Notes a change; `what` was changed.
    pub fn add(&mut self, change: Change, what: impl Into<String>) {
        let (count, examples) = self.0.entry(change).or_default();
        *count += 1;
        if examples.len() < EXAMPLES {
            examples.push(what.into());
        }
    }

    /// How many changes of a kind there were.
    pub fn count(&self, change: Change) -> usize {
        self.0.get(&change).map_or(0, |(count, _)| *count)
    }

    /// One line for each kind: how many, and the first of them.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|(change, (count, examples))| {
            let more = if *count > examples.len() { ", …" } else { "" };
            format!("{count} {}: {}{more}", change.text(), examples.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_kind_has_the_count_and_the_first_examples() {
        let mut notes = Notes::default();
        for i in 0..5 {
            notes.add(Change::NoDemand, format!("a > b{i}"));
        }
        notes.add(Change::SelfLoop, "c");
        let lines: Vec<String> = notes.lines().collect();
        assert_eq!(
            lines,
            [
                "1 self-loops left out: c",
                "5 demands of zero left out: a > b0, a > b1, a > b2, …"
            ]
        );
        assert_eq!(notes.count(Change::NoDemand), 5);
        assert_eq!(notes.count(Change::SelfDemand), 0);
    }
}
