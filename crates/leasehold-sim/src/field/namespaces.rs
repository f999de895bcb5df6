//! Network namespaces: one for each node, on a bridge in a hub of its own, into which this process moves.
//!
//! Names carry the process id, so that runs do not clash and those of dead processes can be told and removed.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const FOLDER: &str = "/run/netns";
const PREFIX: &str = "lhfield";

/// The namespaces of a run. They go with this value.
#[derive(Debug)]
pub struct Namespaces {
    nodes: usize,
    /// Whether the folder of names was a mount before.
    mounted: bool,
}

impl Namespaces {
    /// Makes so many, each with an address on one bridge, and moves the calling thread into the hub: threads
    /// and processes that it starts are there too.
    ///
    /// # Errors
    /// What was not permitted; then nothing is left.
    pub fn make(nodes: usize) -> Result<Self, String> {
        remove_stale();
        let made = Self { nodes, mounted: is_mounted() };
        let before = File::open("/proc/self/ns/net").map_err(|error| error.to_string())?;
        let laid = made.lay();
        if laid.is_err() {
            // It may be within the hub already, where even the loopback may be down.
            let _ = enter(&before);
        }
        laid.map(|()| made)
    }

    fn lay(&self) -> Result<(), String> {
        ip(&["netns", "add", &hub()])?;
        enter(&File::open(Path::new(FOLDER).join(hub())).map_err(|error| error.to_string())?)?;
        ip(&["link", "set", "lo", "up"])?;
        ip(&["link", "add", "bridge", "type", "bridge"])?;
        ip(&["address", "add", &format!("{HUB}/24"), "dev", "bridge"])?;
        ip(&["link", "set", "bridge", "up"])?;
        for node in 0..self.nodes {
            let (name, link) = (space(node), format!("node{node}"));
            ip(&["netns", "add", &name])?;
            ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &name])?;
            ip(&["link", "set", &link, "master", "bridge", "up"])?;
            let address = format!("{}/24", address(node));
            ip(&["-n", &name, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    /// From now on a node sends nothing to this address, and nobody is told.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn blackhole(&self, node: usize, to: Ipv4Addr) -> Result<(), String> {
        ip(&["-n", &space(node), "route", "replace", "blackhole", &format!("{to}/32")])
    }

    /// The same for the hub.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn blackhole_hub(&self, to: Ipv4Addr) -> Result<(), String> {
        ip(&["route", "replace", "blackhole", &format!("{to}/32")])
    }

    /// Takes all blackholes of a node away, and those of the hub.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn heal(&self, node: usize) -> Result<(), String> {
        ip(&["-n", &space(node), "route", "flush", "type", "blackhole"])?;
        ip(&["route", "flush", "type", "blackhole"])
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // The names go; the namespaces themselves end with the last process in them.
        for name in (0..self.nodes).map(space).chain([hub()]) {
            if Path::new(FOLDER).join(&name).exists() {
                let _ = ip(&["netns", "del", &name]);
            }
        }
        let empty = || fs::read_dir(FOLDER).is_ok_and(|mut names| names.next().is_none());
        if !self.mounted && empty() {
            let _ = Command::new("umount").arg(FOLDER).stderr(Stdio::null()).status();
        }
    }
}

/// The hub's address, where the proxies listen.
pub const HUB: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);

/// A node's address.
pub fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 213, 0, 11 + u8::try_from(node).unwrap_or(200))
}

/// The name of a node's namespace.
pub fn space(node: usize) -> String {
    format!("{PREFIX}-{}-{node}", std::process::id())
}

fn hub() -> String {
    format!("{PREFIX}-{}-hub", std::process::id())
}

fn enter(space: &File) -> Result<(), String> {
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| format!("cannot enter a network namespace: {error}"))
}

fn is_mounted() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(FOLDER))
}

/// Removes what runs left that were killed before they could.
fn remove_stale() {
    let Ok(names) = fs::read_dir(FOLDER) else { return };
    for name in names.filter_map(|name| name.ok()?.file_name().into_string().ok()) {
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('-')?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Nothing to flush is no failure.
    if output.status.success() || said.contains("Nothing to flush") || words.contains(&"flush") {
        return Ok(());
    }
    Err(format!("ip {}: {}", words.join(" "), said.lines().next().unwrap_or("no reason given")))
}
