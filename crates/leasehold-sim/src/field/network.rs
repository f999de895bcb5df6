//! The network of a run: namespaces and routes where they are permitted, proxies alone where they are not.
//!
//! Nodes are numbered: the members first, then the clients. Clients always reach members through proxies.
//! Members reach each other directly in namespaces, where a blackhole route cuts them off, and through
//! proxies on loopback.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_testbed::Program;
use leasehold_testbed::ports::Port;
use tokio::runtime::Handle;

use super::links::{Gate, Links, Weather};
use super::namespaces::{self, Namespaces};

/// How many members there are.
pub const MEMBERS: usize = 3;

/// Which directions are meant, as seen from the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What it sends, and what it is sent.
    Both,
    /// What it sends.
    Out,
    /// What it is sent.
    In,
}

impl Way {
    fn out(self) -> bool {
        self != Self::In
    }

    fn inward(self) -> bool {
        self != Self::Out
    }
}

/// Where a member listens, and where its peers find it.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// For clients.
    pub client: SocketAddr,
    /// For peers.
    pub peer: SocketAddr,
    /// Where peers are told to connect to.
    pub advertised: SocketAddr,
}

/// The network.
#[derive(Debug)]
pub struct Network {
    /// Before the links: names go when processes have gone, but links may go at any time.
    spaces: Option<Namespaces>,
    links: Arc<Links>,
    members: Vec<Addresses>,
    endpoints: Vec<String>,
    _ports: Vec<Port>,
}

impl Network {
    /// The network of so many clients.
    ///
    /// # Errors
    /// If a proxy cannot be had.
    pub fn make(spaces: Option<Namespaces>, clients: usize, runtime: Handle) -> std::io::Result<Self> {
        let links = Arc::new(Links::new(MEMBERS + clients, runtime));
        let (mut ports, mut members) = (Vec::new(), Vec::new());
        for member in 0..MEMBERS {
            members.push(if spaces.is_some() {
                let at = |port| SocketAddr::from((namespaces::address(member), port));
                Addresses { client: at(2379), peer: at(2380), advertised: at(2380) }
            } else {
                let mut local = || {
                    ports.push(Port::reserve());
                    local_at(ports[ports.len() - 1].number())
                };
                let (client, peer) = (local(), local());
                let gate = Gate { from: None, to: member, target: peer };
                Addresses { client, peer, advertised: links.open(local_at(0), gate)? }
            });
        }
        let near =
            SocketAddr::from((if spaces.is_some() { namespaces::HUB } else { Ipv4Addr::LOCALHOST }, 0));
        let mut endpoints = Vec::new();
        for client in 0..clients {
            let mut own = Vec::new();
            for (member, addresses) in members.iter().enumerate() {
                let gate = Gate { from: Some(MEMBERS + client), to: member, target: addresses.client };
                own.push(links.open(near, gate)?.to_string());
            }
            endpoints.push(own.join(","));
        }
        Ok(Self { spaces, links, members, endpoints, _ports: ports })
    }

    /// A member's addresses.
    pub fn member(&self, member: usize) -> Addresses {
        self.members[member]
    }

    /// The members as a client reaches them.
    pub fn endpoints(&self, client: usize) -> &str {
        &self.endpoints[client]
    }

    /// Tells connections between members apart by the members' ids.
    pub fn know_peers(&self, ids: &[u64]) {
        self.links.know_peers(ids.iter().map(|id| format!("{id:x}")).collect());
    }

    /// A program as it is started at a node.
    pub fn program(&self, node: usize, path: &Path, args: Vec<OsString>) -> Program {
        if self.spaces.is_none() {
            return Program::new(path).args(args);
        }
        let name = namespaces::space(node);
        let entry = ["netns", "exec", &name].map(OsString::from);
        Program::new("ip").args(entry).args([path]).args(args)
    }

    /// Cuts a member off from its peers; clients reach it as before.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn cut_member(&self, member: usize, way: Way) -> Result<(), String> {
        for peer in (0..MEMBERS).filter(|peer| *peer != member) {
            self.cut(member, peer, way)?;
        }
        Ok(())
    }

    /// Cuts one direction or both between two members.
    fn cut(&self, member: usize, peer: usize, way: Way) -> Result<(), String> {
        if let Some(spaces) = &self.spaces {
            if way.out() {
                spaces.blackhole(member, namespaces::address(peer))?;
            }
            if way.inward() {
                spaces.blackhole(peer, namespaces::address(member))?;
            }
            return Ok(());
        }
        let held = Weather { held: true, ..Weather::default() };
        if way.out() {
            self.links.flow(member, peer).set(held);
        }
        if way.inward() {
            self.links.flow(peer, member).set(held);
        }
        Ok(())
    }

    /// Members reach each other again.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn heal_members(&self) -> Result<(), String> {
        for member in 0..MEMBERS {
            if let Some(spaces) = &self.spaces {
                spaces.heal(member)?;
            }
            for peer in 0..MEMBERS {
                self.links.flow(member, peer).set(Weather::default());
            }
        }
        Ok(())
    }

    /// Cuts a client off from all members.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn cut_client(&self, client: usize, way: Way) -> Result<(), String> {
        let Some(spaces) = &self.spaces else {
            self.hold_client(client, way);
            return Ok(());
        };
        if way.out() {
            spaces.blackhole(MEMBERS + client, namespaces::HUB)?;
        }
        if way.inward() {
            spaces.blackhole_hub(namespaces::address(MEMBERS + client))?;
        }
        Ok(())
    }

    /// Holds back what a client sends or is sent, to be delivered late.
    pub fn hold_client(&self, client: usize, way: Way) {
        let held = Weather { held: true, ..Weather::default() };
        self.weather(client, if way.out() { held } else { Weather::default() }, {
            if way.inward() { held } else { Weather::default() }
        });
    }

    /// Lets everything between a client and the members take longer, and pieces get lost.
    pub fn slow_client(&self, client: usize, delay: Duration, loss: u64) {
        let weather = Weather { held: false, delay, loss };
        self.weather(client, weather, weather);
    }

    /// Breaks a client's connections.
    pub fn break_client(&self, client: usize) {
        self.links.break_connections(MEMBERS + client);
    }

    /// A client's network is as good as new.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn heal_client(&self, client: usize) -> Result<(), String> {
        self.weather(client, Weather::default(), Weather::default());
        self.spaces.as_ref().map_or(Ok(()), |spaces| spaces.heal(MEMBERS + client))
    }

    fn weather(&self, client: usize, up: Weather, down: Weather) {
        for member in 0..MEMBERS {
            self.links.flow(MEMBERS + client, member).set(up);
            self.links.flow(member, MEMBERS + client).set(down);
        }
    }
}

fn local_at(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
