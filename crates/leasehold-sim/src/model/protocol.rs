//! The steps of the protocol, and what must be true after each.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use super::state::{Attempt, Client, Entry, LeaseName, Left, Message, Phase, Referee, State, Step, Store};
use super::{ALL_GET_IT, Bounds, Broken, NEVER_TWO, NO_STALE_WRITE, ONLY_MINE, TOKENS_RISE};

/// The client of a mixed fleet whose token may be of another kind ([`Broken::TokenFromCreateRevision`]).
const ODD_ONE: u8 = 1;

/// The protocol within bounds, right or broken.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    bounds: Bounds,
    broken: Option<Broken>,
}

impl Protocol {
    pub(super) fn new(bounds: Bounds, broken: Option<Broken>) -> Self {
        Self { bounds, broken }
    }

    fn is(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }

    /// A message arrives at the store, the register or a client.
    fn deliver(&self, state: &mut State, message: Message) {
        match message {
            Message::Enter(attempt, _) => enter(state, attempt),
            Message::Look(attempt) => look(state, attempt),
            Message::Remove(attempt, created) => {
                let bound = created.filter(|_| !self.is(Broken::RemovesByName));
                remove(state, attempt, bound);
                state.network.insert(Message::Removed(attempt));
            }
            Message::RemoveDoubtful(attempt) => remove(state, attempt, None),
            Message::Write(attempt, token) => self.write(state, attempt, token),
            Message::Entered { attempt, at, alone: true } => self.grant(state, attempt, at, at),
            Message::Entered { attempt, at, alone: false } => {
                client(state, attempt).phase = Phase::Waiting { created: at };
            }
            Message::WasThere { attempt, created, at } => {
                if self.is(Broken::GrantsWithoutLook) {
                    state.referee.saw_first(attempt);
                    self.grant(state, attempt, created, at);
                } else {
                    client(state, attempt).phase = Phase::Waiting { created };
                }
            }
            Message::First { attempt, at } => {
                if let Phase::Waiting { created } = client(state, attempt).phase {
                    self.grant(state, attempt, created, at);
                }
            }
            Message::Gone(attempt) => new_lease(client(state, attempt)),
            Message::Removed(attempt) => self.removed(state, attempt),
        }
    }

    fn grant(&self, state: &mut State, attempt: Attempt, created: u8, at: u8) {
        let odd = self.is(Broken::TokenFromCreateRevision) && attempt.lease.client == ODD_ONE;
        let token = if odd { created } else { at };
        let client = client(state, attempt);
        client.phase = Phase::Holding { created, token, wrote: false };
        client.has_held = true;
        for (holder, its) in &mut state.referee.holders {
            if *holder == attempt {
                *its = Some(token);
            }
        }
    }

    fn write(&self, state: &mut State, attempt: Attempt, token: u8) {
        if token < state.register && !self.is(Broken::Unfenced) {
            return;
        }
        state.register = token;
        let referee = &mut state.referee;
        let place = referee.holders.iter().position(|(holder, _)| *holder == attempt).unwrap_or_default();
        referee.took_stale_write |= place < referee.last_write;
        referee.last_write = place;
    }

    fn removed(&self, state: &mut State, attempt: Attempt) {
        let client = client(state, attempt);
        client.phase = Phase::Idle;
        if !client.retired {
            return;
        }
        if !self.is(Broken::ReusesDoubtedLease) {
            new_lease(client);
        }
        state.network.insert(Message::RemoveDoubtful(attempt));
    }

    /// Drops what can have no effect any more: fewer states, the same histories.
    fn tidy(state: &mut State) {
        let State { network, clients, store, .. } = state;
        network.retain(|message| match (message.answers(), *message) {
            (Some(attempt), answer) => {
                let client = &clients[usize::from(attempt.lease.client)];
                client.attempt == attempt
                    && match client.phase {
                        Phase::Idle | Phase::Holding { .. } => false,
                        Phase::Entering => {
                            matches!(answer, Message::Entered { .. } | Message::WasThere { .. })
                        }
                        Phase::Waiting { .. } => matches!(answer, Message::First { .. } | Message::Gone(_)),
                        Phase::Leaving => matches!(answer, Message::Removed(_)),
                    }
            }
            (None, Message::Enter(attempt, _) | Message::RemoveDoubtful(attempt)) => {
                !store.ended.contains(&attempt.lease)
            }
            (None, Message::Look(attempt)) => {
                let client = &clients[usize::from(attempt.lease.client)];
                client.attempt == attempt && matches!(client.phase, Phase::Waiting { .. })
            }
            (None, Message::Remove(attempt, _)) => {
                let client = &clients[usize::from(attempt.lease.client)];
                !store.ended.contains(&attempt.lease) || client.attempt == attempt
            }
            (None, _) => true,
        });
    }
}

