//! A real etcd asked over its JSON face, past everything that is under test.
//!
//! Blocking, one connection a call, five seconds at most: for setting a scene and for looking at what came of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use leasehold_mvcc::{LeaseId, Revision};
use serde_json::{Value, json};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A member's JSON face.
#[derive(Clone, Debug)]
pub struct Gateway {
    address: String,
    token: Option<String>,
    patience: Duration,
}

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its id.
    pub member: u64,
    /// The leader's id; 0 if it knows of none.
    pub leader: u64,
    /// Its raft term.
    pub term: u64,
    /// Its store's revision.
    pub revision: Revision,
    /// Its version.
    pub version: String,
}

impl Gateway {
    /// The face at an endpoint such as `http://127.0.0.1:2379`.
    pub fn new(endpoint: &str) -> Self {
        let address = endpoint.strip_prefix("http://").unwrap_or(endpoint).trim_end_matches('/');
        Self { address: address.to_owned(), token: None, patience: PATIENCE }
    }

    /// The same face, asked for what may take so long.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same face, asked as a user that may do it, once authentication is on.
    ///
    /// # Errors
    /// If the user or password is wrong.
    pub fn login(&self, user: &str, password: &str) -> Result<Self, String> {
        let answer = self.post("/v3/auth/authenticate", &json!({"name": user, "password": password}))?;
        let token = answer["token"].as_str().ok_or_else(|| format!("no token in {answer}"))?;
        Ok(Self { token: Some(token.to_owned()), ..self.clone() })
    }

    /// Sends `body` to a path such as `/v3/kv/range`, and gives the answer.
    ///
    /// # Errors
    /// If there is no answer, or it is a refusal: then with etcd's message.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        let (code, answer) = self.http("POST", path, &body.to_string())?;
        let answer: Value =
            serde_json::from_str(&answer).map_err(|error| format!("{answer:?} is no JSON: {error}"))?;
        match (code, answer["message"].as_str()) {
            (200, _) => Ok(answer),
            (_, Some(message)) => Err(message.to_owned()),
            (code, None) => Err(format!("{code}: {answer}")),
        }
    }

    /// Whether this member serves linearizable reads.
    pub fn is_healthy(&self) -> bool {
        self.http("GET", "/health", "")
            .is_ok_and(|(code, body)| code == 200 && body.contains(r#""health":"true""#))
    }

    /// What the member says of itself.
    ///
    /// # Errors
    /// As [`Gateway::post`].
    pub fn status(&self) -> Result<Status, String> {
        let answer = self.post("/v3/maintenance/status", &json!({}))?;
        Ok(Status {
            member: number(&answer["header"]["member_id"]),
            leader: number(&answer["leader"]),
            term: number(&answer["raftTerm"]),
            revision: Revision::new(number(&answer["header"]["revision"]).cast_signed()),
            version: answer["version"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// All leases there are.
    ///
    /// # Errors
    /// As [`Gateway::post`].
    pub fn leases(&self) -> Result<Vec<LeaseId>, String> {
        let answer = self.post("/v3/lease/leases", &json!({}))?;
        let leases = answer["leases"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(leases.iter().map(|lease| LeaseId::new(number(&lease["ID"]).cast_signed())).collect())
    }

    /// Forgets history below a revision, on disk too.
    ///
    /// # Errors
    /// As [`Gateway::post`].
    pub fn compact(&self, revision: Revision) -> Result<(), String> {
        self.post("/v3/kv/compaction", &json!({"revision": revision.get().to_string(), "physical": true}))
            .map(drop)
    }

    /// Asks the leader, which this must be, to hand its part to another member.
    ///
    /// # Errors
    /// As [`Gateway::post`].
    pub fn move_leader(&self, to: u64) -> Result<(), String> {
        self.post("/v3/maintenance/transfer-leadership", &json!({"targetID": to.to_string()})).map(drop)
    }

    /// Turns authentication on, with a user `root` of this password, and gives the face as seen by it.
    ///
    /// # Errors
    /// As [`Gateway::post`].
    pub fn enable_auth(&self, password: &str) -> Result<Self, String> {
        self.post("/v3/auth/user/add", &json!({"name": "root", "password": password}))?;
        self.post("/v3/auth/role/add", &json!({"name": "root"}))?;
        self.post("/v3/auth/user/grant", &json!({"user": "root", "role": "root"}))?;
        self.post("/v3/auth/enable", &json!({}))?;
        self.login("root", password)
    }

    fn http(&self, method: &str, path: &str, body: &str) -> Result<(u16, String), String> {
        self.exchange(method, path, body).map_err(|error| format!("{method} {}{path}: {error}", self.address))
    }

    /// One exchange in HTTP/1.0, whose answer ends with the connection.
    fn exchange(&self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        let invalid = |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
        let address = self.address.parse().map_err(|_| invalid("the address is not IP:PORT"))?;
        let mut stream = TcpStream::connect_timeout(&address, self.patience)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        let authorization =
            self.token.as_ref().map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let head = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n{authorization}");
        let length = body.len();
        stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) =
            answer.split_once("\r\n\r\n").ok_or_else(|| invalid("the answer has no end of headers"))?;
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok((code.ok_or_else(|| invalid("the answer has no status"))?, body.to_owned()))
    }
}

/// The JSON face writes 64-bit numbers as text and leaves zeros out.
pub(crate) fn number(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or("0");
    text.parse().or_else(|_| text.parse().map(i64::cast_unsigned)).unwrap_or_default()
}
