//! The commands and their options: what the command line is checked against, where defaults come from, and what
//! `--help` prints. So none of the three can differ from the others.

use std::fmt::Write;

/// What holds where an option is not given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Absent {
    /// It must be given.
    Required,
    /// This value.
    Default(&'static str),
    /// What the words say.
    Means(&'static str),
}

/// An option of a command.
#[derive(Debug, Clone, Copy)]
pub struct Opt {
    /// With its dashes.
    pub name: &'static str,
    /// What stands for its value in texts; empty for a flag.
    pub value: &'static str,
    /// What it does, with the unit of its value.
    pub meaning: &'static str,
    /// What holds without it; of no account for a flag.
    pub absent: Absent,
}

/// A command: one word, or two.
pub struct Command {
    /// Its words.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// Groups of options.
    pub options: &'static [&'static [Opt]],
    /// Sentences after the options.
    pub notes: &'static str,
}

const fn needed(name: &'static str, value: &'static str, meaning: &'static str) -> Opt {
    let absent = Absent::Required;
    Opt {
        name,
        value,
        meaning,
        absent,
    }
}

const fn standard(
    name: &'static str,
    value: &'static str,
    meaning: &'static str,
    default: &'static str,
) -> Opt {
    let absent = Absent::Default(default);
    Opt {
        name,
        value,
        meaning,
        absent,
    }
}

const fn without(
    name: &'static str,
    value: &'static str,
    meaning: &'static str,
    means: &'static str,
) -> Opt {
    let absent = Absent::Means(means);
    Opt {
        name,
        value,
        meaning,
        absent,
    }
}

const fn flag(name: &'static str, meaning: &'static str) -> Opt {
    without(name, "", meaning, "")
}

const QUIET: [Opt; 2] = [
    flag("-q", "no progress on standard error"),
    flag("--quiet", "the same as -q"),
];
const OUTPUT: Opt = without(
    "-o",
    "FILE",
    "where the answer is written, - for standard output",
    "standard output",
);
const MODEL: Opt = needed("--model", "FILE", "the model, JSON; - for standard input");
const PLANNED: Opt = without(
    "--planned-model",
    "FILE",
    "also write the model with the plan carried out",
    "not written",
);

const LIMITS: [Opt; 3] = [
    standard(
        "--gap",
        "SHARE",
        "stop when value and proved bound differ by at most this share of the value",
        "1e-4",
    ),
    standard(
        "--time-limit",
        "SECONDS",
        "stop after that long with the best certified answer",
        "60",
    ),
    without(
        "--threads",
        "N",
        "threads for pricing, up to 64; the same number gives the same answer",
        "as many as processors",
    ),
];

const SEED: Opt = standard(
    "--seed",
    "N",
    "taken so that scripts can give it to every command; nothing here is drawn at random",
    "1",
);

const DEFAULT_BANDWIDTH: Opt = without(
    "--default-bandwidth",
    "MBPS",
    "bandwidth of links for which the file has none, Mbit/s",
    "such a link is an error",
);

const DEFAULT_LATENCY: Opt = without(
    "--default-latency",
    "MS",
    "latency of links for which the file has neither latency nor coordinates, ms",
    "such a link is an error; 1 under generate",
);

