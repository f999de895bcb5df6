//! Users: tokens that every member gives, and that all of them forget.

use leasehold::etcd::{Credentials, Token, WireError};
use leasehold_mvcc::{Code, StoreError};

use super::Cluster;

/// Whom the cluster lets in.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// Whether anybody has to log in.
    on: bool,
    /// How many tokens were given; they are numbered so.
    logins: u64,
    /// How many of them are forgotten.
    forgotten: u64,
    /// Nobody is let in while this is above 0.
    refused: u32,
}

impl Cluster {
    /// From now on clients have to log in. Those made before have no name to do so.
    pub fn turn_users_on(&self) {
        self.lock().users.on = true;
    }

    /// Forgets all tokens: they are too old, or the users were changed.
    pub fn forget_tokens(&self) {
        let mut state = self.lock();
        state.users.forgotten = state.users.logins;
    }

    /// Refuses everybody, whatever the token, until [`Cluster::accept_credentials`].
    pub fn refuse_credentials(&self) {
        self.lock().users.refused += 1;
    }

    /// Ends one [`Cluster::refuse_credentials`].
    pub fn accept_credentials(&self) {
        self.lock().users.refused -= 1;
    }

    /// What a client made now logs in with, if it has to.
    pub(super) fn credentials(&self) -> Option<Credentials> {
        self.lock().users.on.then(|| Credentials::new("client", "secret").expect("a name and a password"))
    }

    /// A new token.
    pub(super) fn login(&self, credentials: &Credentials) -> Result<Token, WireError> {
        let mut state = self.lock();
        if !state.users.on {
            let no = StoreError::new(Code::FailedPrecondition, "etcdserver: authentication is not enabled");
            return Err(WireError::Refused(no));
        }
        assert_eq!((credentials.user(), credentials.password()), ("client", "secret"));
        state.users.logins += 1;
        Ok(Token::new(state.users.logins.to_string()))
    }

    /// Turns away who has no token, or one that is forgotten.
    pub(super) fn admit(&self, token: Option<&Token>) -> Result<(), WireError> {
        let mut state = self.lock();
        let users = &state.users;
        if users.refused > 0 {
            state.saw("credentials refused");
            return Err(WireError::Unauthorized(bad_token()));
        }
        let number = token.and_then(|token| token.as_str().parse::<u64>().ok());
        if users.on && number.is_none_or(|number| number <= users.forgotten) {
            state.saw("token forgotten");
            return Err(WireError::Unauthorized(bad_token()));
        }
        Ok(())
    }
}

pub(super) fn bad_token() -> StoreError {
    StoreError::new(Code::Unauthenticated, "etcdserver: invalid auth token")
}
