//! The worker as an agent of its site's message bus: the model it follows and the services it has.

use agent::{Agent, Credentials};
use async_nats::jetstream::kv;
use async_nats::{Message, Subscriber};

/// Bucket of the model.
const MODEL: &str = "model";

/// A connection to the site's bus; it reconnects for ever.
#[derive(Clone)]
pub struct Bus(Agent);

impl Bus {
    /// Connects as a worker of a name; succeeds also while the bus is away.
    ///
    /// # Errors
    /// An address that is none.
    pub async fn connect(credentials: Credentials, name: &str) -> Result<Bus, agent::Error> {
        Ok(Bus(Agent::connect(credentials, "optimiser", name).await?))
    }

    /// Waits until the bus was away and is back: what was followed may have missed something then.
    pub async fn reconnected(&self) {
        self.0.reconnected().await;
    }

    /// Every entry of the model, then every change; and the state of the bucket before: its last revision, and whether
    /// there is any entry.
    ///
    /// # Errors
    /// The bus is away or refuses; try again.
    pub async fn model(&self) -> Result<(kv::Watch, u64, bool), async_nats::Error> {
        let context = async_nats::jetstream::new(self.0.client().clone());
        let bucket = context.get_key_value(MODEL).await?;
        let state = &bucket.stream.cached_info().state;
        let (last, any) = (state.last_sequence, state.messages > 0);
        Ok((bucket.watch_with_history(">").await?, last, any))
    }

    /// Requests to the services of an optimiser.
    ///
    /// # Errors
    /// The bus refuses.
    pub async fn requests(&self) -> Result<Subscriber, String> {
        let subscribed = self.0.requests("serve.te.*".to_string()).await;
        subscribed.map_err(|e| format!("cannot serve te.*: {e}"))
    }

    /// Says that this worker lives.
    pub async fn beat(&self) {
        self.0.beat().await;
    }

    /// Says that it goes.
    pub async fn farewell(&self) {
        self.0.farewell().await;
    }

    /// Answers a request: the text, or a code and a sentence.
    pub async fn answer(&self, request: &Message, answer: Result<String, (&str, String)>) {
        if let Err(e) = self.0.answer(request, answer.map(String::into_bytes)).await {
            eprintln!("switchboard-te: cannot reply: {e}");
        }
    }
}