/// All commands.
pub const COMMANDS: [Command; 7] = [
    Command {
        name: "solve",
        about: "Routes all chains of a model.",
        options: &[
            &[
                MODEL,
                standard(
                    "--algorithm",
                    "NAME",
                    "lp (exact, with a proved bound), dp (SB-DP), one-hop, dp-latency, anycast or compute-aware; only lp with --survive and --demands, where it is the default",
                    "dp",
                ),
                standard(
                    "--objective",
                    "NAME",
                    "throughput (Mbit/s carried), scale (largest factor on all demands) or latency (least, all carried); only scale with --survive and --demands, where it is the default",
                    "throughput",
                ),
                without(
                    "--survive",
                    "KIND",
                    "link or site: routes that keep each chain's survive_share whichever single one fails",
                    "no failure is provided for",
                ),
                without(
                    "--demands",
                    "M1,M2,...",
                    "files of demand matrices to route so that the worst one's utilisation is least",
                    "the model's own demands",
                ),
                without(
                    "--max-change",
                    "SHARE",
                    "with --demands: share of the demand that may change its route from one matrix to the next",
                    "0, one routing for all matrices",
                ),
            ],
            &LIMITS,
            &[SEED, OUTPUT],
            &QUIET,
        ],
        notes: "\
A matrix is {\"name\":\"noon\",\"factor\":1.2,\"demands\":[{\"chain\":\"c1\",\"forward_mbps\":5,\"reverse_mbps\":1}]}: the
model's demands times factor, then the chains listed. A file holds one, several as {\"matrices\":[...]}, or a model with
the same chains.
Ctrl-C ends a solve with its best certified answer.
",
    },
    Command {
        name: "plan cloud",
        about: "Says where to add compute so that all demands can grow most.",
        options: &[
            &[
                MODEL,
                needed(
                    "--add-capacity",
                    "LOAD",
                    "compute to add over all sites, load units (load_per_mbps times Mbit/s sent and received)",
                ),
                PLANNED,
            ],
            &LIMITS,
            &[SEED, OUTPUT],
            &QUIET,
        ],
        notes: "The answer's `uniform` is the factor that the same capacity supports when it is spread evenly.\n",
    },
    Command {
        name: "plan placement",
        about: "Says where to deploy VNFs anew so that traffic travels least.",
        options: &[
            &[
                MODEL,
                needed(
                    "--new-sites",
                    "VNF=N,...",
                    "number of further sites for each VNF named, *=N for all others",
                ),
                flag(
                    "--ignore-capacity",
                    "leave capacities of links, sites and VNFs out of account: every chain takes its fastest route",
                ),
                PLANNED,
            ],
            &LIMITS,
            &[SEED, OUTPUT],
            &QUIET,
        ],
        notes: "The answer's `before` is the latency without the plan, Mbit/s times ms.\n",
    },
    Command {
        name: "check",
        about: "Recomputes every load from a result's routes alone; exit 1 on a violation above 1e-6.",
        options: &[
            &[
                MODEL,
                needed("--result", "FILE", "what solve or plan wrote"),
                without(
                    "--demands",
                    "M1,M2,...",
                    "the demand matrices that the result was found for",
                    "the model's own demands",
                ),
            ],
            &[
                flag("-q", "say nothing when the result holds"),
                flag("--quiet", "the same as -q"),
            ],
        ],
        notes: "",
    },
    Command {
        name: "import",
        about: "Makes a model of a topology; demands become chains without VNFs.",
        options: &[
            &[
                without(
                    "--graphml",
                    "FILE",
                    "a topology of the Internet Topology Zoo",
                    "one of the three is needed",
                ),
                without(
                    "--sndlib",
                    "FILE",
                    "an SNDlib instance, native or XML, with its demands",
                    "one of the three is needed",
                ),
                without(
                    "--repetita",
                    "FILE",
                    "a Repetita graph",
                    "one of the three is needed",
                ),
                without(
                    "--demands",
                    "FILE",
                    "demands in Repetita's form",
                    "those of the topology's file, if any",
                ),
            ],
            &[DEFAULT_BANDWIDTH, DEFAULT_LATENCY],
            &[OUTPUT],
            &QUIET,
        ],
        notes: "",
    },
    Command {
        name: "generate",
        about: "Makes a workload in the manner of the paper's section 7.3 on a backbone.",
        options: &[
            &[
                needed(
                    "--backbone",
                    "FILE",
                    "nodes and links: GraphML, Repetita, SNDlib or a model, told apart by the text",
                ),
                standard("--vnfs", "N", "number of VNFs, at least 5", "100"),
                standard(
                    "--coverage",
                    "SHARE",
                    "share of all sites at which each VNF runs, above 0 to 1",
                    "0.5",
                ),
                standard("--chains", "N", "number of chains", "10000"),
                standard(
                    "--cpu-per-byte",
                    "LOAD",
                    "load_per_mbps of every VNF, load units per Mbit/s; at 1 all sites together just handle the demand",
                    "0.1",
                ),
                standard(
                    "--division",
                    "NAME",
                    "how sites divide compute among VNFs: equal, overbooked (four equal shares each, the site's capacity for all) or proportional (to demand; a VNF that no chain visits is deployed nowhere)",
                    "equal",
                ),
                standard("--demand", "FACTOR", "factor on all chains' traffic", "1"),
                standard("--seed", "N", "seed of the random numbers", "1"),
            ],
            &[DEFAULT_LATENCY],
            &[OUTPUT],
            &QUIET,
        ],
        notes: "",
    },
    Command {
        name: "serve",
        about: "Answers te.route, te.moves and te.status on a site's message bus until it is stopped.",
        options: &[
            &[
                needed(
                    "--credentials",
                    "FILE",
                    "how to reach the bus: optimiser.default.json, which the site writes",
                ),
                without(
                    "--name",
                    "NAME",
                    "the worker's name on the bus",
                    "te- and the process id",
                ),
            ],
            &LIMITS,
            &[
                flag("-q", "say nothing at the start"),
                flag("--quiet", "the same as -q"),
            ],
        ],
        notes: "Options of the solver hold for te.moves.\n",
    },
];

