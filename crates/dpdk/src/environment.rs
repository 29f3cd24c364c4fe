//! DPDK's environment abstraction layer: once in a process.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::{fmt, fs};

unsafe extern "C" {
    fn sb_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn sb_eal_cleanup() -> c_int;
    fn sb_counter_hz() -> u64;
    fn rte_eal_get_runtime_dir() -> *const c_char;
}

/// Proof that DPDK has started.
#[derive(Debug)]
pub struct Environment(());

/// Why DPDK did not start.
#[derive(Debug)]
pub enum EnvironmentError {
    /// It had started before in this process.
    AlreadyStarted,
    /// An argument holds a zero byte.
    BadArgument(String),
    /// The system's error number.
    System(i32),
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyStarted => out.write_str("DPDK has already started in this process"),
            Self::BadArgument(argument) => {
                write!(out, "the DPDK argument {argument:?} holds a zero byte")
            }
            Self::System(number) => write!(
                out,
                "DPDK did not start: {}",
                std::io::Error::from_raw_os_error(*number)
            ),
        }
    }
}

impl std::error::Error for EnvironmentError {}

static STARTED: Mutex<bool> = Mutex::new(false);

impl Environment {
    /// Starts DPDK with arguments of its own, such as `--no-huge`.
    ///
    /// # Errors
    /// It has started before, an argument is no C string, or the system refuses.
    pub fn start(arguments: &[String]) -> Result<Environment, EnvironmentError> {
        let mut started = STARTED
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if *started {
            return Err(EnvironmentError::AlreadyStarted);
        }
        let mut strings = Vec::new();
        for argument in std::iter::once("switchboard").chain(arguments.iter().map(String::as_str)) {
            let string = CString::new(argument)
                .map_err(|_| EnvironmentError::BadArgument(argument.to_string()))?;
            strings.push(string.into_raw());
        }
        // DPDK keeps pointers into its arguments: they are never freed.
        let vector: &'static mut [*mut c_char] = strings.leak();
        // SAFETY: `vector` holds terminated strings and, like them, lives for ever.
        let result = unsafe { sb_eal_init(vector.len() as c_int, vector.as_mut_ptr()) };
        // A process of its own shares nothing through the directory that DPDK makes for it, started or not. One with files stays.
        if let Some(directory) = runtime_directory() {
            let _ = fs::remove_dir(directory);
        }
        if result != 0 {
            return Err(EnvironmentError::System(-result));
        }
        *started = true;
        Ok(Environment(()))
    }

    /// How fast DPDK believes that the processor's counter ([`crate::cycles`]) runs, in counts a second.
    pub fn counter_hz(&self) -> u64 {
        // SAFETY: DPDK has started.
        unsafe { sb_counter_hz() }
    }

    /// Gives back what DPDK took outside the process, such as huge-page files. Nothing of DPDK may be used after it.
    pub fn clean_up(self) {
        // SAFETY: the caller has given up the proof that DPDK runs.
        unsafe { sb_eal_cleanup() };
    }
}

/// Where DPDK keeps what processes share.
fn runtime_directory() -> Option<PathBuf> {
    // SAFETY: it returns a terminated string that DPDK owns and leaves unchanged, an empty one before it starts, or nothing.
    let text = unsafe {
        rte_eal_get_runtime_dir()
            .as_ref()
            .map(|text| CStr::from_ptr(text))
    }?;
    Some(PathBuf::from(OsStr::from_bytes(text.to_bytes())))
}
