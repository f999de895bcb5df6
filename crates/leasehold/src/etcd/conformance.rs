//! What every backend must do, as tests that any [`Etcd`] can be run through (feature `conformance`).
//!
//! Each function here is one claim and panics if it does not hold; [`all`] makes them in turn. They use names below
//! [`Subject::prefix`] alone, and remove what they make, so a shared server will do, but for
//! [`watching::a_watch_from_compacted_history_is_told_so`], which compacts, and [`closing`], which closes the handle.
//!
//! # Cancel safety
//! A claim that is dropped before its end leaves the keys and leases it has made.
//!
//! ```
//! use std::sync::Arc;
//! use leasehold::Embedded;
//! use leasehold::etcd::conformance::{self, Subject};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let etcd = Embedded::start()?;
//! let store = etcd.clone();
//! let subject = Subject::new(Arc::new(etcd), "mine", move |revision| store.compact(revision).unwrap());
//! conformance::all(&subject).await;
//! # Ok::<(), leasehold::Error>(())
//! # }).unwrap();
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a claim that does not hold is a panic"
)]

pub mod closing;
pub mod keys;
pub mod leases;
pub mod transactions;
pub mod watching;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_mvcc::{Key, Revision};

use super::Etcd;
use crate::runtime::before;

/// How long a claim waits for what must come: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(15);

/// The backend under test.
pub struct Subject {
    etcd: Arc<dyn Etcd>,
    prefix: String,
    compact: Box<dyn Fn(Revision) + Send + Sync>,
}

impl Subject {
    /// `etcd`, to be tested below `prefix`; `compact` forgets its history below a revision.
    pub fn new(
        etcd: Arc<dyn Etcd>,
        prefix: impl Into<String>,
        compact: impl Fn(Revision) + Send + Sync + 'static,
    ) -> Self {
        Self { etcd, prefix: prefix.into(), compact: Box::new(compact) }
    }

    /// The backend.
    pub fn etcd(&self) -> &Arc<dyn Etcd> {
        &self.etcd
    }

    /// What all keys of the tests begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A key of the tests' own.
    pub fn key(&self, name: &str) -> Key {
        Key::from(format!("{}/{name}", self.prefix))
    }

    /// What `future` gives.
    ///
    /// # Panics
    /// If it takes too long.
    pub async fn soon<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        let runtime = self.etcd.runtime();
        let got = before(&*runtime, runtime.now() + PATIENCE, future).await;
        got.unwrap_or_else(|| panic!("{what}: nothing within {PATIENCE:?}"))
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("etcd", &self.etcd)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Makes every claim. The last one closes the backend.
///
/// # Panics
/// If one does not hold.
pub async fn all(subject: &Subject) {
    keys::what_was_put_is_there_until_it_is_deleted(subject).await;
    keys::of_many_who_put_if_not_exists_one_succeeds(subject).await;
    keys::delete_if_value_spares_another_value(subject).await;
    keys::a_key_counts_its_writes_since_its_creation(subject).await;
    keys::keys_are_bytes(subject).await;
    keys::a_range_is_sorted_and_cut_as_asked(subject).await;
    transactions::a_transaction_does_the_one_or_the_other(subject).await;
    transactions::every_comparison_must_hold(subject).await;
    transactions::a_comparison_over_a_range_must_hold_for_every_key(subject).await;
    transactions::a_transaction_sees_its_own_writes(subject).await;
    transactions::a_transaction_within_a_transaction_is_done_with_it(subject).await;
    transactions::what_etcd_refuses_is_refused_with_its_code(subject).await;
    leases::a_revoked_lease_takes_its_keys_along(subject).await;
    leases::an_expired_lease_takes_its_keys_along(subject).await;
    leases::a_renewed_lease_outlives_its_ttl(subject).await;
    leases::a_lease_that_is_gone_is_said_to_be_gone(subject).await;
    leases::a_put_without_a_lease_detaches_the_key(subject).await;
    watching::a_watch_is_confirmed_before_it_tells(subject).await;
    watching::a_watch_from_the_past_tells_it_in_order(subject).await;
    watching::a_watch_tells_of_its_own_keys_alone(subject).await;
    watching::events_of_one_transaction_have_one_revision(subject).await;
    watching::the_end_of_a_lease_is_an_event(subject).await;
    watching::a_watch_from_compacted_history_is_told_so(subject).await;
    closing::after_the_close_every_call_says_closed(subject).await;
}
