//! Traffic engineering for wide-area service chains (Switchboard paper, section 4).
