//! What to do about a failure, where the failure itself does not say it.

use leasehold_mvcc::{Code, StoreError};

/// What an embedded etcd calls itself where another has endpoints.
pub(crate) const EMBEDDED: &str = "the embedded etcd";

/// What to look at if nobody could be asked.
pub(super) fn on_reach(endpoints: &str) -> &'static str {
    // One in this process runs, and has no address.
    if endpoints == EMBEDDED { "" } else { "; is it running, and is the address right?" }
}

/// What to do about a no of etcd's.
pub(super) fn on_refusal(refusal: &StoreError) -> &'static str {
    let said = |words| refusal.message.contains(words);
    if said("authentication failed") || said("user name not found") {
        "; check the user's name and password"
    } else if said("user name is empty") {
        "; this etcd has users: give the name and password of one"
    } else if said("invalid auth token") || said("revision of auth store is old") {
        "; try again, the users were being changed"
    } else if refusal.code == Code::PermissionDenied {
        "; grant the user a role that may do it: for a lock, readwrite on the keys from NAME/ to NAME0"
    } else if said("database space exceeded") {
        "; make room in etcd (compact, defragment, or a larger quota), then disarm its alarm"
    } else if said("too large") || said("too many") {
        "; ask for less at once"
    } else {
        match refusal.code {
            Code::Unavailable | Code::ResourceExhausted => "; try again later",
            Code::Unauthenticated => "; check the user's name and password",
            Code::Unimplemented => "; use an etcd that offers it",
            _ => "; etcd's log may tell more",
        }
    }
}
