//! The lock service inside a real etcd: Go's own mutex, and so the proof of interoperability that needs no Go.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use leasehold_mvcc::{LeaseId, Revision};
use serde_json::json;

use crate::gateway::{Gateway, number};

/// How long a wait for a lock may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The service of one member. Its calls block.
#[derive(Clone, Debug)]
pub struct LockService(Gateway);

/// A lock that the service gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceHold {
    /// Its key.
    pub key: String,
    /// The revision of the answer: the token of Go's clients.
    pub revision: Revision,
}

impl LockService {
    /// The service at an endpoint such as `http://127.0.0.1:2379`.
    pub fn new(endpoint: &str) -> Self {
        Self(Gateway::new(endpoint).patient(PATIENCE))
    }

    /// A lease for the service to hold locks on; nobody renews it.
    ///
    /// # Errors
    /// If it is refused.
    pub fn grant(&self, ttl: u64) -> Result<LeaseId, String> {
        let answer = self.0.post("/v3/lease/grant", &json!({"TTL": ttl.to_string()}))?;
        Ok(LeaseId::new(number(&answer["ID"]).cast_signed()))
    }

    /// Gives a lease up, with what is held on it.
    ///
    /// # Errors
    /// If it is refused.
    pub fn revoke(&self, lease: LeaseId) -> Result<(), String> {
        self.0.post("/v3/lease/revoke", &json!({"ID": lease.get().to_string()})).map(drop)
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// If it is refused, or if it takes more than a minute.
    pub fn lock(&self, name: &str, lease: LeaseId) -> Result<ServiceHold, String> {
        let ask = json!({"name": STANDARD.encode(name), "lease": lease.get().to_string()});
        let answer = self.0.post("/v3/lock/lock", &ask)?;
        let key = STANDARD.decode(answer["key"].as_str().unwrap_or_default());
        Ok(ServiceHold {
            key: String::from_utf8(key.unwrap_or_default()).map_err(|error| error.to_string())?,
            revision: Revision::new(number(&answer["header"]["revision"]).cast_signed()),
        })
    }

    /// Gives the lock up.
    ///
    /// # Errors
    /// If it is refused.
    pub fn unlock(&self, hold: &ServiceHold) -> Result<(), String> {
        self.0.post("/v3/lock/unlock", &json!({"key": STANDARD.encode(&hold.key)})).map(drop)
    }
}
