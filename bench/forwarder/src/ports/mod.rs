//! Measuring over ports: packets come from another process, over shared memory (memif), and go back to it.

pub mod generator;
pub mod sink;
pub mod worker;

use crate::rules;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The two ports between the generator and what is measured.
#[derive(Clone, Debug)]
pub struct Wires {
    directory: PathBuf,
}

impl Wires {
    /// Sockets in a new directory.
    pub fn new(name: &str) -> Result<Wires, String> {
        let directory = Path::new("/run/memif").join(name);
        std::fs::create_dir_all(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(Wires { directory })
    }

    /// Wires whose directory another process has made.
    pub fn existing(directory: &str) -> Wires {
        Wires {
            directory: directory.into(),
        }
    }

    fn devargs(&self, number: usize, role: &str) -> String {
        let socket = self.directory.join(format!("{number}.sock"));
        format!(
            "net_memif{number},role={role},id={number},socket-abstract=no,socket={}",
            socket.display()
        )
    }

    /// The generator's port of a number: 0 faces the wide area, 1 the VNF.
    pub fn server(&self, number: usize) -> String {
        self.devargs(number, "server")
    }

    /// The port of what is measured. The VNF's has the address that frames of the VNF go to.
    pub fn client(&self, number: usize) -> String {
        let devargs = self.devargs(number, "client");
        match number {
            rules::VNF_PORT => format!("{devargs},mac={}", rules::PORT_MAC),
            _ => devargs,
        }
    }
}

/// This program once more, in another role; it obeys lines and answers each with one.
pub struct Helper {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    role: &'static str,
}

impl Helper {
    /// Starts it on a core.
    pub fn start(
        role: &'static str,
        wires: &Wires,
        core: usize,
        more: &[String],
    ) -> Result<Helper, String> {
        let failed = |error: std::io::Error| format!("{role} does not start: {error}");
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .arg(role)
            .arg(&wires.directory)
            .arg(core.to_string())
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut helper = Helper {
            child,
            input,
            output,
            role,
        };
        helper.ask("hello")?;
        Ok(helper)
    }

    /// Sends a line and reads the answer: numbers.
    pub fn ask(&mut self, line: &str) -> Result<Vec<f64>, String> {
        let ended = |_| format!("the {} has ended", self.role);
        writeln!(self.input, "{line}").map_err(ended)?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).map_err(ended)?;
        let numbers = answer.split_whitespace().map(str::parse);
        let numbers: Result<Vec<f64>, _> = numbers.collect();
        let none = answer.is_empty();
        match numbers {
            Ok(numbers) if !none => Ok(numbers),
            _ => Err(format!("the {} answers {answer:?} to {line:?}", self.role)),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It has ended when these fail.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// DPDK in huge pages, on one core, with few buffers.
fn environment(core: &str) -> Result<dpdk::Environment, String> {
    let words = [
        "--in-memory",
        "--no-telemetry",
        "--no-pci",
        "--log-level=error",
        "-m",
        "64",
    ];
    let words = words.into_iter().chain(["-l", core]).map(String::from);
    let words: Vec<String> = words.collect();
    dpdk::Environment::start(&words).map_err(|error| error.to_string())
}

/// Answers every line of standard input until it ends.
fn obey(mut answer: impl FnMut(&str) -> String) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        println!("{}", answer(&line));
    }
}
