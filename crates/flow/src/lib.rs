//! The flow table: one choice per connection, found again in both directions.
