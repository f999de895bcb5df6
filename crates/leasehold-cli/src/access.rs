//! Which etcd a command speaks to, who it is there, and whom it trusts: the options that all commands have which ask one.
//!
//! Each option has a variable of etcdctl's beside it, and wins over it. The variables that say how to reach a cluster mean
//! nothing to `--local`.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use leasehold::etcd::{Endpoint, Etcd, RemoteOptions};
use leasehold::{Credentials, TlsOptions};

use crate::duration::Span;
use crate::exit::{Code, Failure};
use crate::site::{self, Site};

const CACERT: &str = "ETCDCTL_CACERT";
const CERT: &str = "ETCDCTL_CERT";
const KEY: &str = "ETCDCTL_KEY";
const USER: &str = "ETCDCTL_USER";
const PASSWORD: &str = "ETCDCTL_PASSWORD";

/// The options whose value may be, or hold, a password.
pub(crate) const SECRET: [&str; 2] = ["--user", "--password"];

/// Which etcd, and as whom.
#[derive(Debug, Args)]
pub(crate) struct Access {
    /// The etcd members' addresses, separated by commas: host:port, https://host:port, http://host:port or unix:///path
    /// [env: ETCDCTL_ENDPOINTS]
    #[arg(long, value_name = "LIST", conflicts_with = "local")]
    endpoints: Vec<String>,

    /// Use an etcd that starts by itself, one for each user: such a lock excludes only this user on this machine
    /// [env: LEASEHOLD_LOCAL=1]
    #[arg(long)]
    local: bool,

    /// Connect securely, and trust the authorities in this file (PEM) and no others [env: ETCDCTL_CACERT]
    #[arg(long, value_name = "FILE", conflicts_with = "local")]
    cacert: Option<PathBuf>,

    /// Connect securely, and show the certificate in this file (PEM) [env: ETCDCTL_CERT]
    #[arg(long, value_name = "FILE", conflicts_with = "local")]
    cert: Option<PathBuf>,

    /// The certificate's private key (PEM) [env: ETCDCTL_KEY]
    #[arg(long, value_name = "FILE", conflicts_with = "local")]
    key: Option<PathBuf>,

    /// Log in as this user; the password may follow after a colon [env: ETCDCTL_USER]
    #[arg(long, value_name = "NAME", conflicts_with = "local", value_parser = secret(), allow_hyphen_values = true)]
    user: Option<Secret>,

    /// The user's password. What is typed here others on this machine may read: better set the variable
    /// [env: ETCDCTL_PASSWORD]
    #[arg(long, value_name = "WORD", conflicts_with = "local", value_parser = secret(), allow_hyphen_values = true)]
    password: Option<Secret>,

    /// How long etcd may take to answer at the start
    #[arg(long, value_name = "DURATION", default_value_t = Span::seconds(5), value_parser = connect_timeout,
        allow_hyphen_values = true)]
    pub(crate) connect_timeout: Span,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Takes anything, so that no refusal has a reason to quote it.
fn secret() -> impl TypedValueParser<Value = Secret> {
    OsStringValueParser::new()
        .try_map(|text| text.into_string().map(Secret).map_err(|_| "it is not UTF-8 (and is not shown here)"))
}

fn connect_timeout(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    let bounds = Duration::from_millis(10)..=Duration::from_secs(600);
    if bounds.contains(&span.0) { Ok(span) } else { Err(format!("{text:?} is not from 10ms to 600s")) }
}

/// A value, and the option or the variable that it came by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting<T> {
    name: &'static str,
    value: T,
}

/// What the options and the variables come to.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) site: Site,
    cacert: Option<Setting<PathBuf>>,
    identity: Option<(Setting<PathBuf>, Setting<PathBuf>)>,
    login: Option<Login>,
    /// How long a call may take.
    patience: Duration,
}

#[derive(Clone, Debug)]
struct Login {
    /// Where the name came from, and where the password.
    names: (&'static str, &'static str),
    credentials: Credentials,
}

impl Access {
    /// What it all comes to.
    pub(crate) fn settle(&self) -> Result<Settled, Failure> {
        self.settle_with(&|name| std::env::var_os(name))
    }

