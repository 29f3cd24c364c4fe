//! The command `switchboard-te`.
fn main() {}
