//! Ctrl-C and termination signals.
//!
//! While something is being solved, the first signal asks for the best answer so far. At any other time, such as while a
//! model is read, there is no answer to give: the command says so and ends. So does a second signal.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Exit code of a command that was interrupted before it had an answer, as shells have it for Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Whether a signal came.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Whether somebody is going to give an answer when a signal comes.
static ANSWERED: AtomicBool = AtomicBool::new(false);

/// Waits for signals in the background from now on.
pub fn listen() {
    let heard = |mut signals: Signals| {
        for _ in signals.forever() {
            // In one order with `answered`: either the solver sees the signal or this sees the solver.
            let again = ASKED.swap(true, Ordering::SeqCst);
            if again {
                exit(INTERRUPTED);
            }
            if !ANSWERED.load(Ordering::SeqCst) {
                eprintln!("switchboard-te: interrupted before there was an answer");
                exit(INTERRUPTED);
            }
        }
    };
    match Signals::new([SIGINT, SIGTERM]) {
        Ok(signals) => {
            std::thread::spawn(move || heard(signals));
        }
        Err(e) => eprintln!("switchboard-te: Ctrl-C will end this without an answer: {e}"),
    }
}

/// From now on a signal is answered by whoever [asks](asked) whether one came.
pub fn answered() {
    ANSWERED.store(true, Ordering::SeqCst);
}

/// Whether a signal came.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