    fn settle_with(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Settled, Failure> {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let text = |name| match variable(name).map(OsString::into_string).transpose() {
            Ok(text) => Ok(text),
            // It may be a password.
            Err(_) => Err(Failure::usage(format!("{name}: it is not UTF-8"))),
        };
        let site = Site::choose(
            &self.endpoints,
            self.local,
            text(site::ENDPOINTS)?.as_deref(),
            text(site::LOCAL)?.as_deref(),
        )?;
        let Site::Endpoints(endpoints) = &site else {
            self.nothing_beside_local()?;
            return Ok(Settled {
                site,
                cacert: None,
                identity: None,
                login: None,
                patience: self.connect_timeout.0,
            });
        };
        // Endpoints that were typed, and that no secure connection can lead to, overrule what variables say of those.
        let overruled =
            !self.endpoints.is_empty() && !endpoints.iter().any(|endpoint| endpoint.is_secure(true));
        let file = |typed: &Option<PathBuf>, option, name| match typed {
            Some(path) => Some(Setting { name: option, value: path.clone() }),
            None if overruled => None,
            None => variable(name).map(|value| Setting { name, value: PathBuf::from(value) }),
        };
        let cacert = file(&self.cacert, "--cacert", CACERT);
        let identity = match (file(&self.cert, "--cert", CERT), file(&self.key, "--key", KEY)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(half), None) => {
                return Err(lacks(half.name, "the file of its private key: --key", KEY));
            }
            (None, Some(half)) => {
                return Err(lacks(half.name, "the certificate that it belongs to: --cert", CERT));
            }
        };
        let login = self.login(text(USER)?, text(PASSWORD)?)?;
        Ok(Settled { site, cacert, identity, login, patience: self.connect_timeout.0 })
    }

    /// The failure, with which setting to look at if it was etcd that does not know or trust who asked.
    pub(crate) fn advise(&self, failure: Failure) -> Failure {
        match self.settle() {
            Ok(settled) => settled.advise(failure),
            // Then that is what it is about.
            Err(_) => failure,
        }
    }

    /// A user is named by `NAME` or `NAME:PASSWORD`, as etcdctl has it. A name that was typed has nothing to do with the
    /// password that another name in a variable brought along.
    fn login(&self, user: Option<String>, password: Option<String>) -> Result<Option<Login>, Failure> {
        let typed = self.password.as_ref().map(|word| Setting { name: "--password", value: word.0.as_str() });
        let variable = password.as_deref().map(|value| Setting { name: PASSWORD, value });
        let user = match (&self.user, &user) {
            (Some(typed), _) => Some(Setting { name: "--user", value: typed.0.as_str() }),
            (None, Some(value)) => Some(Setting { name: USER, value: value.as_str() }),
            (None, None) => None,
        };
        let Some(user) = user else {
            return match typed {
                Some(password) => Err(lacks(password.name, "the user it belongs to: --user", USER)),
                None => Ok(None),
            };
        };
        let (name, along) = match user.value.split_once(':') {
            Some((name, along)) => (name, Some(Setting { name: user.name, value: along })),
            None => (user.value, None),
        };
        let is_typed = self.user.is_some();
        let password = match (typed, along, variable) {
            (Some(typed), Some(_), _) if is_typed => return Err(twice(user.name, typed.name)),
            (None, Some(_), Some(variable)) if !is_typed => return Err(twice(user.name, variable.name)),
            (Some(typed), ..) => typed,
            (None, Some(along), _) => along,
            (None, None, Some(variable)) => variable,
            (None, None, None) => {
                return Err(Failure::usage(format!(
                    "{}: the user {name:?} has no password; set {PASSWORD}, or give NAME:PASSWORD or --password (nobody \
                     is asked for it)",
                    user.name
                )));
            }
        };
        let credentials = Credentials::new(name, password.value)
            .map_err(|error| Failure::usage(format!("{}: {error}", user.name)))?;
        Ok(Some(Login { names: (user.name, password.name), credentials }))
    }

    /// Refuses what was typed beside an etcd that needs none of it. (`--local` itself is refused beside it earlier.)
    fn nothing_beside_local(&self) -> Result<(), Failure> {
        let typed = [
            ("--cacert", self.cacert.is_some()),
            ("--cert", self.cert.is_some()),
            ("--key", self.key.is_some()),
            ("--user", self.user.is_some()),
            ("--password", self.password.is_some()),
        ];
        match typed.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::usage(format!(
                "{option} does not go with {}=1, whose etcd has neither certificates nor users; give --endpoints, or \
                 leave it out",
                site::LOCAL
            ))),
            None => Ok(()),
        }
    }
}

fn lacks(given: &str, missing: &str, variable: &str) -> Failure {
    Failure::usage(format!("{given} lacks {missing} (or {variable})"))
}

fn twice(user: &str, password: &str) -> Failure {
    Failure::usage(format!(
        "{user} brings a password along, after the colon, and {password} is another; give one of the two"
    ))
}

