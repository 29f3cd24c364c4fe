//! A forwarder that is killed leaves no directory of DPDK's behind.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

/// A directory of this test's own, and the forwarder in it; both go in the end.
struct Running {
    directory: PathBuf,
    forwarder: Child,
}

impl Running {
    fn start() -> Running {
        let directory = env::temp_dir().join(format!("switchboard-runtime-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("rules.pb"), b"").unwrap();
        let forwarder = Command::new(env!("CARGO_BIN_EXE_switchboard-forwarder"))
            .args(["--site", "s", "--name", "f", "--flow-memory-mb", "64"])
            .arg("--rules")
            .arg(directory.join("rules.pb"))
            .arg("--status")
            .arg(directory.join("status.pb"))
            .env("RUNTIME_DIRECTORY", &directory)
            .spawn()
            .unwrap();
        Running {
            directory,
            forwarder,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.forwarder.kill();
        let _ = self.forwarder.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(directory).expect("DPDK was told to use this directory");
    list.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_killed_forwarder_leaves_no_directory() {
    let mut running = Running::start();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !running.directory.join("status.pb").exists() {
        assert!(Instant::now() < deadline, "the forwarder does not report");
        thread::sleep(Duration::from_millis(50));
    }
    let dpdk = running.directory.join("dpdk");
    assert_eq!(entries(&dpdk), Vec::<PathBuf>::new());
    running.forwarder.kill().unwrap();
    running.forwarder.wait().unwrap();
    assert_eq!(entries(&dpdk), Vec::<PathBuf>::new());
}
