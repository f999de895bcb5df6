//! Reading many keys: in pages, as of one revision.

use leasehold_mvcc::{Code, Key, KeyRange, KeyValue, RangeRequest, Revision};

use crate::error::{Error, Result};
use crate::etcd::Etcd;

/// How many keys the first page holds: of the largest that etcd takes by default, 1.5 MiB, so many fit into an answer of
/// any client. (Values cannot be left out: newer etcds leave the lease out with them.)
const FIRST: i64 = 32;

/// The most that a page holds.
const MOST: i64 = 512;

/// How many bytes a page is meant to have.
const BYTES: usize = 4 << 20;

/// How often reading begins again because history was compacted under it.
const AGAIN: usize = 5;

/// The tries to read something as of one revision. History may be compacted between two pages; then reading begins again,
/// at a revision that is there.
#[derive(Debug)]
pub(crate) struct Tries(std::ops::Range<usize>);

impl Default for Tries {
    fn default() -> Self {
        Self(0..AGAIN)
    }
}

impl Tries {
    /// Whether to read once more, after what ended the last try.
    pub(crate) fn again(&mut self, ended_with: &Error) -> bool {
        let is_compacted = matches!(ended_with, Error::Compacted { .. })
            || ended_with.refusal().is_some_and(|no| no.code == Code::OutOfRange);
        is_compacted && self.0.next().is_some()
    }
}

/// Gives the keys of a range to `take`, as of a revision, or as of the present if that is zero; and says as of which.
pub(crate) async fn read(
    etcd: &dyn Etcd,
    mut range: KeyRange,
    revision: Revision,
    take: &mut (dyn FnMut(KeyValue) + Send),
) -> Result<Revision> {
    let (mut as_of, mut limit) = (revision, FIRST);
    loop {
        let request = RangeRequest { revision: as_of, ..RangeRequest::range(range.clone()).limited(limit) };
        let page = match etcd.range(request).await {
            // Larger values came all at once: the smallest page has room for any.
            Err(error) if is_too_large(&error) && limit > FIRST => {
                limit = FIRST;
                continue;
            }
            page => page?,
        };
        as_of = if as_of.is_zero() { page.header.revision } else { as_of };
        let next = page.kvs.last().filter(|_| page.more).map(|last| [last.key.as_bytes(), b"\0"].concat());
        let bytes: usize = page.kvs.iter().map(|kv| kv.key.as_bytes().len() + kv.value.len()).sum();
        limit = next_limit(page.kvs.len(), bytes);
        page.kvs.into_iter().for_each(&mut *take);
        match next {
            Some(next) => range.start = Key::from(next),
            None => return Ok(as_of),
        }
    }
}

/// How many keys to ask for after a page of so many with so many bytes.
fn next_limit(keys: usize, bytes: usize) -> i64 {
    let fitting = BYTES.saturating_mul(keys) / bytes.max(1);
    i64::try_from(fitting).unwrap_or(MOST).clamp(FIRST, MOST)
}

/// Whether it is the client's own limit for an answer that was in the way.
fn is_too_large(error: &Error) -> bool {
    error.is_transient() && error.to_string().contains("message length too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_as_large_as_values_allow() {
        assert_eq!(next_limit(32, 32 * 50), MOST);
        assert_eq!(next_limit(32, 32 * 1_500_000), FIRST);
        assert_eq!(next_limit(512, 512 * 40_000), 104);
        assert_eq!(next_limit(0, 0), FIRST);
    }
}
