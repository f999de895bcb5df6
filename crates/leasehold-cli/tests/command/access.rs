//! Users and certificates: real etcd, by options and by variables; and what is told to whoever may not.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use leasehold_testbed::{Authority, Gateway, Identity, Options, RealEtcd, Version};
use serde_json::json;

use crate::stage::{Outcome, Running, Stage};

const HERE: &str = "127.0.0.1";
const PASSWORD: &str = "hunter2";

/// Turns users on, with `worker` who may read and write below `jobs/`, and `reader` who may only look there.
fn with_users(gateway: &Gateway) -> Gateway {
    for (user, kind) in [("worker", "READWRITE"), ("reader", "READ")] {
        gateway.post("/v3/auth/role/add", &json!({"name": user})).unwrap();
        let (from, to) = (STANDARD.encode("jobs/"), STANDARD.encode("jobs0"));
        let permission = json!({"permType": kind, "key": from, "range_end": to});
        gateway.post("/v3/auth/role/grant", &json!({"name": user, "perm": permission})).unwrap();
        gateway.post("/v3/auth/user/add", &json!({"name": user, "password": PASSWORD})).unwrap();
        gateway.post("/v3/auth/user/grant", &json!({"user": user, "role": user})).unwrap();
    }
    gateway.enable_auth("secret").unwrap()
}

fn keys_and_leases(root: &Gateway) -> (u64, usize) {
    let all = json!({"key": STANDARD.encode("\0"), "range_end": STANDARD.encode("\0"), "count_only": true});
    let count = root.post("/v3/kv/range", &all).unwrap();
    let count = count["count"].as_str().unwrap_or("0").parse().unwrap();
    (count, root.leases().unwrap().len())
}

/// One line, which names what is to be corrected and holds no password.
#[track_caller]
fn refused(outcome: Outcome, code: i32, names: &[&str]) {
    let outcome = outcome.ended_with(code);
    let lines: Vec<_> = outcome.stderr.lines().collect();
    let [line] = lines[..] else { panic!("not one line: {outcome:?}") };
    assert!(line.starts_with("leasehold: "), "{line}");
    for name in names {
        assert!(line.contains(name), "{line:?} does not name {name:?}");
    }
    assert!(!line.contains("hunter"), "{line}");
    assert_eq!(outcome.stdout, "");
}

fn with(mut command: Command, variables: &[(&str, &OsStr)]) -> Outcome {
    command.envs(variables.iter().copied());
    Running::start(command).outcome()
}

#[test]
fn a_user_logs_in_by_options_or_variables() {
    let Some(etcd) = RealEtcd::start(Version::V37, Options::default()) else { return };
    let (stage, root) = (Stage::new(), with_users(&etcd.gateway()));
    let at = etcd.endpoint();
    let run = |options: &[&str], variables: &[(&str, &str)]| {
        let line = [&["run", "--endpoints", &at], options, &["jobs/a", "true"]].concat();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, OsStr::new(*value))).collect();
        with(stage.leasehold(line), &variables)
    };
    run(&["--user", "worker:hunter2"], &[]).ended_with(0);
    run(&["--user", "worker", "--password", PASSWORD], &[]).ended_with(0);
    run(&[], &[("ETCDCTL_USER", "worker:hunter2")]).ended_with(0);
    run(&[], &[("ETCDCTL_USER", "worker"), ("ETCDCTL_PASSWORD", PASSWORD)]).ended_with(0);
    // What is typed wins.
    run(&["--user", "worker:hunter2"], &[("ETCDCTL_USER", "reader:x"), ("ETCDCTL_PASSWORD", "y")])
        .ended_with(0);
    assert_eq!(keys_and_leases(&root), (0, 0));
}

#[test]
fn whoever_may_not_is_told_so_in_one_line_and_leaves_nothing() {
    for version in Version::ALL {
        let Some(etcd) = RealEtcd::start(version, Options::default()) else { continue };
        let (stage, root) = (Stage::new(), with_users(&etcd.gateway()));
        let at = etcd.endpoint();
        let run = |options: &[&str], name: &str| {
            let line = [&["run", "--endpoints", &at], options, &[name, "true"]].concat();
            stage.run(line)
        };
        refused(run(&["--user", "worker:hunter3"], "jobs/a"), 77, &["jobs/a", "log in", "--user right"]);
        refused(
            run(&["--user", "worker", "--password=hunter3"], "jobs/a"),
            77,
            &["jobs/a", "--user \"worker\" and --password right"],
        );
        refused(run(&["--user", "nobody:hunter2"], "jobs/a"), 77, &["jobs/a", "\"nobody\""]);
        refused(run(&[], "jobs/a"), 77, &["jobs/a", "give --user (or ETCDCTL_USER)"]);
        refused(
            run(&["--user", "reader:hunter2"], "jobs/a"),
            77,
            &["jobs/a", "the role of --user \"reader\""],
        );
        refused(
            run(&["--user", "worker:hunter2"], "elsewhere"),
            77,
            &["elsewhere", "the role of --user \"worker\""],
        );
        refused(
            run(&["--user", "worker"], "jobs/a"),
            64,
            &["--user", "\"worker\" has no password", "ETCDCTL_PASSWORD"],
        );
        let lock = ["lock", "--endpoints", &etcd.endpoint(), "--user", "reader:hunter2", "jobs/a"];
        refused(stage.run(lock), 77, &["jobs/a", "the role of --user \"reader\""]);
        assert_eq!(keys_and_leases(&root), (0, 0));
    }
}

