//! Processors that workers are bound to.

use crate::home::WORKERS_LIMIT;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Reads a list such as `2,4-6`: numbers and ranges of processors, in the order of the workers that are bound to them.
///
/// # Errors
/// Says what is wrong with it and what to write instead.
pub fn parse(list: &str) -> Result<Vec<usize>, String> {
    let mut cores = Vec::new();
    let number = |text: &str| {
        let number = text.trim().parse::<usize>().ok();
        number
            .filter(|&number| number < CpuSet::count())
            .ok_or_else(|| format!("{text:?} is no processor's number; write for example 2,4-6"))
    };
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!(
                "{part:?} is no range; write the lower number first"
            ));
        }
        cores.extend(first..=last);
    }
    let mut sorted = cores.clone();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!(
            "processor {} is named twice; name it once",
            twice[0]
        ));
    }
    Ok(cores)
}

/// Checks that so many workers can be bound to processors; none named means that none is bound.
///
/// # Errors
/// Says what is wrong and what to write instead.
pub fn check(cores: &[usize], workers: usize) -> Result<(), String> {
    if cores.is_empty() {
        return Ok(());
    }
    if cores.len() != workers {
        let cores = cores.len();
        return Err(format!(
            "{cores} processors for {workers} workers; name one for each (of at most {WORKERS_LIMIT})"
        ));
    }
    let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(|error| error.to_string())?;
    match cores
        .iter()
        .find(|&&core| !allowed.is_set(core).unwrap_or(false))
    {
        Some(core) => Err(format!(
            "this process may not run on processor {core}; see `taskset -p`"
        )),
        None => Ok(()),
    }
}

/// Binds the calling thread to a processor.
///
/// # Errors
/// The system's, as when the processor has gone.
pub fn bind(core: usize) -> nix::Result<()> {
    let mut only = CpuSet::new();
    only.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_in_their_order() {
        assert_eq!(parse("3"), Ok(vec![3]));
        assert_eq!(parse("5,1-3,0"), Ok(vec![5, 1, 2, 3, 0]));
    }

    #[test]
    fn a_wrong_list_says_what_to_write() {
        for (list, problem) in [
            ("", "\"\" is no processor's number; write for example 2,4-6"),
            (
                "a",
                "\"a\" is no processor's number; write for example 2,4-6",
            ),
            (
                "1,,2",
                "\"\" is no processor's number; write for example 2,4-6",
            ),
            (
                "99999",
                "\"99999\" is no processor's number; write for example 2,4-6",
            ),
            ("3-1", "\"3-1\" is no range; write the lower number first"),
            ("0-2,1", "processor 1 is named twice; name it once"),
        ] {
            assert_eq!(parse(list), Err(problem.to_string()));
        }
    }

    #[test]
    fn each_worker_needs_a_processor_that_is_allowed() {
        assert_eq!(check(&[], 3), Ok(()));
        let problem = check(&[0, 1], 1).unwrap_err();
        assert!(
            problem.starts_with("2 processors for 1 workers"),
            "{problem}"
        );
        let absent = CpuSet::count() - 1;
        let problem = check(&[absent], 1).unwrap_err();
        assert!(problem.contains("may not run on processor"), "{problem}");
    }

    #[test]
    fn a_thread_that_is_bound_runs_nowhere_else() {
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let core = (0..CpuSet::count()).find(|&core| allowed.is_set(core).unwrap());
        let core = core.unwrap();
        assert_eq!(check(&[core], 1), Ok(()));
        let bound = std::thread::spawn(move || {
            bind(core).unwrap();
            let now = sched_getaffinity(Pid::from_raw(0)).unwrap();
            (0..CpuSet::count())
                .filter(|&core| now.is_set(core).unwrap())
                .collect::<Vec<_>>()
        });
        assert_eq!(bound.join().unwrap(), [core]);
    }
}
