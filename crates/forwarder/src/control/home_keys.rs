//! What connections' homes are made of, and when that may change.

/// What homes are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HomeKeys {
    pub(super) key: [u8; 16],
    /// What the next process is to make them of, if it is another one.
    pub(super) next_key: Option<[u8; 16]>,
    /// Whether connections may have homes already.
    pub(super) is_settled: bool,
}

impl HomeKeys {
    /// What they are to be with the platform's secret. Where there is none they stay what they are, which is secret.
    pub(super) fn with(self, secret: [u8; 16]) -> HomeKeys {
        let (key, next_key) = match self.is_settled {
            _ if secret == [0; 16] => (self.key, self.next_key),
            true => (self.key, (secret != self.key).then_some(secret)),
            false => (secret, None),
        };
        HomeKeys {
            key,
            next_key,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 16] = [1; 16];
    const ONE: [u8; 16] = [2; 16];
    const OTHER: [u8; 16] = [3; 16];

    fn keys(key: [u8; 16], next_key: Option<[u8; 16]>, is_settled: bool) -> HomeKeys {
        HomeKeys {
            key,
            next_key,
            is_settled,
        }
    }

    #[test]
    fn homes_change_at_once_only_while_no_connection_has_one() {
        for (before, secret, after) in [
            (keys(OWN, None, false), ONE, keys(ONE, None, false)),
            (keys(OWN, None, false), [0; 16], keys(OWN, None, false)),
            (keys(OWN, Some(ONE), false), OTHER, keys(OTHER, None, false)),
            (keys(OWN, None, true), ONE, keys(OWN, Some(ONE), true)),
            (
                keys(OWN, Some(ONE), true),
                OTHER,
                keys(OWN, Some(OTHER), true),
            ),
            (keys(ONE, Some(OTHER), true), ONE, keys(ONE, None, true)),
            (
                keys(ONE, Some(OTHER), true),
                [0; 16],
                keys(ONE, Some(OTHER), true),
            ),
        ] {
            assert_eq!(before.with(secret), after, "{before:?} with {secret:?}");
        }
    }
}
