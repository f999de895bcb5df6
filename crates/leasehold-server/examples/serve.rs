//! An etcd for etcdctl to play with: `cargo run --example serve -- 127.0.0.1:2379`, or a path for a Unix socket.
//! It ends with its standard input.

use std::error::Error;
use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;

use leasehold::Embedded;
use leasehold_server::{Address, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let address = match address.parse::<SocketAddr>() {
        Ok(tcp) => Address::from(tcp),
        Err(_) => Address::from(PathBuf::from(address)),
    };
    let server = Server::bind(address, Embedded::start()?).await?;
    println!("export ETCDCTL_ENDPOINTS={}", server.address());

    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    std::thread::Builder::new().spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(ended);
    })?;
    server.serve(async { drop(end.await) }).await;
    Ok(())
}
