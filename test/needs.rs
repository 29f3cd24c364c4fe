//! Lets a test say what it needs of the machine and does not find: it is left out then, and says so. Where SWITCHBOARD_TESTS=required says
//! that this machine must have everything, as `make test` does for root, it fails (as `internal/needs` of the Go tests does).

/// To be called before a test returns that cannot run here; `what` is what it lacks.
pub fn missing(what: &str) {
    let is_required = std::env::var_os("SWITCHBOARD_TESTS").is_some_and(|all| all == "required");
    assert!(!is_required, "this test is required and needs {what}");
    eprintln!("skipped: needs {what}");
}
