//! Figures about a table.

/// What happened since the table was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections added.
    pub inserted: u64,
    /// Connections removed by the caller, by key or in a scan.
    pub removed: u64,
    /// Connections removed because they were idle for too long.
    pub expired: u64,
    /// Connections not added because the table is full.
    pub full: u64,
    /// Entries moved to their other bucket to make room.
    pub displaced: u64,
    /// Entries moved to their first bucket, as there was room.
    pub settled: u64,
    /// Buckets added.
    pub splits: u64,
}

/// A table's size and history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Connections in the table.
    pub entries: usize,
    /// Buckets there are now.
    pub buckets: usize,
    /// Slots there are now.
    pub slots: usize,
    /// Slots there may be.
    pub slots_limit: usize,
    /// Bytes the slots take now.
    pub memory: usize,
    /// Bytes they may take.
    pub memory_limit: usize,
    /// What happened so far.
    pub counters: Counters,
}
