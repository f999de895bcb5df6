//! The network between one client and one member.

use std::time::Duration;

/// What a link does to what it carries; chances in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkFaults {
    /// A request is lost, and the connection with it.
    pub lose_request: u32,
    /// An answer is lost after the request was carried out.
    pub lose_reply: u32,
    /// A request arrives long after its caller gave up.
    pub late: u32,
    /// How late at most.
    pub max_late: Duration,
    /// What each message takes longer at most: so messages of different connections overtake each other.
    pub delay: Duration,
    /// Streams break when they carry something.
    pub cut_streams: u32,
    /// Watch messages wait for the next 100 ms round.
    pub watch_round: u32,
    /// Watch messages with several events come in parts.
    pub fragment: u32,
}

impl LinkFaults {
    /// None.
    pub const NONE: Self = Self {
        lose_request: 0,
        lose_reply: 0,
        late: 0,
        max_late: Duration::ZERO,
        delay: Duration::ZERO,
        cut_streams: 0,
        watch_round: 0,
        fragment: 0,
    };

    /// Both at once.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            lose_request: self.lose_request + other.lose_request,
            lose_reply: self.lose_reply + other.lose_reply,
            late: self.late + other.late,
            max_late: self.max_late.max(other.max_late),
            delay: self.delay + other.delay,
            cut_streams: self.cut_streams + other.cut_streams,
            watch_round: self.watch_round + other.watch_round,
            fragment: self.fragment + other.fragment,
        }
    }

    /// This without that, which was added before.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            lose_request: self.lose_request.saturating_sub(other.lose_request),
            lose_reply: self.lose_reply.saturating_sub(other.lose_reply),
            late: self.late.saturating_sub(other.late),
            max_late: self.max_late,
            delay: self.delay.saturating_sub(other.delay),
            cut_streams: self.cut_streams.saturating_sub(other.cut_streams),
            watch_round: self.watch_round.saturating_sub(other.watch_round),
            fragment: self.fragment.saturating_sub(other.fragment),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    /// Nothing gets from the client to the member.
    pub(super) cut_to: u32,
    /// Nothing gets back.
    pub(super) cut_from: u32,
    pub(super) faults: LinkFaults,
    /// Rises whenever its connections break.
    pub(super) generation: u64,
    /// Each lane's connection stands, and since which of the member's generations.
    pub(super) connected: [Option<u64>; 2],
}
