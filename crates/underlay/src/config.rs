//! The configuration file: ports and links, JSON.

use serde::Deserialize;
use std::collections::HashSet;
use std::fmt;

/// The whole configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Interfaces in this network namespace, each leading to a site.
    pub ports: Vec<Port>,
    /// Pairs of sites; a pair that is not listed exchanges nothing.
    pub links: Vec<Link>,
}

/// One interface that leads to a site.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Site the interface leads to; a site may have several.
    pub site: String,
    /// Linux interface name.
    pub interface: String,
}

/// One pair of sites; both directions have these properties.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// One site.
    pub from: String,
    /// The other.
    pub to: String,
    /// One-way latency in milliseconds.
    pub latency_ms: f64,
    /// Rate of each direction in Mbit/s, counted over Ethernet frames.
    pub rate_mbps: f64,
    /// How long a frame may wait for the rate, in milliseconds; more is dropped.
    #[serde(default = "default_queue_ms")]
    pub queue_ms: f64,
    /// Largest IP packet in bytes.
    #[serde(default = "default_mtu")]
    pub mtu: usize,
}

fn default_queue_ms() -> f64 {
    50.0
}

fn default_mtu() -> usize {
    1500
}

/// What is wrong with a configuration: the field and the fix.
#[derive(Debug, PartialEq)]
pub struct ConfigError {
    /// Path of the field, such as `links[2].rate_mbps`.
    pub field: String,
    /// What is wrong and what to write instead.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// Names the first field that is wrong, or the line and column of what is no JSON.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let config: Config = serde_json::from_str(text).map_err(|error| ConfigError {
            field: format!("line {}, column {}", error.line(), error.column()),
            problem: error.to_string(),
        })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |field: String, problem: &str| {
            Err(ConfigError {
                field,
                problem: problem.to_string(),
            })
        };
        let mut interfaces = HashSet::new();
        for (index, port) in self.ports.iter().enumerate() {
            if port.site.is_empty() {
                return wrong(format!("ports[{index}].site"), "name the site");
            }
            if port.interface.is_empty() || port.interface.len() > 15 {
                return wrong(
                    format!("ports[{index}].interface"),
                    "write an interface name of 1 to 15 characters",
                );
            }
            if !interfaces.insert(&port.interface) {
                return wrong(
                    format!("ports[{index}].interface"),
                    "used by another port; give each port its own interface",
                );
            }
        }
        let sites: HashSet<&str> = self.ports.iter().map(|port| port.site.as_str()).collect();
        let mut pairs = HashSet::new();
        for (index, link) in self.links.iter().enumerate() {
            for (name, site) in [("from", &link.from), ("to", &link.to)] {
                if !sites.contains(site.as_str()) {
                    return wrong(
                        format!("links[{index}].{name}"),
                        "no port leads to this site; name one of the sites of `ports`",
                    );
                }
            }
            if link.from == link.to {
                return wrong(
                    format!("links[{index}].to"),
                    "a link joins two different sites",
                );
            }
            let pair = if link.from < link.to {
                (&link.from, &link.to)
            } else {
                (&link.to, &link.from)
            };
            if !pairs.insert(pair) {
                return wrong(
                    format!("links[{index}]"),
                    "the pair of sites is listed twice; keep one",
                );
            }
            let ranges = [
                ("latency_ms", link.latency_ms, 0.0, 10_000.0),
                ("rate_mbps", link.rate_mbps, 0.001, 1_000_000.0),
                ("queue_ms", link.queue_ms, 0.0, 10_000.0),
                ("mtu", link.mtu as f64, 576.0, 9_216.0),
            ];
            for (name, value, least, most) in ranges {
                if !(least..=most).contains(&value) {
                    return wrong(
                        format!("links[{index}].{name}"),
                        &format!("{value} is out of range; write {least} to {most}"),
                    );
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(link: &str) -> String {
        format!(
            r#"{{"ports":[{{"site":"a","interface":"u0"}},{{"site":"b","interface":"u1"}}],"links":[{link}]}}"#
        )
    }

    #[test]
    fn accepts_a_pair() {
        let config = Config::parse(&text(
            r#"{"from":"a","to":"b","latency_ms":5,"rate_mbps":100}"#,
        ))
        .unwrap();
        assert_eq!(config.links[0].mtu, 1500);
        assert_eq!(config.links[0].queue_ms, 50.0);
    }

    #[test]
    fn names_the_wrong_field() {
        let cases = [
            (
                r#"{"from":"a","to":"c","latency_ms":5,"rate_mbps":1}"#,
                "links[0].to",
            ),
            (
                r#"{"from":"a","to":"a","latency_ms":5,"rate_mbps":1}"#,
                "links[0].to",
            ),
            (
                r#"{"from":"a","to":"b","latency_ms":-1,"rate_mbps":1}"#,
                "links[0].latency_ms",
            ),
            (
                r#"{"from":"a","to":"b","latency_ms":1,"rate_mbps":0}"#,
                "links[0].rate_mbps",
            ),
            (
                r#"{"from":"a","to":"b","latency_ms":1,"rate_mbps":1,"mtu":100}"#,
                "links[0].mtu",
            ),
            (
                r#"{"from":"a","to":"b","latency_ms":1,"rate_mbps":1},{"from":"b","to":"a","latency_ms":1,"rate_mbps":1}"#,
                "links[1]",
            ),
        ];
        for (link, field) in cases {
            assert_eq!(
                Config::parse(&text(link)).unwrap_err().field,
                field,
                "{link}"
            );
        }
    }

    #[test]
    fn refuses_unknown_fields() {
        let error = Config::parse(&text(
            r#"{"from":"a","to":"b","latency_ms":1,"rate_mbps":1,"los":2}"#,
        ))
        .unwrap_err();
        assert!(error.problem.contains("unknown field `los`"), "{error}");
    }
}
