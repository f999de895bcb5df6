//! Who the client is: a name and a password, and the token that etcd gives for them.
//!
//! A token ages: it is forgotten by the members after a while (`--auth-token-ttl`, each for itself), and refused once
//! the users or roles were changed. So whoever is refused for his token logs in again and asks once more; that is safe
//! for writes too, since etcd refuses before it does anything.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_mvcc::StoreError;
use tokio::sync::Mutex;

use super::{Endpoint, Lane, Wire, WireError};
use crate::error::{Error, Result};
use crate::exclusive::Exclusive;
use crate::runtime::{Runtime, before};

/// How often one request may be refused for its token before that is its answer. Two, since the users may be changed
/// just when a new token was given.
const LOGINS: usize = 2;

const OPERATION: &str = "log in";

/// A user of etcd, and the password.
///
/// Neither is checked here; etcd does that when a token is first needed. The password is never printed.
///
/// ```
/// use leasehold::{Credentials, RemoteOptions};
///
/// let worker = Credentials::new("worker", "secret")?;
/// assert!(!format!("{worker:?}").contains("secret"));
/// let etcd = RemoteOptions::new("10.0.0.1:2379")?.credentials(worker).open()?;
/// # let _ = etcd;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Arc<str>,
    password: Arc<str>,
}

impl Credentials {
    /// A name and a password.
    ///
    /// # Errors
    /// [`Error::Invalid`] if one of them is empty: etcd has no such users.
    pub fn new(user: impl Into<Arc<str>>, password: impl Into<Arc<str>>) -> Result<Self> {
        let (user, password) = (user.into(), password.into());
        for (what, given) in [("the user's name", &user), ("the user's password", &password)] {
            if given.is_empty() {
                let why = "it is empty; give both, or neither for an etcd without users".into();
                return Err(Error::Invalid { what: what.into(), why });
            }
        }
        Ok(Self { user, password })
    }

    /// The name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The password, for a [`Wire`] to send.
    pub fn password(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).field("password", &"***").finish()
    }
}

/// What etcd gave for a name and a password; sent along with each request. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// A token as etcd gave it.
    pub fn new(token: impl Into<Arc<str>>) -> Self {
        Self(token.into())
    }

    /// The token, for a [`Wire`] to send.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

/// What a request goes with.
#[derive(Clone, Debug, Default)]
pub(super) struct Pass {
    /// None for a client without a name, or an etcd without users.
    pub(super) token: Option<Token>,
    /// Which login it is from.
    login: u64,
}

/// The login of all requests of a client.
#[derive(Debug)]
pub(super) struct Login {
    credentials: Option<Credentials>,
    state: Exclusive<State>,
    /// One request at a time asks for a token; the others wait for it. A password is costly to check.
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    logins: u64,
    current: Option<Pass>,
}

impl Login {
    pub(super) fn new(credentials: Option<Credentials>) -> Self {
        Self { credentials, state: Exclusive::new(State::default()), turn: Mutex::new(()) }
    }

    /// Whether being refused for a token is something to be mended.
    pub(super) fn is_possible(&self) -> bool {
        self.credentials.is_some()
    }

    /// What to send with a request, if that is known without asking.
    pub(super) fn known(&self) -> Option<Pass> {
        match &self.credentials {
            None => Some(Pass::default()),
            Some(_) => self.state.lock().current.clone(),
        }
    }

    /// What to send with a request; asks the endpoint for a token if there is none.
    ///
    /// # Cancel safety
    /// Dropped, it lets the next one ask.
    pub(super) async fn pass(
        &self,
        wire: &dyn Wire,
        runtime: &dyn Runtime,
        (endpoint, lane): (&Endpoint, Lane),
        patience: Duration,
    ) -> Result<Pass, WireError> {
        let Some(credentials) = &self.credentials else { return Ok(Pass::default()) };
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let until = runtime.now() + patience;
        let late = || WireError::NotDone { cause: format!("no token within {patience:?}") };
        let _turn = before(runtime, until, self.turn.lock()).await.ok_or_else(late)?;
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let asked = wire.authenticate(endpoint, lane, credentials.clone(), until.since(runtime.now()));
        let token = match before(runtime, until, asked).await {
            Some(Ok(token)) => Some(token),
            Some(Err(WireError::Refused(no))) if is_without_users(&no) => None,
            // Nothing but a token was asked for, so no harm is done if it was given.
            Some(Err(WireError::OutcomeUnknown { cause })) => return Err(WireError::NotDone { cause }),
            Some(Err(other)) => return Err(other),
            None => return Err(late()),
        };
        let mut state = self.state.lock();
        state.logins += 1;
        let pass = Pass { token, login: state.logins };
        state.current = Some(pass.clone());
        Ok(pass)
    }

    /// A request was refused for what it went with.
    pub(super) fn refused(&self, pass: &Pass) {
        let mut state = self.state.lock();
        if state.current.as_ref().is_some_and(|current| current.login == pass.login) {
            state.current = None;
        }
    }
}

/// How often one request has been refused for its token.
#[derive(Debug, Default)]
pub(super) struct Refusals(usize);

impl Refusals {
    /// Whether to log in again and ask once more.
    pub(super) fn is_worth_another(&mut self, login: &Login, pass: &Pass) -> bool {
        login.refused(pass);
        self.0 += 1;
        login.is_possible() && self.0 <= LOGINS
    }
}

/// A login that ended in a no.
pub(super) fn denied(source: StoreError) -> Error {
    Error::Refused { operation: OPERATION, source }
}

/// Whether etcd refused to log anybody in because it asks nobody who he is.
fn is_without_users(no: &StoreError) -> bool {
    no.message.contains("authentication is not enabled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_password_nor_token_is_printed() {
        let credentials = Credentials::new("root", "hunter2").unwrap();
        let printed = format!("{credentials:?} {:?}", Token::new("hunter2"));
        assert!(printed.contains("root") && !printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn half_a_login_is_refused() {
        assert!(Credentials::new("", "x").unwrap_err().to_string().contains("name"));
        assert!(Credentials::new("x", "").unwrap_err().to_string().contains("password"));
    }
}
