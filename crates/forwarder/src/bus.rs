//! The forwarder as an agent of its site's message bus: its rules, its reports and its services.

use agent::{Agent, Credentials};
use async_nats::jetstream::kv;
use async_nats::{Message, Subscriber};
use std::path::Path;

/// Bucket of rule sets; a forwarder's key is its name.
const RULES: &str = "rules";
/// Bucket of reports.
const STATUS: &str = "status";

/// A connection to the site's bus; it reconnects for ever.
#[derive(Clone)]
pub struct Bus {
    agent: Agent,
    forwarder: String,
}

impl Bus {
    /// Connects with the credentials in a file; succeeds also while the bus is away.
    ///
    /// # Errors
    /// The file cannot be read or holds something else.
    pub async fn connect(credentials: &Path, forwarder: &str) -> Result<Bus, agent::Error> {
        let credentials = Credentials::read(credentials)?;
        Ok(Bus {
            agent: Agent::connect(credentials, "forwarder", forwarder).await?,
            forwarder: forwarder.to_string(),
        })
    }

    /// Waits until the bus was away and is back; what was subscribed to may have missed something then.
    pub async fn reconnected(&self) {
        self.agent.reconnected().await;
    }

    /// Rule sets as they come, beginning with the last one.
    ///
    /// # Errors
    /// The bus is away or refuses; try again.
    pub async fn watch_rules(&self) -> Result<kv::Watch, async_nats::Error> {
        let context = async_nats::jetstream::new(self.agent.client().clone());
        let bucket = context.get_key_value(RULES).await?;
        Ok(bucket.watch_with_history(&self.forwarder).await?)
    }

    /// Reports.
    ///
    /// # Errors
    /// The bus is away or refuses; try again.
    pub async fn put_status(&self, status: Vec<u8>) -> Result<(), async_nats::Error> {
        // A plain put needs no look at the bucket first.
        let subject = format!("$KV.{STATUS}.{}", self.forwarder);
        let context = async_nats::jetstream::new(self.agent.client().clone());
        context.publish(subject, status.into()).await?.await?;
        Ok(())
    }

    /// Says that this forwarder lives.
    pub async fn beat(&self) {
        self.agent.beat().await;
    }

    /// Says that this forwarder goes.
    pub async fn farewell(&self) {
        self.agent.farewell().await;
    }

    /// Requests to this forwarder's services.
    ///
    /// # Errors
    /// The bus refuses.
    pub async fn requests(&self) -> Result<Subscriber, async_nats::Error> {
        let subject = format!("serve.forwarder.{}.>", self.forwarder);
        self.agent.requests(subject).await
    }

    /// Answers a request: its service's last word, or a code and a sentence.
    pub async fn answer(&self, request: &Message, answer: Result<Vec<u8>, (&str, String)>) {
        // Whoever asked asks again where no answer comes.
        let _ = self.agent.answer(request, answer).await;
    }
}
