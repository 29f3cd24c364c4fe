//! Writes the Rust types of the contracts: `contracts-generate OUTPUT_DIRECTORY`, from the repository's root.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let output = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or("usage: contracts-generate OUTPUT_DIRECTORY")?;
    let files = [
        "switchboard/forwarder/v1/rules.proto",
        "switchboard/forwarder/v1/flows.proto",
        "switchboard/forwarder/v1/status.proto",
    ];
    std::fs::create_dir_all(&output)?;
    let descriptors = protox::compile(files, ["proto"])?;
    prost_build::Config::new()
        .btree_map(["."])
        .out_dir(output)
        .compile_fds(descriptors)?;
    Ok(())
}
