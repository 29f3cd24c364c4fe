//! A Rust program as an agent of its site's message bus: it connects with the credentials that the site made for it, says
//! that it lives, and answers requests. The names of subjects and headers are those of `docs/message-bus.md`.
//!
//! Invariants:
//! - A connection outlives the bus: it comes back by itself, and says when it has.
//! - Every start of a process is told from others that run under the same name.
//!
//! Deliberately absent: what each kind of agent stores and serves.

use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message, PublishError, Subscriber};
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// The queue group of a site's agents: each request goes to one of those that serve it.
const GROUP: &str = "agents";
/// The header that tells one start of a process from another.
const INSTANCE: &str = "Switchboard-Instance";
/// The header of the last word of an agent that ends.
const GONE: &str = "Switchboard-Gone";
/// The header of a refusal: a word for programs.
const CODE: &str = "Switchboard-Code";

/// What the site wrote for an agent, in a file that only the agent can read.
#[derive(Deserialize)]
pub struct Credentials {
    url: String,
    user: String,
    password: String,
    inbox_prefix: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "credentials of {} at {}", self.user, self.url)
    }
}

/// Why an agent has no connection. A bus that is away is no reason.
#[derive(Debug)]
pub enum Error {
    /// The credentials file cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// The file holds something else: the field, and where.
    Malformed(PathBuf, serde_json::Error),
    /// The address is none.
    Address(String, String),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreadable(path, error) => write!(out, "{}: {error}", path.display()),
            Error::Malformed(path, error) => write!(
                out,
                "{}: {error}; give the file that the site wrote for this agent",
                path.display()
            ),
            Error::Address(url, error) => write!(out, "cannot connect to {url}: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl Credentials {
    /// Reads a credentials file.
    ///
    /// # Errors
    /// A file that cannot be read or holds something else.
    pub fn read(path: &Path) -> Result<Credentials, Error> {
        let text =
            std::fs::read(path).map_err(|error| Error::Unreadable(path.to_owned(), error))?;
        serde_json::from_slice(&text).map_err(|error| Error::Malformed(path.to_owned(), error))
    }
}

/// A connection to the site's bus; it reconnects for ever.
#[derive(Clone)]
pub struct Agent {
    client: Client,
    presence: String,
    instance: String,
    reconnected: Arc<Notify>,
}

impl Agent {
    /// Connects as the agent of a kind and name; succeeds also while the bus is away.
    ///
    /// # Errors
    /// An address that is none.
    pub async fn connect(credentials: Credentials, kind: &str, name: &str) -> Result<Agent, Error> {
        let reconnected = Arc::new(Notify::new());
        let told = Arc::clone(&reconnected);
        let client = ConnectOptions::with_user_and_password(credentials.user, credentials.password)
            .custom_inbox_prefix(credentials.inbox_prefix)
            .name(format!("{kind} {name}"))
            .retry_on_initial_connect()
            .max_reconnects(None)
            .event_callback(move |event| {
                if matches!(event, Event::Connected) {
                    told.notify_one();
                }
                async {}
            })
            .connect(&credentials.url)
            .await
            .map_err(|error| Error::Address(credentials.url, error.to_string()))?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Agent {
            client,
            presence: format!("presence.{kind}.{name}"),
            instance: format!(
                "{}-{:x}",
                std::process::id(),
                started.map_or(0, |time| time.as_nanos())
            ),
            reconnected,
        })
    }

    /// The connection, for what only this kind of agent does.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until the bus was away and is back: what was followed may have missed something then.
    pub async fn reconnected(&self) {
        self.reconnected.notified().await;
    }

    /// Says that this agent lives.
    pub async fn beat(&self) {
        self.say(HeaderMap::new()).await;
    }

    /// Says that it goes.
    pub async fn farewell(&self) {
        let mut headers = HeaderMap::new();
        headers.insert(GONE, "true");
        self.say(headers).await;
        let _ = self.client.flush().await;
    }

    async fn say(&self, mut headers: HeaderMap) {
        headers.insert(INSTANCE, self.instance.as_str());
        // Lost beats are what others notice; nothing is to be done about one here.
        let _ = self
            .client
            .publish_with_headers(self.presence.clone(), headers, "".into())
            .await;
    }

    /// Requests to the services of a subject, which other agents may serve too.
    ///
    /// # Errors
    /// The bus refuses.
    pub async fn requests(&self, subject: String) -> Result<Subscriber, async_nats::Error> {
        Ok(self
            .client
            .queue_subscribe(subject, GROUP.to_string())
            .await?)
    }

    /// Answers a request: what it asked for, or a code and a sentence.
    ///
    /// # Errors
    /// The answer did not leave.
    pub async fn answer(
        &self,
        request: &Message,
        answer: Result<Vec<u8>, (&str, String)>,
    ) -> Result<(), PublishError> {
        let Some(reply) = request.reply.clone() else {
            return Ok(());
        };
        match answer {
            Ok(bytes) => self.client.publish(reply, bytes.into()).await,
            Err((code, sentence)) => {
                let mut headers = HeaderMap::new();
                headers.insert(CODE, code);
                self.client
                    .publish_with_headers(reply, headers, sentence.into())
                    .await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        let path = std::env::temp_dir().join(format!("switchboard-agent-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let outcome = Credentials::read(&path);
        std::fs::remove_file(&path).unwrap();
        outcome.map_or_else(
            |error| error.to_string().replace(&*path.to_string_lossy(), "FILE"),
            |credentials| format!("{credentials:?}"),
        )
    }

    #[test]
    fn credentials_are_read_and_what_is_wrong_is_named() {
        let whole = r#"{"site": "x", "url": "nats://h", "user": "u", "password": "p", "inbox_prefix": "i"}"#;
        assert_eq!(read(whole), "credentials of u at nats://h");
        let cut = whole.replace(r#""password": "p", "#, "");
        assert_eq!(
            read(&cut),
            "FILE: missing field `password` at line 1 column 66; give the file that the site wrote for this agent"
        );
    }
}
