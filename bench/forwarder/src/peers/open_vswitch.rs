//! Open vSwitch with its user-space datapath over DPDK, doing the forwarder's job: connection tracking, two labels, a
//! VXLAN tunnel. It has its own database in a directory of the benchmark's own `/run`.

use super::{Process, run};
use crate::ports::Wires;
use crate::ports::sink::Sink;
use crate::rules;
use std::process::Command;
use std::time::Duration;

const DIRECTORY: &str = "/run/open-vswitch";
const DATABASE: &str = "unix:/run/open-vswitch/db.sock";
const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A running Open vSwitch.
pub struct OpenVswitch {
    _database: Process,
    switch: Process,
}

impl OpenVswitch {
    /// Starts it with its packet thread on `core` and all others on `other_core`.
    pub fn start(
        wires: &Wires,
        sink: &Sink,
        other_core: usize,
        core: usize,
    ) -> Result<OpenVswitch, String> {
        std::fs::create_dir_all(DIRECTORY).map_err(|error| format!("{DIRECTORY}: {error}"))?;
        let file = format!("{DIRECTORY}/conf.db");
        run("ovsdb-tool", &["create", &file, SCHEMA])?;
        let mut command = Command::new("ovsdb-server");
        command.arg(&file).arg(format!("--remote=p{DATABASE}"));
        let database = Process::start(environment(&mut command), "/run/open-vswitch/database.log")?;
        wait_for(&format!("{DIRECTORY}/db.sock"))?;
        vsctl(&["--no-wait", "init"])?;
        let settings = [
            "dpdk-init=true".to_string(),
            "dpdk-extra=--no-pci --in-memory --no-telemetry".into(),
            "dpdk-socket-mem=768".into(),
            format!("dpdk-lcore-mask={:#x}", 1u64 << other_core),
            format!("pmd-cpu-mask={:#x}", 1u64 << core),
        ];
        for setting in &settings {
            let setting = format!("other_config:{setting}");
            vsctl(&["--no-wait", "set", "Open_vSwitch", ".", &setting])?;
        }
        let mut command = Command::new(DAEMON);
        command
            .arg(DATABASE)
            .arg("--unixctl=/run/open-vswitch/switch.ctl");
        let switch = Process::start(environment(&mut command), "/run/open-vswitch/switch.log")?;
        let mut started = OpenVswitch {
            _database: database,
            switch,
        };
        started.configure(wires, sink)?;
        Ok(started)
    }

    fn configure(&mut self, wires: &Wires, sink: &Sink) -> Result<(), String> {
        let option = |devargs: String| format!("options:dpdk-devargs={devargs}");
        let (wan, vnf) = (
            option(sink.devargs()),
            option(wires.client(rules::VNF_PORT)),
        );
        vsctl(&[
            "add-br",
            "outside",
            "--",
            "set",
            "bridge",
            "outside",
            "datapath_type=netdev",
        ])?;
        vsctl(&[
            "add-br",
            "inside",
            "--",
            "set",
            "bridge",
            "inside",
            "datapath_type=netdev",
        ])?;
        for (bridge, port, devargs) in [("outside", "wan", &wan), ("inside", "vnf", &vnf)] {
            // Commas in a value are the column's otherwise.
            let (column, value) = devargs.split_once('=').expect("as written above");
            let quoted = format!("{column}=\"{value}\"");
            vsctl(&[
                "add-port",
                bridge,
                port,
                "--",
                "set",
                "Interface",
                port,
                "type=dpdk",
                &quoted,
            ])?;
        }
        run("ip", &["address", "add", "198.18.0.1/24", "dev", "outside"])?;
        run("ip", &["link", "set", "outside", "up"])?;
        vsctl(&[
            "add-port",
            "inside",
            "tunnel",
            "--",
            "set",
            "Interface",
            "tunnel",
            "type=vxlan",
            "options:remote_ip=198.18.0.2",
            "options:key=7",
        ])?;
        let labels = "push_mpls:0x8847,set_field:500->mpls_label,push_mpls:0x8847,set_field:1000->mpls_label,output:tunnel";
        let flows = [
            "table=0,priority=10,in_port=vnf,ip,actions=ct(table=1)".to_string(),
            format!("table=1,priority=10,ct_state=+trk+new,ip,actions=ct(commit),{labels}"),
            format!("table=1,priority=10,ct_state=+trk+est,ip,actions={labels}"),
        ];
        openflow(&["del-flows", "inside"])?;
        for flow in &flows {
            openflow(&["add-flow", "inside", flow])?;
        }
        let peer = rules::PEER_MAC.to_string();
        control(&["tnl/neigh/set", "outside", "198.18.0.2", &peer])?;
        Ok(())
    }

    /// Takes the processor from it, or gives it back: its packet thread never sleeps.
    pub fn pause(&self, paused: bool) {
        self.switch.pause(paused);
    }

    /// Packets that it has sent towards the wide area.
    pub fn sent(&self) -> Result<u64, String> {
        let text = control(&["dpctl/show", "--statistics"])?;
        let wan = text.split("port ").find(|port| port.contains(": wan "));
        let sent = wan.and_then(|port| port.split("TX packets:").nth(1)?.split(' ').next());
        sent.and_then(|number| number.parse().ok())
            .ok_or_else(|| format!("no statistics of the port wan: {text}"))
    }

    /// Its version.
    pub fn version() -> Result<String, String> {
        let text = run(DAEMON, &["--version"])?;
        Ok(text.lines().collect::<Vec<_>>().join(", "))
    }
}

fn environment(command: &mut Command) -> &mut Command {
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(name, DIRECTORY);
    }
    command
}

fn wait_for(path: &str) -> Result<(), String> {
    for _ in 0..200 {
        if std::path::Path::new(path).exists() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!("{path} does not appear"))
}

fn tool(program: &str, leading: &[&str], arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(leading).args(arguments);
    let output = environment(&mut command)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    // A port that does not open is said in words only.
    if !output.status.success() || error.contains("Error") {
        return Err(format!(
            "{program} {}: {}",
            arguments.join(" "),
            error.trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn vsctl(arguments: &[&str]) -> Result<String, String> {
    let database = format!("--db={DATABASE}");
    tool("ovs-vsctl", &[&database, "--timeout=60"], arguments)
}

fn openflow(arguments: &[&str]) -> Result<String, String> {
    tool("ovs-ofctl", &["-O", "OpenFlow13"], arguments)
}

fn control(arguments: &[&str]) -> Result<String, String> {
    tool(
        "ovs-appctl",
        &["-t", "/run/open-vswitch/switch.ctl"],
        arguments,
    )
}
