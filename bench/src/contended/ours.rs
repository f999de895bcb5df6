//! A contender that locks as users do: a session and a mutex.

use std::sync::Arc;

use leasehold::etcd::Etcd;
use leasehold::{Guard, Mutex, Remote, Session};
use leasehold_testbed::RealEtcd;

use super::Contender;

pub(super) struct Ours {
    session: Session,
    mutex: Mutex,
}

impl Ours {
    /// A session on connections of its own, as another process would have them.
    pub(super) async fn connect(server: &RealEtcd, lock: &str) -> Self {
        let session = Session::open(Arc::new(Remote::connect(server.endpoint()).unwrap()) as Arc<dyn Etcd>)
            .await
            .unwrap();
        let mutex = Mutex::new(&session, lock.parse().unwrap());
        Self { session, mutex }
    }

    pub(super) async fn close(self) {
        self.session.close().await.unwrap();
        self.session.etcd().close().await;
    }
}

impl Contender for Ours {
    type Held = Guard;

    async fn lock(&mut self) -> Guard {
        self.mutex.lock().await.unwrap()
    }

    async fn unlock(&mut self, held: Guard) {
        held.release().await.unwrap();
    }
}
