//! Compiles the shim over DPDK's hash table.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=src/peers/rte_hash.c");
    let output = Command::new("pkg-config")
        .args(["--cflags", "libdpdk"])
        .output()
        .expect("pkg-config is needed: run scripts/install-dependencies.sh");
    let flags = String::from_utf8_lossy(&output.stdout);
    let mut build = cc::Build::new();
    for flag in flags.split_whitespace() {
        build.flag(flag);
    }
    build
        .file("src/peers/rte_hash.c")
        .opt_level(3)
        .compile("rte_hash_peer");
    println!("cargo:rustc-link-lib=rte_hash");
}
