//! What a forwarder reports, in the text format of Prometheus.

use contracts::forwarder as contract;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{Display, Write};

/// A family of series under way.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP switchboard_forwarder_{name} {help}");
        let _ = writeln!(self.0, "# TYPE switchboard_forwarder_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.sample_of(name, labels, value);
    }

    fn sample_of(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "switchboard_forwarder_{name}");
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(text));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    fn map(
        &mut self,
        (name, label): (&str, &str),
        kind: &str,
        help: &str,
        values: &BTreeMap<String, u64>,
    ) {
        self.family(name, kind, help);
        for (text, value) in values {
            self.sample(name, &[(label, text)], *value);
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The metrics of a report. `rules` are those in force: they name the chains of the report's labels.
pub fn render(status: &contract::Status, rules: &contract::RuleSet) -> String {
    let mut text = Text(String::with_capacity(4096));
    text.family("info", "gauge", "Who this is; always 1.");
    let incarnation = status.incarnation.to_string();
    let labels = [
        ("site", status.site.as_str()),
        ("forwarder", &status.forwarder),
        ("incarnation", &incarnation),
    ];
    text.sample("info", &labels, 1);
    let generation = status.applied_generation;
    text.single(
        "rules_generation",
        "gauge",
        "Generation of the rules in force.",
        generation,
    );
    let refused = u64::from(!status.refused.is_empty());
    text.single(
        "rules_refused",
        "gauge",
        "Whether the last rules were refused.",
        refused,
    );
    text.single(
        "flow_entries",
        "gauge",
        "Connections in the flow tables.",
        status.flow_entries,
    );
    let limit = status.flow_entries_limit;
    text.single(
        "flow_entries_limit",
        "gauge",
        "Connections that the flow tables have room for.",
        limit,
    );
    let drops = ("drops_total", "reason");
    text.map(
        drops,
        "counter",
        "Packets dropped, each for one reason.",
        &status.drops,
    );
    let events = ("events_total", "event");
    text.map(
        events,
        "counter",
        "What happened that is no drop.",
        &status.events,
    );
    latencies(&mut text, status);
    ports(&mut text, status);
    stages(&mut text, status, rules);
    attachments(&mut text, status);
    text.0
}

/// Bounds of the histogram's buckets here, as powers of two of nanoseconds: 256 ns to 67 ms.
const LATENCY_BOUNDS: std::ops::RangeInclusive<u32> = 8..=26;

/// The finer buckets of a report, added up.
fn latencies(text: &mut Text, status: &contract::Status) {
    let name = "latency_seconds";
    let help = "Time from being received to being handed to a port, of one round of four.";
    text.family(name, "histogram", help);
    for (worker, histogram) in status.latencies.iter().enumerate() {
        let worker = worker.to_string();
        let below = |bound: u64| {
            let buckets = histogram.buckets.iter();
            let within = buckets.filter(|bucket| (1..=bound).contains(&bucket.below_ns));
            within.map(|bucket| bucket.packets).sum()
        };
        for power in LATENCY_BOUNDS {
            let bound = (1u64 << power) as f64 / 1e9;
            let labels = [("worker", worker.as_str()), ("le", &bound.to_string())];
            text.sample(&format!("{name}_bucket"), &labels, below(1 << power));
        }
        let count = histogram.buckets.iter().map(|bucket| bucket.packets).sum();
        let labels = [("worker", worker.as_str()), ("le", "+Inf")];
        text.sample(&format!("{name}_bucket"), &labels, count);
        let labels = [("worker", worker.as_str())];
        text.sample(&format!("{name}_count"), &labels, count);
        text.sample_of(
            &format!("{name}_sum"),
            &labels,
            histogram.total_ns as f64 / 1e9,
        );
    }
}

fn ports(text: &mut Text, status: &contract::Status) {
    type Read = fn(&contract::PortStatus) -> u64;
    let families: [(&str, &str, &str, Read); 6] = [
        ("port_up", "gauge", "Whether the port is open.", |port| {
            u64::from(port.up)
        }),
        (
            "port_received_packets_total",
            "counter",
            "Packets received.",
            |port| port.received_packets,
        ),
        (
            "port_received_bytes_total",
            "counter",
            "Bytes received.",
            |port| port.received_bytes,
        ),
        (
            "port_sent_packets_total",
            "counter",
            "Packets sent.",
            |port| port.sent_packets,
        ),
        ("port_sent_bytes_total", "counter", "Bytes sent.", |port| {
            port.sent_bytes
        }),
        (
            "port_send_failures_total",
            "counter",
            "Packets the port did not take.",
            |port| port.send_failures,
        ),
    ];
    for (name, kind, help, read) in families {
        text.family(name, kind, help);
        for port in &status.ports {
            text.sample(name, &[("port", &port.name)], read(port));
        }
    }
}

fn stages(text: &mut Text, status: &contract::Status, rules: &contract::RuleSet) {
    type Read = fn(&contract::StageCounters) -> u64;
    let families: [(&str, &str, &str, Read); 6] = [
        (
            "stage_packets_total",
            "counter",
            "Packets that passed a stage.",
            |stage| stage.packets,
        ),
        (
            "stage_bytes_total",
            "counter",
            "Bytes of their IP packets.",
            |stage| stage.bytes,
        ),
        (
            "stage_origin_packets_total",
            "counter",
            "Packets that came from this site.",
            |stage| stage.origin_packets,
        ),
        (
            "stage_origin_bytes_total",
            "counter",
            "Their bytes.",
            |stage| stage.origin_bytes,
        ),
        (
            "stage_new_flows_total",
            "counter",
            "Connections that made their choice.",
            |stage| stage.new_flows,
        ),
        (
            "stage_flows",
            "gauge",
            "Connections of the stage, both directions together.",
            |stage| stage.flows,
        ),
    ];
    let paths = rules.paths.iter();
    let names = paths.map(|path| ((path.chain_label, path.egress_label), path));
    let names = PathNames(names.collect());
    for (name, kind, help, read) in families {
        text.family(name, kind, help);
        for stage in &status.stages {
            names.sample(text, name, stage, None, read(stage));
        }
    }
    let (name, help) = (
        "stage_drops_total",
        "Packets dropped at a stage, by reason.",
    );
    text.family(name, "counter", help);
    for stage in &status.stages {
        for (reason, &count) in &stage.drops {
            names.sample(text, name, stage, Some(reason), count);
        }
    }
}

/// Service paths by their labels.
struct PathNames<'a>(HashMap<(u32, u32), &'a contract::ServicePath>);

impl PathNames<'_> {
    /// A sample of a stage, and of a reason where there is one.
    fn sample(
        &self,
        text: &mut Text,
        name: &str,
        stage: &contract::StageCounters,
        reason: Option<&str>,
        value: u64,
    ) {
        let path = self.0.get(&(stage.chain_label, stage.egress_label));
        let (customer, chain) = path.map_or(("", ""), |path| {
            (path.customer.as_str(), path.chain.as_str())
        });
        let direction = match stage.direction() {
            contract::Direction::Reverse => "reverse",
            _ => "forward",
        };
        let numbers =
            [stage.chain_label, stage.egress_label, stage.stage].map(|number| number.to_string());
        let labels = [
            ("customer", customer),
            ("chain", chain),
            ("chain_label", numbers[0].as_str()),
            ("egress_label", numbers[1].as_str()),
            ("stage", numbers[2].as_str()),
            ("direction", direction),
        ];
        let reason = reason.map(|reason| ("reason", reason));
        let labels: Vec<_> = labels.into_iter().chain(reason).collect();
        text.sample(name, &labels, value);
    }
}

