//! Compiles the shim against the distribution's DPDK.

fn main() {
    println!("cargo:rerun-if-changed=src/shim.c");
    let library = pkg_config::Config::new()
        .atleast_version("22.11")
        .probe("libdpdk")
        .expect("DPDK 22.11 or later is needed: run scripts/install-dependencies.sh");
    let mut build = cc::Build::new();
    build
        .file("src/shim.c")
        .flag("-march=x86-64-v2")
        .flag("-Wno-deprecated-declarations")
        // What a header is missing for would return a number, whatever it is.
        .flag("-Werror=implicit-function-declaration");
    // DPDK's headers are compiled for at least SSE4.2; its flags name rte_config.h.
    build.flag("-include").flag("rte_config.h");
    for path in &library.include_paths {
        build.include(path);
    }
    build.warnings(true).compile("switchboard_dpdk_shim");
}
