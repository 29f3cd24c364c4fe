//! What tests of the command share: running it, files of a test's own, and the project's data.

// Each test uses a part of these.
#![allow(dead_code)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use te::json::Value;
use te::model::Model;

/// A directory of the test's own, removed in the end.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("te-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    /// Writes a file and gives its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("written");
        self.path(name)
    }

    /// The text of a file in it.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect("a file")
    }

    /// The names of its files, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a directory");
        let name = |e: std::io::Result<fs::DirEntry>| e.expect("an entry").file_name();
        let mut names: Vec<String> = entries
            .map(|e| name(e).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn program(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard-te"));
    command.args(line.split_whitespace());
    command
}

/// Runs the program with the words of a line.
pub fn run(line: &str) -> Output {
    program(line).output().expect("the program runs")
}

/// Runs the program with a text on its standard input.
pub fn run_with_input(line: &str, input: &str) -> Output {
    let child = program(line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.expect("the program runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    let input = input.to_owned();
    // A program that refuses its input closes the pipe.
    let writer = std::thread::spawn(move || pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    let _ = writer.join().expect("the writer ends");
    output
}

/// What the program said on standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// What the program wrote on standard output, which must be an answer.
pub fn answer(output: &Output, what: &str) -> String {
    assert_eq!(output.status.code(), Some(0), "{what}: {}", said(output));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// Runs the program, which must succeed, and gives what it wrote on standard output.
pub fn written(line: &str) -> String {
    answer(&run(line), line)
}

/// A JSON text as a value.
pub fn json(text: &str) -> Value {
    te::json::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A member of an object.
pub fn member<'a>(value: &'a Value, name: &str) -> &'a Value {
    let Value::Object(members) = value else {
        panic!("{name} of {value:?}");
    };
    let found = members.iter().find(|(n, _)| n == name);
    &found.unwrap_or_else(|| panic!("no {name} in {value:?}")).1
}

/// A number in an object.
pub fn number(value: &Value, name: &str) -> f64 {
    match member(value, name) {
        Value::Number(number) => *number,
        other => panic!("{name} is {other:?}"),
    }
}

/// A JSON text as a model.
pub fn model(text: &str) -> Model {
    Model::read(text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The project's data: `SWITCHBOARD_DATA`, or beside the repository. Says so where it is absent.
pub fn data() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var("SWITCHBOARD_DATA").map_or_else(|_| beside(), PathBuf::from);
    if data.is_dir() {
        return Some(data);
    }
    eprintln!(
        "skipped: {} is absent; SWITCHBOARD_DATA may name it",
        data.display()
    );
    None
}
