//! DPDK's testpmd, forwarding between two null ports: what a core can do at most that only swaps Ethernet addresses.

use crate::clock::processor_time_of;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a repetition may take on a busy machine.
const LONGEST: Duration = Duration::from_secs(30);

/// A running testpmd that forwards only when told to.
pub struct Testpmd {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
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
        // What it says when it stops has lines that look the same under another heading.
        let (mut total, mut ports, mut asked_for) = (0, 0, false);
        while ports < 2 {
            let mut line = String::new();
            match self.output.read_line(&mut line) {
                Ok(0) | Err(_) => return Err("testpmd has ended".into()),
                Ok(_) => {}
            }
            if line.contains(" statistics for ") {
                asked_for = line.contains("NIC statistics for ");
            }
            let counter = line.trim_start().strip_prefix("RX-packets:");
            if let Some(rest) = counter.filter(|_| asked_for) {
                let number = rest.split_whitespace().next().unwrap_or_default();
                total += number.parse::<u64>().map_err(|error| error.to_string())?;
                ports += 1;
            }
        }
        Ok(total)
    }

    /// Forwards for so long a time of the processor; returns nanoseconds of it per packet. Its other threads sleep.
    pub fn nanoseconds(&mut self, round: Duration) -> Result<f64, String> {
        let process = self.child.id();
        let time = || processor_time_of(process).ok_or("testpmd has ended");
        self.say("start")?;
        std::thread::sleep(round / 4);
        let (packets, began) = (self.packets()?, time()?);
        let until = Instant::now() + LONGEST;
        while time()? - began < round && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let (packets, took) = (self.packets()? - packets, time()? - began);
        self.say("stop")?;
        if packets == 0 || took < round {
            return Err("testpmd gets no processor: the machine is too busy".into());
        }
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
