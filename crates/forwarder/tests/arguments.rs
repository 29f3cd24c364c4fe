//! A wrong command line gets an error that names the flag and what to give, and nothing is left behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, process};

/// A directory for what DPDK makes; it goes in the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        let path = env::temp_dir().join(format!("switchboard-arguments-{}", process::id()));
        fs::create_dir_all(&path).expect("a directory can be made");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts the forwarder with these words, and waits until it has refused them.
fn refused(words: &str, runtime: &Path) -> Output {
    let words = format!("--rules /nowhere --status /nowhere --metrics off {words}");
    Command::new(env!("CARGO_BIN_EXE_switchboard-forwarder"))
        .args(words.split(' '))
        .env("RUNTIME_DIRECTORY", runtime)
        .output()
        .expect("the forwarder starts")
}

#[test]
fn what_is_wrong_is_refused_by_its_flag_and_leaves_nothing() {
    let runtime = Directory::new();
    for (words, flag) in [
        ("--site a/b --name f", "--site: "),
        ("--site s --name ../f", "--name: "),
        ("--site s --name f --workers 0", "--workers: "),
        ("--site s --name f --cores 1-", "--cores: "),
        ("--site s --name f --flow-memory-mb 7", "--flow-memory-mb: "),
        ("--site s --name f --memory-mb 0", "--memory-mb: "),
        ("--site s --name f --memory-mb 4294967295", "--memory-mb: "),
        (
            "--site s --name f --state-directory /proc/version",
            "--state-directory: ",
        ),
        (
            "--site s --name f --spare",
            "--spare needs --flow-directory",
        ),
        ("--site s --name f --buffers many", "--buffers: "),
        ("--site s --name f --workers 1 --buffers 2", "--buffers: "),
        ("--site s --name f --metrics nonsense", "--metrics: "),
        ("--site s --name f --buffers", "--buffers wants a value"),
        (
            "--site s --name f --bogus 1",
            "unknown argument \"--bogus\"",
        ),
        ("--site s --name f --bogus", "unknown argument \"--bogus\""),
    ] {
        let output = refused(words, &runtime.0);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && output.status.code().is_some(),
            "{words}: {said}"
        );
        assert!(
            said.contains(flag) && !said.contains("panicked"),
            "{words}: {said}"
        );
        let dpdk = runtime.0.join("dpdk");
        let left = fs::read_dir(&dpdk).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{words}: {}", dpdk.display());
    }
}
