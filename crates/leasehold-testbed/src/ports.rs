//! Ports that no other test takes, on this machine, for as long as the value lives.
//!
//! A server that is killed and restarted must get its port back. So a port is taken from below the range from which
//! the kernel serves outgoing connections, and it is reserved against other testbeds, also in other processes, by
//! listening on the same number at a loopback address that nothing else uses. The server itself has 127.0.0.1.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Where reservations listen.
const RESERVED: Ipv4Addr = Ipv4Addr::new(127, 77, 77, 77);
const FIRST: u16 = 15_000;
const COUNT: u16 = 17_000;

/// A port of 127.0.0.1 that is the owner's to use.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: TcpListener,
}

impl Port {
    /// A port that nobody listens on now.
    ///
    /// # Panics
    /// If there is none.
    pub fn reserve() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Where a process begins to look is left to its id, so that two of them seldom meet.
        let first = (std::process::id() % u32::from(COUNT)) as u16;
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = FIRST + ((u32::from(first) * 37 + u32::from(step)) % u32::from(COUNT)) as u16;
            let Ok(reservation) = TcpListener::bind((RESERVED, number)) else { continue };
            // Nobody may be there, neither on 127.0.0.1 nor on all addresses.
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Self { number, _reservation: reservation };
            }
        }
        panic!("no free port from {FIRST} on");
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_can_be_listened_on_and_is_not_given_out_twice() {
        let ports: Vec<_> = (0..20).map(|_| Port::reserve()).collect();
        let mut numbers: Vec<_> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 20);
        let _server = TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0].number())).unwrap();
    }
}
