//! Compiles the shim over DPDK's hash table where DPDK is installed; the benchmark runs without that peer elsewhere.

use std::process::Command;

fn pkg_config(what: &str) -> Option<Vec<String>> {
    let output = Command::new("pkg-config")
        .args([what, "libdpdk"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output
        .status
        .success()
        .then(|| text.split_whitespace().map(str::to_owned).collect())
}

fn main() {
    println!("cargo:rustc-check-cfg=cfg(rte_hash)");
    println!("cargo:rerun-if-changed=rte_hash.c");
    let Some(flags) = pkg_config("--cflags") else {
        println!("cargo:warning=DPDK is not installed: no comparison with rte_hash");
        return;
    };
    let mut build = cc::Build::new();
    for flag in &flags {
        build.flag(flag);
    }
    build
        .file("rte_hash.c")
        .opt_level(3)
        .compile("rte_hash_peer");
    for library in [
        "rte_hash",
        "rte_eal",
        "rte_ring",
        "rte_kvargs",
        "rte_telemetry",
        "rte_rcu",
        "rte_mempool",
    ] {
        println!("cargo:rustc-link-lib={library}");
    }
    println!("cargo:rustc-cfg=rte_hash");
}
