//! The tasks that have not ended.

use std::task::Waker;

use futures_util::future::BoxFuture;
use leasehold::runtime::Instant;

use super::core::Duty;
use super::node::NodeId;

pub(super) struct Slot {
    pub(super) name: &'static str,
    pub(super) node: NodeId,
    pub(super) duty: Duty,
    /// Away while it is polled; always away for `main`.
    pub(super) future: Option<BoxFuture<'static, ()>>,
    pub(super) waker: Waker,
    pub(super) queued: bool,
    pub(super) stopped: bool,
    pub(super) polls: u64,
    pub(super) polled_at: Instant,
}

/// Places for tasks, used again and again: a task's number is its place and how many were there before it, so that no
/// number comes twice.
#[derive(Default)]
pub(super) struct Tasks {
    places: Vec<(u32, Option<Slot>)>,
    free: Vec<u32>,
}

const PLACE: u64 = u32::MAX as u64;

impl Tasks {
    /// The number of the next task, which must then be inserted, or given back.
    pub(super) fn next_id(&mut self) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let before = self.places.get(place as usize).map_or(0, |(before, _)| *before);
        (u64::from(before) << 32) + u64::from(place)
    }

    pub(super) fn give_back(&mut self, id: u64) {
        self.free.push((id & PLACE) as u32);
    }

    pub(super) fn insert(&mut self, id: u64, slot: Slot) {
        if let Some(place) = self.places.get_mut((id & PLACE) as usize) {
            place.1 = Some(slot);
        }
    }

    pub(super) fn get(&self, id: u64) -> Option<&Slot> {
        let (before, slot) = self.places.get((id & PLACE) as usize)?;
        slot.as_ref().filter(|_| u64::from(*before) == id >> 32)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Slot> {
        let (before, slot) = self.places.get_mut((id & PLACE) as usize)?;
        slot.as_mut().filter(|_| u64::from(*before) == id >> 32)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Slot> {
        let (before, slot) = self.places.get_mut((id & PLACE) as usize)?;
        if u64::from(*before) != id >> 32 {
            return None;
        }
        let slot = slot.take()?;
        *before += 1;
        self.free.push((id & PLACE) as u32);
        Some(slot)
    }

    /// Any one, taken out.
    pub(super) fn pop(&mut self) -> Option<Slot> {
        let id = self.iter().map(|(id, _)| id).next()?;
        self.remove(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Slot)> {
        let number = |(place, (before, slot)): (usize, &'_ (u32, Option<Slot>))| {
            slot.as_ref().map(|_| (u64::from(*before) << 32) + place as u64)
        };
        self.places.iter().enumerate().filter_map(move |(place, entry)| {
            let id = number((place, entry))?;
            Some((id, entry.1.as_ref()?))
        })
    }
}