#[test]
fn whoever_may_read_may_look_at_what_is_below_and_nothing_else() {
    for version in Version::ALL {
        let Some(etcd) = RealEtcd::start(version, Options::default()) else { continue };
        let (stage, at) = (Stage::new(), etcd.endpoint());
        with_users(&etcd.gateway());
        let holder = stage.start(["lock", "--endpoints", &at, "--user", "worker:hunter2", "jobs/a"]);
        holder.line();
        let reader = |args: &[&str]| {
            let access = ["--endpoints", &at, "--user", "reader:hunter2"];
            stage.run([args, &access].concat())
        };
        for args in [&["ls", "jobs/"][..], &["show", "jobs/a"]] {
            let told = reader(args).ended_with(0).stdout;
            assert!(told.contains("leasehold lock") && told.contains("s of 15s"), "{version:?}: {told}");
        }
        // To look is permitted, to break is not.
        let broken = reader(&["break", "--force", "--wait", "0s", "jobs/a"]).ended_with(77);
        let last = broken.stderr.lines().last().unwrap();
        assert!(last.contains("jobs/a") && last.contains("the role of --user \"reader\""), "{broken:?}");
        assert!(reader(&["show", "jobs/a"]).stdout.contains("holds  leasehold lock"));
        refused(reader(&["ls"]), 77, &["the list of locks", "the role of --user \"reader\""]);
        refused(reader(&["show", "elsewhere"]), 77, &["elsewhere", "the role of --user \"reader\""]);
    }
}

/// Files for options that name some.
struct Files<'a>(&'a Stage);

impl Files<'_> {
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn identity(&self, name: &str, identity: &Identity) -> [String; 2] {
        let certificate = self.write(&format!("{name}.pem"), &identity.certificate);
        let key = self.write(&format!("{name}-key.pem"), &identity.key);
        [certificate.display().to_string(), key.display().to_string()]
    }
}

#[test]
fn certificates_are_named_by_options_or_variables() {
    let authority = Authority::new("ours");
    let options = Options::default().with_secure(authority.identity(&[HERE]), Some(authority.pem()));
    let Some(etcd) = RealEtcd::start(Version::V37, options) else { return };
    let stage = Stage::new();
    let files = Files(&stage);
    let ca = files.write("ca.pem", authority.pem());
    let ca = ca.to_str().unwrap();
    let [certificate, key] = &files.identity("client", &authority.identity(&["client"]));
    let at = etcd.secure_endpoint().unwrap();
    let bare = at.replace("https://", "");
    for at in [&*at, &*bare] {
        let line =
            ["run", "--endpoints", at, "--cacert", ca, "--cert", certificate, "--key", key, "demo", "true"];
        stage.run(line).ended_with(0);
        let variables = [("ETCDCTL_CACERT", ca), ("ETCDCTL_CERT", certificate), ("ETCDCTL_KEY", key)];
        let variables = variables.map(|(name, value)| (name, OsStr::new(value)));
        with(stage.leasehold(["run", "--endpoints", at, "demo", "true"]), &variables).ended_with(0);
        // What is typed wins over a variable, and http:// over all of them.
        let wrong = [("ETCDCTL_CACERT", OsStr::new("/no/such")), variables[1], variables[2]];
        with(stage.leasehold(["run", "--endpoints", at, "--cacert", ca, "demo", "true"]), &wrong)
            .ended_with(0);
        with(stage.leasehold(["run", "--endpoints", &etcd.endpoint(), "demo", "true"]), &wrong).ended_with(0);
        with(stage.leasehold(["run", "--local", "demo", "true"]), &wrong).ended_with(0);
    }
}