fn attachments(text: &mut Text, status: &contract::Status) {
    let flows = &status.attachment_flows;
    text.map(
        ("attachment_flows", "attachment"),
        "gauge",
        "Connections that use an attachment.",
        flows,
    );
    let new_flows = &status.attachment_new_flows;
    let help = "Connections given to an attachment.";
    text.map(
        ("attachment_new_flows_total", "attachment"),
        "counter",
        help,
        new_flows,
    );
    let packets = &status.attachment_packets;
    let help = "Packets sent to an attachment, both directions.";
    text.map(
        ("attachment_packets_total", "attachment"),
        "counter",
        help,
        packets,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> contract::Status {
        contract::Status {
            site: "office".into(),
            forwarder: "f\"1".into(),
            incarnation: 9,
            applied_generation: 3,
            flow_entries: 7,
            drops: BTreeMap::from([("loop_guard".to_string(), 2)]),
            latencies: vec![contract::LatencyHistogram {
                buckets: [(256, 3), (320, 4), (1_024, 2), (0, 1)]
                    .map(|(below_ns, packets)| contract::LatencyBucket { below_ns, packets })
                    .to_vec(),
                total_ns: 2_500_000_000,
            }],
            ports: vec![contract::PortStatus {
                name: "wan".into(),
                up: true,
                sent_bytes: 1_000,
                ..Default::default()
            }],
            stages: vec![contract::StageCounters {
                chain_label: 100,
                egress_label: 50,
                stage: 2,
                direction: contract::Direction::Reverse.into(),
                packets: 5,
                drops: BTreeMap::from([("no_target".to_string(), 4)]),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    #[test]
    fn every_counter_is_told_with_the_names_that_people_know() {
        let rules = contract::RuleSet {
            paths: vec![contract::ServicePath {
                chain_label: 100,
                egress_label: 50,
                customer: "acme".into(),
                chain: "web".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let text = render(&status(), &rules);
        for line in [
            r#"switchboard_forwarder_info{site="office",forwarder="f\"1",incarnation="9"} 1"#,
            "switchboard_forwarder_flow_entries 7",
            r#"switchboard_forwarder_drops_total{reason="loop_guard"} 2"#,
            r#"switchboard_forwarder_latency_seconds_bucket{worker="0",le="0.000000256"} 3"#,
            r#"switchboard_forwarder_latency_seconds_bucket{worker="0",le="0.000000512"} 7"#,
            r#"switchboard_forwarder_latency_seconds_bucket{worker="0",le="0.000001024"} 9"#,
            r#"switchboard_forwarder_latency_seconds_bucket{worker="0",le="+Inf"} 10"#,
            r#"switchboard_forwarder_latency_seconds_count{worker="0"} 10"#,
            r#"switchboard_forwarder_latency_seconds_sum{worker="0"} 2.5"#,
            r#"switchboard_forwarder_port_sent_bytes_total{port="wan"} 1000"#,
            r#"switchboard_forwarder_stage_packets_total{customer="acme",chain="web",chain_label="100",egress_label="50",stage="2",direction="reverse"} 5"#,
            r#"switchboard_forwarder_stage_drops_total{customer="acme",chain="web",chain_label="100",egress_label="50",stage="2",direction="reverse",reason="no_target"} 4"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn every_sample_belongs_to_the_family_above_it() {
        let text = render(&status(), &contract::RuleSet::default());
        let (mut family, mut kind) = ("", "");
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => (family, kind) = rest.split_once(' ').unwrap(),
                None if line.starts_with('#') => {}
                None => {
                    let name = line.split(['{', ' ']).next().unwrap();
                    let parts = ["_bucket", "_count", "_sum"];
                    let whole = parts.iter().find_map(|part| name.strip_suffix(part));
                    let is_part = kind == "histogram";
                    assert_eq!(whole.filter(|_| is_part).unwrap_or(name), family);
                }
            }
        }
    }

    /// A sample of the text format: name, labels and value.
    type Sample<'a> = (&'a str, Vec<(&'a str, String)>, f64);

    /// Reads a sample as the format has it (Prometheus, "exposition formats", version 0.0.4), strictly.
    fn sample(line: &str) -> Option<Sample<'_>> {
        let is_name = |name: &str, colon: bool| {
            let mut letters = name.chars();
            let first = |c: char| c.is_ascii_alphabetic() || c == '_' || colon && c == ':';
            letters.next().is_some_and(first) && letters.all(|c| first(c) || c.is_ascii_digit())
        };
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            loop {
                let (label, behind) = rest.split_once("=\"")?;
                let (mut value, mut letters) = (String::new(), behind.char_indices());
                rest = loop {
                    match letters.next()? {
                        (at, '"') => break &behind[at + 1..],
                        (_, '\\') => value.push(match letters.next()?.1 {
                            'n' => '\n',
                            one @ ('"' | '\\') => one,
                            _ => return None,
                        }),
                        (_, letter) => value.push(letter),
                    }
                };
                if !is_name(label, false) || labels.iter().any(|(known, _)| *known == label) {
                    return None;
                }
                labels.push((label, value));
                match rest.strip_prefix(',') {
                    Some(more) => rest = more,
                    None => break,
                }
            }
            rest = rest.strip_prefix('}')?;
        }
        let value = rest.strip_prefix(' ')?.parse().ok()?;
        is_name(name, true).then_some((name, labels, value))
    }

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let rules = contract::RuleSet {
            paths: vec![contract::ServicePath {
                chain_label: 100,
                egress_label: 50,
                customer: "a\\c\"m\ne".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let text = render(&status(), &rules);
        assert!(text.ends_with('\n'));
        let (mut families, mut series) = (Vec::new(), Vec::new());
        let (mut help, mut kind, mut below) = ("", "", 0.0);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                help = rest.split_once(' ').expect("a sentence follows").0;
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (family, its_kind) = rest.split_once(' ').unwrap();
                assert_eq!(family, help, "its help comes first");
                assert!(["counter", "gauge", "histogram"].contains(&its_kind));
                assert_eq!(
                    its_kind == "counter",
                    family.ends_with("_total"),
                    "{family}"
                );
                assert!(!families.contains(&family), "{family} comes twice");
                families.push(family);
                kind = its_kind;
                continue;
            }
            let (name, labels, value) = sample(line).unwrap_or_else(|| panic!("{line:?}"));
            assert!(value.is_finite() && value >= 0.0, "{line}");
            let key = (name, labels.clone());
            assert!(!series.contains(&key), "{line} comes twice");
            series.push(key);
            if kind == "histogram" {
                // Buckets grow up to the count.
                let bound = labels.iter().find(|(label, _)| *label == "le");
                match bound {
                    Some((_, bound)) => {
                        assert!(bound == "+Inf" || bound.parse::<f64>().is_ok());
                        assert!(value >= below, "{line}");
                        below = value;
                    }
                    None if name.ends_with("_count") => assert_eq!(value, below, "{line}"),
                    None => assert!(name.ends_with("_sum")),
                }
            }
        }
        assert!(families.len() > 15 && series.len() > 30);
        assert!(text.contains(r#"customer="a\\c\"m\ne""#), "{text}");
    }
}
