//! The delay line between two network namespaces, measured with ping.

#[path = "../../../test/needs.rs"]
mod needs;

use std::process::{Child, Command, Stdio};
use std::{fs, thread, time::Duration};

const PAIR_LATENCY_MS: f64 = 12.0;

/// Two sites and the network between them; everything is removed on drop.
struct Bed {
    prefix: String,
    underlay: Option<Child>,
    config: std::path::PathBuf,
}

fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .expect("ip runs");
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Bed {
    fn new() -> Bed {
        let prefix = format!("sbu{}", std::process::id());
        let config = std::env::temp_dir().join(format!("{prefix}.json"));
        let mut bed = Bed {
            prefix: prefix.clone(),
            underlay: None,
            config,
        };
        ip(&format!("netns add {prefix}-u"));
        for (site, address) in [("a", "192.0.2.1"), ("b", "192.0.2.2")] {
            ip(&format!("netns add {prefix}-{site}"));
            ip(&format!(
                "-n {prefix}-u link add {site}0 type veth peer name wan netns {prefix}-{site}"
            ));
            ip(&format!("-n {prefix}-u link set {site}0 up"));
            ip(&format!("-n {prefix}-{site} link set wan up"));
            ip(&format!(
                "-n {prefix}-{site} address add {address}/24 dev wan"
            ));
        }
        let text = format!(
            r#"{{"ports":[{{"site":"a","interface":"a0"}},{{"site":"b","interface":"b0"}}],"links":[{{"from":"a","to":"b","latency_ms":{PAIR_LATENCY_MS},"rate_mbps":1000}}]}}"#
        );
        fs::write(&bed.config, text).unwrap();
        let child = Command::new("ip")
            .args([
                "netns",
                "exec",
                &format!("{prefix}-u"),
                env!("CARGO_BIN_EXE_switchboard-underlay"),
            ])
            .args(["--config".as_ref(), bed.config.as_os_str()])
            .spawn()
            .unwrap();
        bed.underlay = Some(child);
        thread::sleep(Duration::from_millis(300));
        bed
    }

    fn ping(&self, arguments: &[&str]) -> String {
        let output = Command::new("ip")
            .args(["netns", "exec", &format!("{}-a", self.prefix), "ping", "-q"])
            .args(arguments)
            .arg("192.0.2.2")
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(mut child) = self.underlay.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_file(&self.config);
        for name in ["a", "b", "u"] {
            let _ = Command::new("ip")
                .args(["netns", "del", &format!("{}-{name}", self.prefix)])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Minimum and median-like average of ping's summary line, milliseconds.
fn summary(text: &str) -> (f64, f64) {
    let line = text
        .lines()
        .find(|line| line.starts_with("rtt"))
        .unwrap_or_else(|| panic!("no replies: {text}"));
    let mut numbers = line
        .split('=')
        .nth(1)
        .unwrap()
        .trim()
        .split('/')
        .map(|number| number.parse::<f64>());
    (
        numbers.next().unwrap().unwrap(),
        numbers.next().unwrap().unwrap(),
    )
}

#[test]
fn round_trips_take_twice_the_latency() {
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } != 0 {
        needs::missing("root, to make network namespaces");
        return;
    }
    let bed = Bed::new();
    bed.ping(&["-c", "1", "-W", "2"]);
    let text = bed.ping(&["-c", "20", "-i", "0.05", "-W", "2"]);
    assert!(text.contains(" 0% packet loss"), "{text}");
    let (least, _average) = summary(&text);
    let expected = 2.0 * PAIR_LATENCY_MS;
    let tolerance = (expected * 0.1).max(0.3);
    assert!(
        (least - expected).abs() <= tolerance,
        "least round trip {least} ms, expected {expected} ± {tolerance}"
    );
    let large = bed.ping(&["-c", "2", "-i", "0.05", "-W", "1", "-M", "do", "-s", "1472"]);
    assert!(large.contains(" 0% packet loss"), "{large}");
}