impl Settled {
    /// A client for these endpoints. Nothing is sent yet.
    pub(crate) fn client(&self, endpoints: Vec<Endpoint>, what: &str) -> Result<Arc<dyn Etcd>, Failure> {
        let mut options = RemoteOptions::new(endpoints)
            .map_err(|error| Failure::of_library(what, &error))?
            .call_timeout(self.patience);
        if let Some(login) = &self.login {
            options = options.credentials(login.credentials.clone());
        }
        if let Some(tls) = self.tls() {
            options = options.tls(tls);
        }
        match options.open() {
            Ok(etcd) => Ok(Arc::new(etcd)),
            Err(error) => {
                // Files are told by their path; which setting named it is what there is to correct.
                let told = error.to_string();
                let files =
                    self.cacert.iter().chain(self.identity.iter().flat_map(|(cert, key)| [cert, key]));
                let blamed: Vec<&str> = files
                    .filter(|file| told.contains(&*file.value.to_string_lossy()))
                    .map(|file| file.name)
                    .collect();
                let what = if blamed.is_empty() { what.to_owned() } else { blamed.join(", ") };
                Err(Failure::of_library(&what, &error))
            }
        }
    }

    fn tls(&self) -> Option<TlsOptions> {
        if self.cacert.is_none() && self.identity.is_none() {
            return None;
        }
        let mut tls = TlsOptions::new();
        if let Some(file) = &self.cacert {
            tls = tls.authority_file(&file.value);
        }
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity_files(&certificate.value, &key.value);
        }
        Some(tls)
    }

    fn advise(&self, mut failure: Failure) -> Failure {
        if failure.code != Code::PERMISSION || matches!(self.site, Site::Local) {
            return failure;
        }
        let told = &failure.message;
        let advice = match &self.login {
            // Whoever has shown no trust was not asked for a password yet.
            _ if told.contains("no secure connection") => match self.advise_on_certificates(told) {
                Some(advice) => advice,
                None => return failure,
            },
            Some(Login { names: (user, password), credentials }) => {
                let name = credentials.user();
                if told.contains("authentication failed") && user == password {
                    format!("are the name and the password in {user} right, for user {name:?}?")
                } else if told.contains("authentication failed") {
                    format!("are {user} {name:?} and {password} right?")
                } else if told.contains("permission denied") {
                    format!("the role of {user} {name:?} must permit it")
                } else {
                    return failure;
                }
            }
            None if told.contains("user name is empty") || told.contains("permission denied") => {
                format!("this etcd has users; give --user (or {USER})")
            }
            None => return failure,
        };
        failure.message = format!("{told}; {advice}");
        failure
    }

    /// Which setting has to do with it that one side does not trust the other; none if it is the server's own affair.
    fn advise_on_certificates(&self, told: &str) -> Option<String> {
        if told.contains("refused ours") {
            return Some(match &self.identity {
                Some((certificate, _)) => format!("see {}", certificate.name),
                None => format!("see --cert and --key (or {CERT} and {KEY})"),
            });
        }
        told.contains("no authority that is trusted").then(|| match &self.cacert {
            Some(file) => format!("see {}", file.name),
            None => format!("see --cacert (or {CACERT})"),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        access: Access,
    }

    fn settled(line: &[&str], variables: &[(&str, &str)]) -> Result<Settled, String> {
        let endpoints =
            if line.iter().any(|word| word.contains("--endpoints")) { None } else { Some("--endpoints=a:1") };
        let line = std::iter::once("leasehold").chain(endpoints).chain(line.iter().copied());
        let Line { access } = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        access.settle_with(&variable).map_err(|failure| {
            assert_eq!(failure.code, Code::USAGE);
            failure.message
        })
    }

    /// `name=password` and the settings that they came by.
    fn login(line: &[&str], variables: &[(&str, &str)]) -> Result<String, String> {
        Ok(settled(line, variables)?.login.map_or_else(String::new, |Login { names, credentials }| {
            format!("{}={} {} {}", credentials.user(), credentials.password(), names.0, names.1)
        }))
    }

    #[test]
    fn a_user_is_named_as_etcdctl_has_it() {
        for (line, variables, wanted) in [
            (&[][..], &[][..], ""),
            (&["--user=ann:a:b"], &[], "ann=a:b --user --user"),
            (&["--user=ann", "--password=x"], &[], "ann=x --user --password"),
            (&[], &[(USER, "bob:y")], "bob=y ETCDCTL_USER ETCDCTL_USER"),
            (&[], &[(USER, "bob"), (PASSWORD, "y")], "bob=y ETCDCTL_USER ETCDCTL_PASSWORD"),
            (&["--user=ann"], &[(PASSWORD, "y")], "ann=y --user ETCDCTL_PASSWORD"),
            // A password in the wings makes nobody log in.
            (&[], &[(PASSWORD, "y")], ""),
            (&["--user", "-ann", "--password", "-x"], &[], "-ann=-x --user --password"),
        ] {
            assert_eq!(login(line, variables).as_deref(), Ok(wanted), "{line:?} {variables:?}");
        }
    }

    #[test]
    fn what_is_typed_wins_over_a_variable() {
        for (line, variables, wanted) in [
            (&["--user=ann:x"][..], &[(USER, "bob:y"), (PASSWORD, "z")][..], "ann=x --user --user"),
            (&["--password=x"], &[(USER, "bob:y"), (PASSWORD, "z")], "bob=x ETCDCTL_USER --password"),
        ] {
            assert_eq!(login(line, variables).as_deref(), Ok(wanted), "{line:?} {variables:?}");
        }
        // The password that came with bob is not ann's.
        assert!(login(&["--user=ann"], &[(USER, "bob:y")]).unwrap_err().contains("\"ann\" has no password"));
        let cacert = |line: &[&str]| {
            let settled = settled(line, &[(CACERT, "/theirs")]).unwrap();
            settled.cacert.map(|file| (file.name, file.value))
        };
        assert_eq!(cacert(&["--cacert=/ours"]), Some(("--cacert", "/ours".into())));
        assert_eq!(cacert(&[]), Some((CACERT, "/theirs".into())));
        assert_eq!(cacert(&["--endpoints=http://a:1"]), None, "whoever types http:// wants no certificates");
        assert_eq!(cacert(&["--endpoints=unix:///a"]), None);
        assert_eq!(cacert(&["--endpoints=https://a:1,http://b:1"]), Some((CACERT, "/theirs".into())));
    }

    #[test]
    fn half_a_setting_is_refused_by_its_name() {
        for (line, variables, wanted) in [
            (&["--user=ann"][..], &[][..], "--user: the user \"ann\" has no password"),
            (&["--user=ann:"], &[], "--user: the user's password is not usable"),
            (&["--user=:hunter2"], &[], "--user: the user's name is not usable"),
            (&["--user=ann:hunter2", "--password=hunter3"], &[], "--user brings a password along"),
            (&["--password=hunter2"], &[], "--password lacks the user it belongs to: --user"),
            (&[], &[(USER, "ann:hunter2"), (PASSWORD, "hunter3")], "ETCDCTL_USER brings a password along"),
            (&["--cert=/c"], &[], "--cert lacks the file of its private key: --key (or ETCDCTL_KEY)"),
            (&["--key=/k"], &[], "--key lacks the certificate"),
            (&[], &[(CERT, "/c")], "ETCDCTL_CERT lacks"),
        ] {
            let why = settled(line, variables).map(|_| ()).unwrap_err();
            assert!(why.contains(wanted), "{line:?} {variables:?}: {why}");
            assert!(!why.contains("hunter") && !why.contains('\n'), "{line:?} {variables:?}: {why}");
        }
    }

    #[test]
    fn nothing_of_it_goes_with_the_etcd_that_starts_by_itself() {
        let line = |line: &[&str]| {
            let line = std::iter::once("leasehold").chain(line.iter().copied());
            Line::try_parse_from(line).map(|line| line.access)
        };
        let all = |name: &str| [CACERT, CERT, USER, PASSWORD].contains(&name).then(|| OsString::from("x"));
        let settled = line(&["--local"]).unwrap().settle_with(&all).unwrap();
        assert!(settled.login.is_none() && settled.tls().is_none(), "variables are for clusters");
        let local = |name: &str| (name == site::LOCAL).then(|| OsString::from("1"));
        for option in ["--cacert=x", "--cert=x", "--key=x", "--user=x", "--password=hunter2"] {
            let refusal = line(&["--local", option]).unwrap_err().to_string();
            assert!(refusal.contains("--local") && !refusal.contains("hunter2"), "{refusal}");
            let refusal = line(&[option]).unwrap().settle_with(&local).unwrap_err().message;
            let name = option.split('=').next().unwrap();
            assert!(refusal.contains(name) && refusal.contains(site::LOCAL), "{refusal}");
            assert!(!refusal.contains("hunter2"), "{refusal}");
        }
    }

    #[test]
    fn no_password_is_printed() {
        let Line { access } = Line::try_parse_from([
            "leasehold",
            "--endpoints=a:1",
            "--user=ann:hunter2",
            "--password=hunter3",
        ])
        .unwrap();
        let mut printed = format!("{access:?}");
        let settled = settled(&["--user=ann:hunter2"], &[]).unwrap();
        printed += &format!("{settled:?}");
        assert!(printed.contains("***") && !printed.contains("hunter"), "{printed}");
    }
}
