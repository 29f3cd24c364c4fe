//! The command `switchboard-te`. The contract is in `docs/traffic-engineering.md`.
//!
//! Exit codes: 0 solved, 1 a check found violations, 2 bad input, 3 infeasible.

mod arguments;
mod check;
mod files;
mod import;
mod plan;
mod progress;
mod series;
mod serve;
mod solve;
mod survive;

use std::process::ExitCode;

use te::error::Error;

const USAGE: &str = "\
switchboard-te: routes, plans and checks wide-area service chains

  solve    --model FILE --algorithm lp|dp|one-hop|dp-latency|anycast|compute-aware
           --objective throughput|scale|latency [--gap 1e-4] [--time-limit 60] [--threads N] [-o FILE]
           [--survive link|site] routes that keep each chain's survive_share whatever single link or site fails
           [--demands M1,M2,... [--max-change 0]] routes for a series of demand matrices: one routing for all, or one
           for each with at most the share --max-change of the demand changing its route from one to the next
  plan     cloud --model FILE --add-capacity X | placement --model FILE --new-sites vnf=N[,vnf=N]
           [--ignore-capacity] [--planned-model FILE] [-o FILE]
  check    --model FILE --result FILE [--demands M1,M2,...]
  import   --graphml F | --sndlib F | --repetita F [--demands F]
           [--default-bandwidth MBPS] [--default-latency MS] [-o FILE]
  generate --backbone F [--vnfs 100] [--coverage 0.5] [--chains 10000] [--cpu-per-byte 0.1]
           [--division equal|overbooked|proportional] [--demand 1] [--seed 1] [-o FILE]
  serve    --credentials FILE [--name NAME]

A matrix is {\"name\":\"noon\",\"factor\":1.2,\"demands\":[{\"chain\":\"c1\",\"forward_mbps\":5,\"reverse_mbps\":1}]} (the model's demands
times factor, then the chains listed), a model with the same chains, or a file with several: {\"matrices\":[...]}.
-q silences progress; Ctrl-C ends a solve with its best certified answer.
FILE may be - for standard input or output. Exit codes: 0 solved, 1 check failed, 2 bad input, 3 infeasible.
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.first().map(String::as_str) {
        Some("solve") => solve::run(&words[1..]),
        Some("check") => check::run(&words[1..]),
        Some("serve") => serve::run(&words[1..]),
        Some("plan") => plan::run(&words[1..]),
        Some("import") => import::run(&words[1..]),
        Some("generate") => import::run_generate(&words[1..]),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            eprintln!("switchboard-te: '{other}' is no command\n\n{USAGE}");
            return ExitCode::from(2);
        }
        None => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(code) => code,
        Err(Error::Input(e)) => {
            eprintln!("switchboard-te: {e}");
            ExitCode::from(2)
        }
        Err(Error::Infeasible(e)) => {
            eprintln!("switchboard-te: {e}");
            for constraint in &e.constraints {
                eprintln!("switchboard-te: constraint: {constraint}");
            }
            ExitCode::from(3)
        }
    }
}
