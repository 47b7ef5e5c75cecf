//! Search among sorted keys that are likely to be evenly spread, as digests are.
//!
//! A binary search touches a cache line for each halving; interpolation is nearly always on the right line or next to
//! it. From the first guess on the step doubles, so keys that are not evenly spread only cost a few more steps.

/// Where `key` is, or would be, among the sorted `keys`. They lie between `lower` and `upper`, by their upper halves.
pub(super) fn search<T>(
    items: &[T],
    key: u128,
    lower: u64,
    upper: u64,
    key_of: impl Fn(&T) -> u128,
) -> Result<usize, usize> {
    let guess = guess(items.len(), (key >> 64) as u64, lower, upper);
    // What is sought is in items[low..high], or would be at one of its ends.
    let (mut low, mut high) = (0, items.len());
    let mut step = 1;
    if items.get(guess).is_some_and(|item| key_of(item) <= key) {
        low = guess;
        while low + step < items.len() {
            if key_of(&items[low + step]) > key {
                high = low + step;
                break;
            }
            low += step;
            step *= 2;
        }
    } else {
        high = guess;
        while step <= high {
            if key_of(&items[high - step]) <= key {
                low = high - step;
                break;
            }
            high -= step;
            step *= 2;
        }
    }
    items[low..high].binary_search_by(|item| key_of(item).cmp(&key)).map(|at| low + at).map_err(|at| low + at)
}

fn guess(count: usize, key: u64, lower: u64, upper: u64) -> usize {
    let span = u128::from(upper.saturating_sub(lower)) + 1;
    let at = u128::from(key.saturating_sub(lower)) * count as u128 / span;
    (at as usize).min(count.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::search;

    fn agrees(keys: &[u128], sought: u128, lower: u64, upper: u64) {
        assert_eq!(search(keys, sought, lower, upper, |key| *key), keys.binary_search(&sought), "{sought} in {keys:?}");
    }

    #[test]
    fn it_finds_what_a_binary_search_finds() {
        let spread = |at: u128| swiftlet_hash::xxh3_128(&at.to_be_bytes());
        for count in [0, 1, 2, 3, 7, 48, 64, 1000] {
            let mut even: Vec<u128> = (0..count).map(spread).collect();
            even.sort_unstable();
            // All upper halves the same, and a few far apart: proportion says nothing.
            let narrow: Vec<u128> = (0..count).map(|at| (5 << 64) + at * 3).collect();
            let steep: Vec<u128> = (0..count).map(|at| 1_u128 << (at % 64 + 60)).collect();
            let mut steep = steep;
            steep.sort_unstable();
            steep.dedup();
            for keys in [even, narrow, steep] {
                for at in 0..count {
                    agrees(&keys, spread(at + 5000), 0, u64::MAX);
                }
                for key in keys.iter().flat_map(|key| [key - 1, *key, key + 1]) {
                    agrees(&keys, key, 0, u64::MAX);
                    // Bounds that are wrong cost time and nothing else.
                    agrees(&keys, key, (key >> 64) as u64, 0);
                    agrees(&keys, key, u64::MAX, u64::MAX);
                }
            }
        }
    }
}