/// B17, B18: each is told with what is wrong and with the setting that can mend it.
#[test]
fn b17_b18_a_certificate_that_will_not_do_is_told_by_its_setting_and_nothing_is_left() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let options = Options::default().with_secure(authority.identity(&[HERE]), Some(authority.pem()));
    let Some(etcd) = RealEtcd::start(Version::V37, options) else { return };
    let stage = Stage::new();
    let files = Files(&stage);
    let ca = files.write("ca.pem", authority.pem()).display().to_string();
    let wrong_ca = files.write("other.pem", other.pem()).display().to_string();
    let nonsense = files.write("nonsense.pem", "PRIVATE hunter2").display().to_string();
    let [certificate, key] = files.identity("client", &authority.identity(&["client"]));
    let [foreign, foreign_key] = files.identity("foreign", &other.identity(&["client"]));
    let [expired, expired_key] = files.identity("expired", &authority.expired_identity(&["client"]));
    let at = etcd.secure_endpoint().unwrap();
    let run = |options: &[&str]| {
        stage.run([&["run", "--endpoints", at.as_str()], options, &["demo", "true"]].concat())
    };
    let ours = ["--cert", &certificate, "--key", &key];
    let run_with = |ca: &str, identity: &[&str]| run(&[&["--cacert", ca], identity].concat());
    refused(run_with(&wrong_ca, &ours), 77, &["demo", "no authority that is trusted", "see --cacert"]);
    let login = ["--user", "ann:hunter2"];
    refused(run_with(&wrong_ca, &[&ours[..], &login].concat()), 77, &["demo", "see --cacert"]);
    refused(run(&ours), 77, &["demo", "--cacert (or ETCDCTL_CACERT)"]);
    refused(run_with(&ca, &[]), 77, &["demo", "want a certificate", "see --cert and --key (or ETCDCTL_CERT"]);
    refused(
        run_with(&ca, &["--cert", &foreign, "--key", &foreign_key]),
        77,
        &["demo", "refused ours", "; see --cert"],
    );
    refused(
        run_with(&ca, &["--cert", &expired, "--key", &expired_key]),
        77,
        &["demo", "refused ours", "; see --cert"],
    );
    for (line, names) in [
        (&["--cacert", "/no/such"][..], "--cacert: file /no/such"),
        (&["--cert", "/no/such", "--key", &key], "--cert: file /no/such"),
        (&["--cert", &certificate, "--key", "/no/such"], "--key: file /no/such"),
        (&["--cacert", &nonsense], "--cacert: file"),
        (&["--cert", &nonsense, "--key", &key], "--cert: file"),
        (&["--cert", &certificate, "--key", &nonsense], "--key: file"),
        (&["--cert", &certificate, "--key", &foreign_key], "--cert, --key: file"),
        (&["--cert", &certificate], "--key"),
    ] {
        refused(run(line), 64, &[names]);
    }
    // Nor is anything left by what follows, to which no connection is made. (Then this way to ask is closed, too.)
    assert_eq!(keys_and_leases(&etcd.gateway()), (0, 0));
    // The server's own.
    etcd.show(&authority.expired_identity(&[HERE]));
    refused(run_with(&ca, &ours), 77, &["demo", "expired"]);
    // An address without certificates beside settings for some.
    let open = stage.run(["run", "--endpoints", &etcd.endpoint(), "--cacert", &ca, "demo", "true"]);
    refused(open, 64, &[&etcd.endpoint(), "https://"]);
}

#[test]
fn no_way_to_type_it_wrong_shows_a_password() {
    let stage = Stage::new();
    for line in [
        &["run", "--endpoints", "a", "--user", "ann:hunter2", "demo", "true"][..],
        &["run", "--endpoints", "a:1", "--user", "ann:hunter2", "--frob", "demo", "true"],
        &["run", "--endpoints", "a:1", "--user", "ann:hunter2", "--password", "hunter3", "demo", "true"],
        &["run", "--endpoints", "a:1", "--pasword", "hunter2", "demo", "true"],
        &["run", "--endpoints", "a:1", "--pasword=hunter2", "demo", "true"],
        &["run", "--endpoints", "a:1", "--password=hunter2", "demo", "true"],
        &["run", "--endpoints", "a:1", "--password=hunter2", "--password=hunter3", "demo", "true"],
        &["run", "--local", "--password=hunter2", "demo", "true"],
        &["serve", "--password=hunter2"],
        &["serve", "--user", "ann:hunter2"],
    ] {
        let outcome = stage.run(line).ended_with(64);
        assert!(!outcome.stderr.contains("hunter"), "{line:?}: {}", outcome.stderr);
    }
    let bytes = |text: &[u8]| OsStr::from_bytes(text).to_owned();
    for secret in [vec![bytes(b"--password"), bytes(b"hunter\xff")], vec![bytes(b"--user=ann:hunter\xff")]] {
        let start = ["run", "--endpoints", "a:1"].map(|word| bytes(word.as_bytes()));
        let end = [bytes(b"--ttl=\xfe"), bytes(b"demo"), bytes(b"true")];
        let outcome = stage.run(start.iter().chain(&secret).chain(&end)).ended_with(64);
        assert!(!outcome.stderr.contains("hunter"), "{secret:?}: {}", outcome.stderr);
    }
    let mut command = stage.leasehold(["run", "--help"]);
    command.env("ETCDCTL_PASSWORD", PASSWORD).env("ETCDCTL_USER", "ann:hunter2");
    let help = Running::start(command).outcome().ended_with(0).stdout;
    assert!(help.contains("ETCDCTL_PASSWORD") && !help.contains("hunter"), "{help}");
}
