//! What users give: names, addresses and settings.

use std::time::Duration;

use leasehold::{Credentials, LockName, Mutex, RemoteOptions, TlsOptions, TryLock, Ttl};
use leasehold_testbed::{Backend, Holder, Order, for_each_backend};
use proptest::prelude::*;

use crate::open;

/// C12: a name means the same lock in every process, and its key shows it.
async fn c12_a_name_is_the_same_lock_in_every_process_and_is_seen_in_its_key(backend: Backend) {
    let Some(endpoints) = backend.endpoints() else { return };
    let session = open(backend.etcd(), 10).await;
    for name in
        ["plain", "with.dots..", "two words", "a/b", "/a//b/", "\u{43a}\u{43b}\u{44e}\u{447}", "%00\\x"]
    {
        let name = backend.name(name);
        let holder = Holder::start(&Order::mutex(&endpoints, &name).ttl(5));
        holder.wait_held();
        let mutex = Mutex::new(&session, name.parse().unwrap());
        let TryLock::Busy(entry) = mutex.try_lock().await.unwrap() else {
            panic!("{name:?} is held elsewhere")
        };
        let key = String::from_utf8(entry.key.as_bytes().to_vec()).unwrap();
        assert!(key.starts_with(&format!("{name}/")), "{key}");
        holder.kill();
    }
    backend.leaves_something();
}
for_each_backend!(c12_a_name_is_the_same_lock_in_every_process_and_is_seen_in_its_key);

#[test]
fn c12_what_is_no_name_is_refused_in_one_line_that_says_why() {
    let long = "x".repeat(513);
    for (name, why) in [
        ("", "empty"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("\u{7f}", "control"),
        (long.as_str(), "512"),
    ] {
        let error = name.parse::<LockName>().unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains('\n'), "{name:?}: {error}");
    }
    assert!("x".repeat(512).parse::<LockName>().is_ok());
}

fn one_line(error: &leasehold::Error) -> Result<(), TestCaseError> {
    prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// B18: whatever a client is given, it opens or it says in one line what is wrong.
    #[test]
    fn b18_no_setting_of_a_client_panics(
        endpoints in prop_oneof![
            any::<String>(),
            "(https?://|unix:(//)?|)[a-z0-9.:\\[\\]/%]{0,30}(:[0-9]{0,6})?(,[a-z:0-9]{0,12}){0,2}",
            Just("127.0.0.1:1".to_owned()),
        ],
        millis in prop::collection::vec(any::<u64>(), 5),
        pems in prop::collection::vec(prop_oneof![
            any::<String>(),
            Just("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned()),
            Just("-----BEGIN PRIVATE KEY-----\n\n-----END PRIVATE KEY-----\n".to_owned()),
        ], 3),
        tls in any::<bool>(),
        user in any::<(String, String)>(),
    ) {
        let time = |n: usize| Duration::from_millis(millis[n] % 1_000_000);
        let options = match RemoteOptions::new(&endpoints) {
            Ok(options) => options,
            Err(error) => return one_line(&error),
        };
        let mut options = options
            .call_timeout(time(0))
            .connect_timeout(time(1))
            .ping_interval(time(2))
            .ping_timeout(time(3))
            .watch_silence(time(4));
        if tls {
            options = options.tls(TlsOptions::new().authority(&pems[0]).identity(&pems[1], &pems[2]));
        }
        match Credentials::new(user.0, user.1) {
            Ok(credentials) => options = options.credentials(credentials),
            Err(error) => one_line(&error)?,
        }
        if let Err(error) = options.open() {
            one_line(&error)?;
        }
        if let Err(error) = Ttl::new(Duration::from_millis(millis[0])) {
            one_line(&error)?;
        }
    }
}
