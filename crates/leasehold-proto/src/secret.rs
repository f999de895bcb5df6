//! Messages that carry a password or a token print without it, so that no log keeps what nobody should read.

use std::fmt;

use crate::pb::etcdserverpb as pb;

const HIDDEN: &str = "***";

impl fmt::Debug for pb::AuthenticateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateRequest").field("name", &self.name).field("password", &HIDDEN).finish()
    }
}

impl fmt::Debug for pb::AuthenticateResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateResponse").field("header", &self.header).field("token", &HIDDEN).finish()
    }
}

impl fmt::Debug for pb::AuthUserAddRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthUserAddRequest")
            .field("name", &self.name)
            .field("password", &HIDDEN)
            .field("options", &self.options)
            .field("hashed_password", &HIDDEN)
            .finish()
    }
}

impl fmt::Debug for pb::AuthUserChangePasswordRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthUserChangePasswordRequest")
            .field("name", &self.name)
            .field("password", &HIDDEN)
            .field("hashed_password", &HIDDEN)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_or_token_is_printed() {
        let secret = "correct horse";
        let texts = [
            format!("{:?}", pb::AuthenticateRequest { name: "root".into(), password: secret.into() }),
            format!("{:?}", pb::AuthenticateResponse { header: None, token: secret.into() }),
            format!(
                "{:?}",
                pb::AuthUserAddRequest {
                    password: secret.into(),
                    hashed_password: secret.into(),
                    ..Default::default()
                }
            ),
            format!(
                "{:?}",
                pb::AuthUserChangePasswordRequest {
                    password: secret.into(),
                    hashed_password: secret.into(),
                    ..Default::default()
                }
            ),
        ];
        for text in texts {
            assert!(text.contains(HIDDEN) && !text.contains(secret), "{text}");
        }
    }
}
