//! DPDK's testpmd, forwarding between two null ports: what a core can do at most that only swaps Ethernet addresses.

use crate::clock::processor_time_of;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A running testpmd that forwards only when told to.
pub struct Testpmd {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    thread: String,
}

impl Testpmd {
    /// Starts it: its commands on one core, forwarding on `core`.
    pub fn start(other: usize, core: usize) -> Result<Testpmd, String> {
        // Into a pipe it would write whole pages only.
        let mut child = Command::new("stdbuf")
            .args(["-oL", "dpdk-testpmd"])
            .args([
                "-l",
                &format!("{other},{core}"),
                "--main-lcore",
                &other.to_string(),
            ])
            .args([
                "--no-pci",
                "--in-memory",
                "--no-telemetry",
                "--log-level=error",
            ])
            .args([
                "-m",
                "256",
                "--vdev",
                "net_null0,size=64",
                "--vdev",
                "net_null1,size=64",
            ])
            .args([
                "--",
                "-i",
                "--forward-mode=mac",
                "--burst=64",
                "--total-num-mbufs=16384",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("dpdk-testpmd does not start: {error}"))?;
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut testpmd = Testpmd {
            child,
            input,
            output,
            thread: format!("-worker-{core}"),
        };
        testpmd.packets()?;
        Ok(testpmd)
    }

    fn say(&mut self, command: &str) -> Result<(), String> {
        writeln!(self.input, "{command}").map_err(|error| format!("testpmd has ended: {error}"))
    }

    /// Packets received by both ports so far.
    fn packets(&mut self) -> Result<u64, String> {
        self.say("show port stats all")?;
        let (mut total, mut ports) = (0, 0);
        while ports < 2 {
            let mut line = String::new();
            match self.output.read_line(&mut line) {
                Ok(0) | Err(_) => return Err("testpmd has ended".into()),
                Ok(_) => {}
            }
            if let Some(rest) = line.trim_start().strip_prefix("RX-packets:") {
                let number = rest.split_whitespace().next().unwrap_or_default();
                total += number.parse::<u64>().map_err(|error| error.to_string())?;
                ports += 1;
            }
        }
        Ok(total)
    }

    /// Forwards for a while; returns nanoseconds of the core's time per packet.
    pub fn nanoseconds(&mut self, round: Duration) -> Result<f64, String> {
        let time = |testpmd: &Testpmd| {
            processor_time_of(testpmd.child.id(), &testpmd.thread).ok_or("testpmd has no worker")
        };
        self.say("start")?;
        std::thread::sleep(round / 4);
        let (packets, began) = (self.packets()?, time(self)?);
        std::thread::sleep(round);
        let (packets, took) = (self.packets()? - packets, time(self)? - began);
        self.say("stop")?;
        Ok(took.as_secs_f64() * 1e9 / packets as f64)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It has ended when these fail.
        let _ = self.say("quit");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