fn client(state: &mut State, attempt: Attempt) -> &mut Client {
    &mut state.clients[usize::from(attempt.lease.client)]
}

/// From now on the client believes in nothing that hangs on the lease it had.
fn new_lease(client: &mut Client) {
    client.attempt.lease.nth += 1;
    client.phase = Phase::Idle;
    client.retired = false;
}

fn enter(state: &mut State, attempt: Attempt) {
    let store = &mut state.store;
    if store.ended.contains(&attempt.lease) {
        return;
    }
    let answer = if let Some(own) = store.keys.get(&attempt.lease) {
        Message::WasThere { attempt, created: own.created, at: store.revision }
    } else {
        let alone = store.keys.is_empty();
        store.revision += 1;
        store.keys.insert(attempt.lease, Entry { created: store.revision, by: attempt });
        if alone {
            state.referee.saw_first(attempt);
        }
        Message::Entered { attempt, at: store.revision, alone }
    };
    state.network.insert(answer);
}

fn look(state: &mut State, attempt: Attempt) {
    let store = &state.store;
    // The client compares the creation it knows; it is the one that stands, or the attempt is lost.
    let known = match state.clients[usize::from(attempt.lease.client)].phase {
        Phase::Waiting { created } => Some(created),
        _ => None,
    };
    let own = store.keys.get(&attempt.lease).filter(|own| Some(own.created) == known);
    let answer = match own {
        None => Message::Gone(attempt),
        Some(own) if store.keys.values().all(|other| other.created >= own.created) => {
            state.referee.saw_first(attempt);
            Message::First { attempt, at: store.revision }
        }
        // It would teach the client nothing: it may look again at any time.
        Some(_) => return,
    };
    state.network.insert(answer);
}

