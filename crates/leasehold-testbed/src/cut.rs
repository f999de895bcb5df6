//! A future that is dropped at one of its await points.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Polls `future` so many times at most and drops it right after the last, not when it would next be woken: `None` if it
/// had not ended by then. With each number in turn, until it ends, it is dropped at every point at which it can be.
pub async fn cut<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::{pending, ready};

    use super::*;

    #[test]
    fn what_ends_within_its_polls_gives_its_value_and_what_does_not_is_dropped() {
        assert_eq!(cut(ready(1), 1).now_or_never(), Some(Some(1)));
        assert_eq!(cut(ready(1), 0).now_or_never(), Some(None));
        assert_eq!(cut(pending::<i32>(), 1).now_or_never(), Some(None));
        assert_eq!(cut(pending::<i32>(), 2).now_or_never(), None, "it waits to be woken for its second poll");
    }
}
