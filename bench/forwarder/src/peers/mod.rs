//! Other programs that do the same job, or part of it.

pub mod open_vswitch;

use std::process::{Child, Command, Stdio};

/// A process that ends with this value.
pub struct Process(pub Child);

impl Process {
    /// Starts a program that writes to a log file.
    pub fn start(command: &mut Command, log: &str) -> Result<Process, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |error: std::io::Error| format!("{name} does not start: {error}");
        let file = std::fs::File::create(log).map_err(failed)?;
        let errors = file.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        command.spawn().map(Process).map_err(failed)
    }

    /// Takes the processor from it, or gives it back.
    pub fn pause(&self, paused: bool) {
        pause(self.0.id(), paused);
    }
}

/// Takes the processor from a process, or gives it back.
pub fn pause(process: u32, paused: bool) {
    use nix::sys::signal::{Signal, kill};
    let signal = match paused {
        true => Signal::SIGSTOP,
        false => Signal::SIGCONT,
    };
    // It has ended when this fails, which the next measurement shows.
    let _ = kill(nix::unistd::Pid::from_raw(process as i32), signal);
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended when these fail.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end; what it wrote.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program}: {error}; run scripts/install-dependencies.sh"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "{program} {}: {}",
            arguments.join(" "),
            error.trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
