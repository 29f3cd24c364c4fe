//! The model as the bus has it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::kv::{Operation, Watch};
use futures_util::StreamExt;
use te::json::parse;

use super::Shared;
use super::bus::Bus;

/// How long the bus is left alone after it failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Follows the model for ever; begins anew whenever something may have been missed.
pub async fn forever(bus: Bus, shared: Arc<Shared>) {
    loop {
        match bus.model().await {
            Ok((watch, last, any)) => tokio::select! {
                () = follow(watch, last, any, &shared) => {}
                () = bus.reconnected() => {}
            },
            Err(e) => eprintln!("switchboard-te: the model cannot be followed: {e}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Takes entries until the watch ends. The bucket was at the revision `last` when it began.
async fn follow(mut watch: Watch, last: u64, any: bool, shared: &Shared) {
    let mut known = Some(HashSet::new());
    if !any {
        shared.worker().retain(|_| false);
        advance(shared, last);
        known = None;
    }
    while let Some(next) = watch.next().await {
        let entry = match next {
            Ok(entry) => entry,
            Err(e) => {
                eprintln!("switchboard-te: the model's watch ended: {e}");
                return;
            }
        };
        let present = entry.operation == Operation::Put;
        let value = if present {
            parse(&entry.value[..]).map(Some)
        } else {
            Ok(None)
        };
        let taken = match value {
            Ok(value) => shared.worker().set(&entry.key, value),
            Err(e) => {
                shared.worker().refuse(&entry.key, &e);
                Err(e)
            }
        };
        if let Err(e) = taken {
            eprintln!(
                "switchboard-te: {} is refused, and what was in force stays: {e}",
                entry.key
            );
        }
        if let Some(known) = known.as_mut().filter(|_| present) {
            known.insert(entry.key.clone());
        }
        if entry.delta == 0
            && let Some(known) = known.take()
        {
            shared.worker().retain(|key| known.contains(key));
            advance(shared, last);
        }
        advance(shared, entry.revision);
    }
}

/// Notes that the model is known up to a revision.
fn advance(shared: &Shared, revision: u64) {
    shared
        .seen
        .send_if_modified(|seen| std::mem::replace(seen, revision.max(*seen)) < revision);
}