impl Command {
    /// The command of that name.
    pub fn named(name: &str) -> Option<&'static Command> {
        COMMANDS.iter().find(|c| c.name == name)
    }

    /// All its options.
    pub fn all_options(&self) -> impl Iterator<Item = &'static Opt> {
        self.options.iter().copied().flatten()
    }

    /// Its usage on one line, or several.
    pub fn usage(&self) -> String {
        let mut text = format!("switchboard-te {}", self.name);
        let mut width = text.len();
        for opt in self.all_options().filter(|o| o.name != "--quiet") {
            let word = match (opt.value, opt.absent) {
                ("", _) => format!(" [{}]", opt.name),
                (value, Absent::Required) => format!(" {} {value}", opt.name),
                (value, _) => format!(" [{} {value}]", opt.name),
            };
            if width + word.len() > WIDTH {
                text.push_str("\n     ");
                width = 5;
            }
            width += word.len();
            text.push_str(&word);
        }
        text
    }

    /// What `--help` prints: every option with its meaning, unit and default.
    pub fn help(&self) -> String {
        let mut text = format!("{}\n\n  {}\n\n", self.about, self.usage());
        let left = |o: &Opt| format!("{} {}", o.name, o.value).trim_end().to_owned();
        let column = self.all_options().map(|o| left(o).len()).max().unwrap_or(0) + 4;
        for opt in self.all_options() {
            let absent = match opt.absent {
                _ if opt.value.is_empty() => String::new(),
                Absent::Required => " (needed)".into(),
                Absent::Default(value) => format!(" (default: {value})"),
                Absent::Means(words) => format!(" (without it: {words})"),
            };
            let meaning = format!("{}{absent}", opt.meaning);
            let lines = wrapped(&meaning, WIDTH - column);
            for (i, line) in lines.iter().enumerate() {
                let name = if i == 0 {
                    format!("  {}", left(opt))
                } else {
                    String::new()
                };
                writeln!(text, "{name:column$}{line}").expect("a string takes all");
            }
        }
        if !self.notes.is_empty() {
            write!(text, "\n{}", self.notes).expect("a string takes all");
        }
        text.push_str("\nExit codes: 0 solved, 1 check failed, 2 bad input, 3 infeasible, 4 neither solved nor infeasible, 130 interrupted.\n");
        text
    }
}

/// Characters on a line of help.
const WIDTH: usize = 118;

/// A text as lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// What `switchboard-te help` prints: all commands.
pub fn overview() -> String {
    let mut text =
        String::from("switchboard-te: routes, plans and checks wide-area service chains\n\n");
    for command in &COMMANDS {
        writeln!(text, "  {:16}{}", command.name, command.about).expect("a string takes all");
    }
    text.push_str(
        "
switchboard-te COMMAND --help says what each option means. -q silences progress; Ctrl-C ends a solve with its best
certified answer. FILE may be - for standard input or output.
Exit codes: 0 solved, 1 check failed, 2 bad input, 3 infeasible, 4 neither solved nor infeasible, 130 interrupted.
",
    );
    text
}
