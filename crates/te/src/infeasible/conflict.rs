//! The smallest part of a list of constraints that already excludes everything (QuickXplain, Junker 2004).

/// A part of `all` that `conflicts`, and of which no proper part does; empty where even nothing conflicts. `all` itself
/// must conflict, and so must everything that holds a conflicting part. About 2k log(n/k) questions for k of n.
pub fn smallest<T: Clone>(all: &[T], conflicts: &dyn Fn(&[T]) -> bool) -> Vec<T> {
    if conflicts(&[]) {
        return Vec::new();
    }
    within(&[], false, all, conflicts)
}

/// The part of `all` that conflicts together with `given`, which was `changed` since it was last asked about.
fn within<T: Clone>(
    given: &[T],
    changed: bool,
    all: &[T],
    conflicts: &dyn Fn(&[T]) -> bool,
) -> Vec<T> {
    if changed && conflicts(given) {
        return Vec::new();
    }
    if all.len() <= 1 {
        return all.to_vec();
    }
    let (first, second) = all.split_at(all.len() / 2);
    let from_second = within(
        &[given, first].concat(),
        !first.is_empty(),
        second,
        conflicts,
    );
    let from_first = within(
        &[given, &from_second].concat(),
        !from_second.is_empty(),
        first,
        conflicts,
    );
    [from_first, from_second].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_for_the_conflict_is_found_and_nothing_else() {
        let all: Vec<u32> = (0..50).collect();
        for needed in [&[][..], &[0], &[49], &[3, 17, 40], &[24, 25]] {
            let conflicts = |part: &[u32]| needed.iter().all(|n| part.contains(n));
            assert_eq!(smallest(&all, &conflicts), needed);
        }
    }

    #[test]
    fn of_several_conflicts_one_is_found_whole() {
        let all: Vec<u32> = (0..10).collect();
        let conflicts = |part: &[u32]| {
            [[1, 2], [2, 7], [8, 9]]
                .iter()
                .any(|set| set.iter().all(|n| part.contains(n)))
        };
        let found = smallest(&all, &conflicts);
        assert!(conflicts(&found) && found.len() == 2, "{found:?}");
    }
}
