//! The worker as an agent of its site's message bus: names of buckets and subjects as the bus documents them.

use std::sync::Arc;

use async_nats::jetstream::kv;
use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message, Subscriber};
use te::error::InputError;
use te::json::{Fields, Place};
use tokio::sync::Notify;

use crate::files;

/// Bucket of the model.
const MODEL: &str = "model";

/// The queue group of a site's agents.
const GROUP: &str = "agents";

/// What the site process wrote for this agent.
pub struct Credentials {
    url: String,
    user: String,
    password: String,
    inbox_prefix: String,
}

impl Credentials {
    /// Reads a credentials file.
    ///
    /// # Errors
    /// A file that cannot be read or is something else.
    pub fn read(path: &str) -> Result<Credentials, InputError> {
        let document = files::document(path)?;
        let known = ["site", "url", "user", "password", "inbox_prefix"];
        let fields = Fields::of(Place::ROOT, &document, &known).map_err(|e| e.in_source(path))?;
        let text = |name: &str| {
            fields
                .text(name)
                .map(str::to_owned)
                .map_err(|e| e.in_source(path))
        };
        Ok(Credentials {
            url: text("url")?,
            user: text("user")?,
            password: text("password")?,
            inbox_prefix: text("inbox_prefix")?,
        })
    }
}

/// A connection to the site's bus; it reconnects for ever.
#[derive(Clone)]
pub struct Bus {
    client: Client,
    subject: String,
    instance: String,
    reconnected: Arc<Notify>,
}

impl Bus {
    /// Connects as a worker of a name; succeeds also while the bus is away.
    ///
    /// # Errors
    /// An address that is none.
    pub async fn connect(credentials: Credentials, name: &str) -> Result<Bus, String> {
        let reconnected = Arc::new(Notify::new());
        let told = Arc::clone(&reconnected);
        let client = ConnectOptions::with_user_and_password(credentials.user, credentials.password)
            .custom_inbox_prefix(credentials.inbox_prefix)
            .name(format!("optimiser {name}"))
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
            .map_err(|e| format!("cannot connect to {}: {e}", credentials.url))?;
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(Bus {
            client,
            subject: format!("presence.optimiser.{name}"),
            instance: format!(
                "{}-{:x}",
                std::process::id(),
                since.map_or(0, |time| time.as_nanos())
            ),
            reconnected,
        })
    }

    /// Waits until the bus was away and is back: what was followed may have missed something then.
    pub async fn reconnected(&self) {
        self.reconnected.notified().await;
    }

    /// Every entry of the model, then every change; and the state of the bucket before: its last revision, and whether
    /// there is any entry.
    ///
    /// # Errors
    /// The bus is away or refuses; try again.
    pub async fn model(&self) -> Result<(kv::Watch, u64, bool), async_nats::Error> {
        let context = async_nats::jetstream::new(self.client.clone());
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
        let subscribed = self
            .client
            .queue_subscribe("serve.te.*", GROUP.to_string())
            .await;
        subscribed.map_err(|e| format!("cannot serve te.*: {e}"))
    }

    /// Says that this worker lives.
    pub async fn beat(&self) {
        self.say(&[]).await;
    }

    /// Says that it goes.
    pub async fn farewell(&self) {
        self.say(&[("Switchboard-Gone", "true")]).await;
        let _ = self.client.flush().await;
    }

    async fn say(&self, more: &[(&str, &str)]) {
        let mut headers = HeaderMap::new();
        headers.insert("Switchboard-Instance", self.instance.as_str());
        for (name, value) in more {
            headers.insert(*name, *value);
        }
        // Lost beats are what others notice; nothing is to be done about one here.
        let _ = self
            .client
            .publish_with_headers(self.subject.clone(), headers, "".into())
            .await;
    }

    /// Answers a request: the text, or a code and a sentence.
    pub async fn answer(&self, request: &Message, answer: Result<String, (&str, String)>) {
        let Some(reply) = request.reply.clone() else {
            return;
        };
        let sent = match answer {
            Ok(text) => self.client.publish(reply, text.into()).await,
            Err((code, sentence)) => {
                let mut headers = HeaderMap::new();
                headers.insert("Switchboard-Code", code);
                self.client
                    .publish_with_headers(reply, headers, sentence.into())
                    .await
            }
        };
        if let Err(e) = sent {
            eprintln!("switchboard-te: cannot reply: {e}");
        }
    }
}
