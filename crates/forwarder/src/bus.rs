//! The forwarder as an agent of its site's message bus: names of buckets and subjects as the bus documents them.

use async_nats::jetstream::kv;
use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message, Subscriber};
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};
use tokio::sync::Notify;

/// Bucket of rule sets; a forwarder's key is its name.
const RULES: &str = "rules";
/// Bucket of reports.
const STATUS: &str = "status";

/// What the site process wrote for this agent.
#[derive(Debug, Deserialize)]
struct Credentials {
    url: String,
    user: String,
    password: String,
    inbox_prefix: String,
}

/// A connection to the site's bus; it reconnects for ever.
#[derive(Clone)]
pub struct Bus {
    client: Client,
    forwarder: String,
    instance: String,
    reconnected: Arc<Notify>,
}

impl Bus {
    /// Connects with the credentials in a file; succeeds also while the bus is away.
    ///
    /// # Errors
    /// The file cannot be read or holds something else.
    pub async fn connect(credentials: &Path, forwarder: &str) -> io::Result<Bus> {
        let text = fs::read(credentials)?;
        let credentials: Credentials = serde_json::from_slice(&text)?;
        let reconnected = Arc::new(Notify::new());
        let connected = reconnected.clone();
        let client = ConnectOptions::with_user_and_password(credentials.user, credentials.password)
            .custom_inbox_prefix(credentials.inbox_prefix)
            .name(format!("forwarder {forwarder}"))
            .retry_on_initial_connect()
            .max_reconnects(None)
            .event_callback(move |event| {
                if matches!(event, Event::Connected) {
                    connected.notify_one();
                }
                async {}
            })
            .connect(credentials.url)
            .await
            .map_err(io::Error::other)?;
        Ok(Bus {
            client,
            forwarder: forwarder.to_string(),
            reconnected,
            instance: format!(
                "{}-{:x}",
                std::process::id(),
                std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(0, |time| time.as_nanos())
            ),
        })
    }

    /// Waits until the bus was away and is back; what was subscribed to may have missed something then.
    pub async fn reconnected(&self) {
        self.reconnected.notified().await;
    }

    async fn bucket(&self, name: &str) -> Result<kv::Store, async_nats::Error> {
        Ok(async_nats::jetstream::new(self.client.clone())
            .get_key_value(name)
            .await?)
    }

    /// Rule sets as they come, beginning with the last one.
    ///
    /// # Errors
    /// The bus is away or refuses; try again.
    pub async fn watch_rules(&self) -> Result<kv::Watch, async_nats::Error> {
        Ok(self
            .bucket(RULES)
            .await?
            .watch_with_history(&self.forwarder)
            .await?)
    }

    /// Reports.
    ///
    /// # Errors
    /// The bus is away or refuses; try again.
    pub async fn put_status(&self, status: Vec<u8>) -> Result<(), async_nats::Error> {
        // A plain put needs no look at the bucket first.
        let subject = format!("$KV.{STATUS}.{}", self.forwarder);
        let context = async_nats::jetstream::new(self.client.clone());
        context.publish(subject, status.into()).await?.await?;
        Ok(())
    }

    /// Says that this forwarder lives.
    pub async fn beat(&self) {
        let mut headers = HeaderMap::new();
        headers.insert("Switchboard-Instance", self.instance.as_str());
        let subject = format!("presence.forwarder.{}", self.forwarder);
        // Lost beats are what others notice; nothing is to be done about one here.
        let _ = self
            .client
            .publish_with_headers(subject, headers, "".into())
            .await;
    }

    /// Says that this forwarder goes.
    pub async fn farewell(&self) {
        let mut headers = HeaderMap::new();
        headers.insert("Switchboard-Instance", self.instance.as_str());
        headers.insert("Switchboard-Gone", "true");
        let subject = format!("presence.forwarder.{}", self.forwarder);
        let _ = self
            .client
            .publish_with_headers(subject, headers, "".into())
            .await;
        let _ = self.client.flush().await;
    }

    /// Requests to this forwarder's services.
    ///
    /// # Errors
    /// The bus refuses.
    pub async fn requests(&self) -> Result<Subscriber, async_nats::Error> {
        let subject = format!("serve.forwarder.{}.>", self.forwarder);
        Ok(self
            .client
            .queue_subscribe(subject, "agents".to_string())
            .await?)
    }

    /// Answers a request: its service's last word, or a code and a sentence.
    pub async fn answer(&self, request: &Message, answer: Result<Vec<u8>, (&str, String)>) {
        let Some(reply) = request.reply.clone() else {
            return;
        };
        let _ = match answer {
            Ok(bytes) => self.client.publish(reply, bytes.into()).await,
            Err((code, sentence)) => {
                let mut headers = HeaderMap::new();
                headers.insert("Switchboard-Code", code);
                self.client
                    .publish_with_headers(reply, headers, sentence.into())
                    .await
            }
        };
    }
}