fn remove(state: &mut State, attempt: Attempt, created: Option<u8>) {
    let store = &mut state.store;
    let Some(found) = store.keys.get(&attempt.lease) else { return };
    if created.is_none_or(|created| created == found.created) {
        state.referee.removed_anothers |= found.by != attempt;
        store.keys.remove(&attempt.lease);
        store.revision += 1;
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let client = |client| Client {
            attempt: Attempt { lease: LeaseName { client, nth: 0 }, nth: 0 },
            phase: Phase::Idle,
            retired: false,
            has_held: false,
        };
        let Bounds { attempts_in_all: attempts, timeouts, duplicates, ends, .. } = self.bounds;
        vec![State {
            store: Store::default(),
            network: BTreeSet::new(),
            clients: (0..self.bounds.clients).map(client).collect(),
            register: 0,
            left: Left { attempts, timeouts, duplicates, ends },
            referee: Referee::default(),
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let left = &state.left;
        for (who, client) in (0..).zip(&state.clients) {
            match client.phase {
                Phase::Idle if client.attempt.nth < self.bounds.attempts && left.attempts > 0 => {
                    steps.push(Step::Begin(who));
                }
                Phase::Entering if left.timeouts > 0 => {
                    steps.extend([Step::SendAgain(who), Step::GiveUp(who)]);
                }
                Phase::Waiting { .. } => {
                    steps.push(Step::Leave(who));
                    let answered = |message: &Message| message.answers() == Some(client.attempt);
                    let asked = state.network.contains(&Message::Look(client.attempt));
                    if !asked && !state.network.iter().any(answered) {
                        steps.push(Step::Look(who));
                    }
                }
                Phase::Holding { wrote, .. } => {
                    steps.push(Step::Leave(who));
                    if !wrote {
                        steps.push(Step::Write(who));
                    }
                }
                Phase::Idle | Phase::Entering | Phase::Leaving => {}
            }
            if client.phase != Phase::Idle && left.ends > 0 {
                steps.push(Step::End(who));
            }
            for nth in 0..=client.attempt.lease.nth {
                let lease = LeaseName { client: who, nth };
                let believed = nth == client.attempt.lease.nth;
                // The last is not of use before its first attempt.
                let may_end = if believed {
                    self.is(Broken::ExpiresAtWill) && client.phase != Phase::Idle
                } else {
                    true
                };
                if may_end && !state.store.ended.contains(&lease) {
                    steps.push(Step::Expire(lease));
                }
            }
        }
        for message in &state.network {
            steps.push(Step::Deliver(*message));
            // Answers belong to their call: no second one reaches the client. A second entry is one that it sent itself.
            let copied = match message {
                Message::Enter(..) => self.is(Broken::CopiesAnsweredEntries),
                other => other.answers().is_none(),
            };
            if left.duplicates > 0 && copied {
                steps.push(Step::DeliverACopy(*message));
            }
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Begin(who) => {
                state.left.attempts -= 1;
                let client = &mut state.clients[usize::from(who)];
                client.attempt.nth += 1;
                client.phase = Phase::Entering;
                state.network.insert(Message::Enter(client.attempt, 0));
            }
            Step::SendAgain(who) => {
                state.left.timeouts -= 1;
                let client = &mut state.clients[usize::from(who)];
                client.retired = true;
                let attempt = client.attempt;
                // The answer to the first copy belongs to a call that nobody waits for.
                state.network.retain(|message| message.answers() != Some(attempt));
                state.network.insert(Message::Enter(attempt, state.left.timeouts + 1));
            }
            Step::GiveUp(who) => {
                state.left.timeouts -= 1;
                let client = &mut state.clients[usize::from(who)];
                client.retired = true;
                client.phase = Phase::Leaving;
                state.network.insert(Message::Remove(client.attempt, None));
            }
            Step::Look(who) => {
                state.network.insert(Message::Look(state.clients[usize::from(who)].attempt));
            }
            Step::Write(who) => {
                let client = &mut state.clients[usize::from(who)];
                let Phase::Holding { token, wrote, .. } = &mut client.phase else { return None };
                *wrote = true;
                state.network.insert(Message::Write(client.attempt, *token));
            }
            Step::Leave(who) => {
                let client = &mut state.clients[usize::from(who)];
                let (Phase::Waiting { created } | Phase::Holding { created, .. }) = client.phase else {
                    return None;
                };
                client.phase = Phase::Leaving;
                state.network.insert(Message::Remove(client.attempt, Some(created)));
            }
            Step::End(who) => {
                state.left.ends -= 1;
                new_lease(&mut state.clients[usize::from(who)]);
            }
            Step::Expire(lease) => {
                state.store.ended.insert(lease);
                if state.store.keys.remove(&lease).is_some() {
                    state.store.revision += 1;
                }
            }
            Step::Deliver(message) => {
                state.network.remove(&message);
                self.deliver(&mut state, message);
            }
            Step::DeliverACopy(message) => {
                state.left.duplicates -= 1;
                self.deliver(&mut state, message);
            }
        }
        Self::tidy(&mut state);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_TWO, |_: &Self, state: &State| {
                let holds = |client: &&Client| matches!(client.phase, Phase::Holding { .. });
                state.clients.iter().filter(holds).count() < 2
            }),
            Property::always(TOKENS_RISE, |_: &Self, state: &State| {
                let tokens: Vec<_> = state.referee.holders.iter().filter_map(|(_, token)| *token).collect();
                tokens.is_sorted_by(|earlier, later| earlier < later)
            }),
            Property::always(NO_STALE_WRITE, |_: &Self, state: &State| !state.referee.took_stale_write),
            Property::always(ONLY_MINE, |_: &Self, state: &State| !state.referee.removed_anothers),
            Property::sometimes(ALL_GET_IT, |_: &Self, state: &State| {
                state.clients.iter().all(|client| client.has_held)
            }),
        ]
    }
}
